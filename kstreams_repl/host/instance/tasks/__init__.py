"""One task from its activation to its close: input, processing, commit."""
