"""Benchmarks: each is a command that prints one JSON line per measurement. See docs/benchmarks.md for what the figures mean."""
