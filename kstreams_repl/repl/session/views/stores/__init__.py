"""Stores for reading: by key, by page, by query, whole."""
