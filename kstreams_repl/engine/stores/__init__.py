"""State stores: typed stores over layers (metered, change-logged, cached) over an ordered byte engine (memory, LMDB)."""
