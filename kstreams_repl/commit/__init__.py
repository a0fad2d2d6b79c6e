"""How state, outputs and input offsets move together: the numbered commit in two modes, offset metadata, failpoints."""
