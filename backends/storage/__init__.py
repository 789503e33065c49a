"""What is kept: history, recordings, atomic files."""
