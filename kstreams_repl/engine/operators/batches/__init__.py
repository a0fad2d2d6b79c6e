"""Operators that take many records at once: `map_batches` and `sql`."""
