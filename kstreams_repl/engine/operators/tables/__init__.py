"""Operators of tables."""
