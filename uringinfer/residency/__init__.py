"""What is in memory now."""
