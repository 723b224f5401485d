"""Statistics of a run, as text and as JSON."""
