"""The source text of a topology: the cells and lines that build it, its changes, and its export."""
