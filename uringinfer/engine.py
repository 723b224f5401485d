"""Engine (a loaded model) and Session (the state of one conversation)."""
