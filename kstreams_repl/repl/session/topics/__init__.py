"""Records of topics: produce, read and record them, and find their serdes."""
