"""Bytes between disk and memory. Knows nothing of models."""
