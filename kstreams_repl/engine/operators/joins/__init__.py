"""Joins of streams and tables by key."""
