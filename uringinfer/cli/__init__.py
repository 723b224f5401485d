"""The command line: one command a file; no logic that the API does not have."""
