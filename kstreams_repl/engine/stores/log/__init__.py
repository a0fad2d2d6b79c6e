"""The changelog of a store: writes, restore, serdes."""
