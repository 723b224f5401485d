"""Checkpoints into containers."""
