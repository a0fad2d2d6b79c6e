"""Runs with an end, and what they report."""
