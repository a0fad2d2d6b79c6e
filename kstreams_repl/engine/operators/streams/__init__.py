"""Operators of streams without a store."""
