"""The DSL's graph: built by calls, optimised, written to a topology."""
