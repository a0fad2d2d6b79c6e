"""Both sides of a foreign-key join."""
