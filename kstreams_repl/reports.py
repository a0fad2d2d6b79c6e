"""What sessions and applications answer with: plans, reports, samples, pictures, tables of rows."""

from kstreams_repl.system.facade import facade

__getattr__, __dir__, __all__ = facade(__name__)
