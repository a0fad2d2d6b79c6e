"""Ordered maps from bytes to bytes that commit atomically with their changelog positions: in memory and in LMDB."""
