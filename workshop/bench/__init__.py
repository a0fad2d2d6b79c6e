"""Benchmarks: each is a command that prints one JSON line per measurement. docs/benchmarks.md explains the figures."""
