"""Commits of state, output and input offsets: the numbered protocol in two modes, offset metadata, failpoints."""
