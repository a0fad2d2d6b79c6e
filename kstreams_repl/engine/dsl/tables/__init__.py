"""Operators and joins of tables."""
