"""Types that the DSL, the Processor API and handlers hand to a program, which names them only in type hints and in tests."""

from kstreams_repl.system.facade import facade

__getattr__, __dir__, __all__ = facade(__name__)
