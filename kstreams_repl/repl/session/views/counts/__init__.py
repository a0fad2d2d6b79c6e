"""Counts, rates and lag of an application, and its metrics."""
