"""Metrics of an instance, its tasks and nodes."""
