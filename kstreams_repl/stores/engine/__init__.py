"""Ordered maps from bytes to bytes that commit atomically with their positions: in memory, and in LMDB."""
