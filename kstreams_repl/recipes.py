"""Recipes: questions such as "How do I drop duplicate events?", each answered by a notebook of one screen that runs without a broker."""

from kstreams_repl.system.facade import facade

__getattr__, __dir__, __all__ = facade(__name__)
