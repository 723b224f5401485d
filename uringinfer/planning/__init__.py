"""What fits where: pure functions, no I/O except machine.py."""
