"""Sources, sinks and what is said of nodes: handlers, counts, errors of user code."""
