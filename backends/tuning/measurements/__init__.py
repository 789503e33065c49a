"""Micro-measurements of a host: what can be measured, what came of it, and what it should be."""
