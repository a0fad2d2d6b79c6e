"""State and offsets of one commit under a name: written, listed, and started from."""
