"""Figures, each printed by a command of its own; none of them is a test."""
