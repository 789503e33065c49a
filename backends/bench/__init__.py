"""Benchmarks: plan, load generator, statistics, comparison, theoretical maximum."""
