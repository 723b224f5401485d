"""The packed model on disk."""
