"""Operators of streams."""
