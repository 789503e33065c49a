"""The program that runs on the host, and how it gets there."""
