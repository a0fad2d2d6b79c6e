"""Queries of the state of running applications: local stores, discovery of other hosts, interactive queries v2, clients of a server."""

from kstreams_repl.system.facade import facade

__getattr__, __dir__, __all__ = facade(__name__)
