"""Aggregates by key, window and session."""
