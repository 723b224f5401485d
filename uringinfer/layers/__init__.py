"""The parts that model families are built from."""
