"""Asynchronous nodes and threads of one task."""
