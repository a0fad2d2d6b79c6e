"""Test tools: the topology test driver, a context for a processor alone, record tables, recordings, a small Spark cluster."""

from kstreams_repl.system.facade import facade

__getattr__, __dir__, __all__ = facade(__name__)
