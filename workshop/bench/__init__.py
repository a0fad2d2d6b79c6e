"""Benchmarks: each is a command that prints one JSON line per measurement. docs/reference/benchmarks.md explains the figures."""
