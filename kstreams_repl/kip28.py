"""KIP-28's original names: `TopologyBuilder`, `ProcessorDef`, `KStreamBuilder`, windowed streams with `join` and `join_prior`."""

from kstreams_repl.system.facade import facade

__getattr__, __dir__, __all__ = facade(__name__)
