"""Groupings, windows and their aggregates."""
