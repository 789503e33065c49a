"""The simulated host behind the demo and some tests; nothing else knows of it."""
