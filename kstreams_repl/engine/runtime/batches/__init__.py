"""Nodes that take many records at once."""
