"""Kafka Streams topologies in Python: built cell by cell, run on Spark, inspected with DuckDB.

    import kstreams_repl as ks
    session = ks.connect()                                   # an embedded broker, local Spark
    builder = ks.StreamsBuilder()
    builder.stream("words", value_serde=ks.serdes.string).group_by_key().count(store="counts")
    app = session.deploy(builder, "word-count")
    session.sql("SELECT * FROM counts")

Here is what a program types while it builds and runs a topology. The rest of the public names are in `ks.testing` (the test driver),
`ks.queries` (state of running applications), `ks.reports` (what sessions and applications answer with), `ks.types` (for type hints),
`ks.recipes` (answered questions, as notebooks) and `ks.kip28` (KIP-28's original names); every other module is internal. Names are
imported on first use; importing the package starts nothing.
"""

from __future__ import annotations

import importlib
from typing import Any

from kstreams_repl.system.extras import extras
from kstreams_repl.system.facade import facade

__version__ = "0.1.0"

_load, __dir__, __all__ = facade(__name__)
_SHOWN = frozenset({"GlobalKTable", "KStream", "KTable", "StreamsBuilder", "Topology"})


def __getattr__(name: str) -> Any:
    value = _load(name)
    if name in _SHOWN:
        importlib.import_module(f"{__name__}.pictures.graph.objects").install()
    return value


def load_ipython_extension(ipython: object) -> None:
    """``%load_ext kstreams_repl``: magics, completion, short errors, pictures. Loading twice does nothing."""
    with extras():
        importlib.import_module("kernel_ext").load_ipython_extension(ipython)


def unload_ipython_extension(ipython: object) -> None:
    """``%unload_ext kstreams_repl``: removes what loading added; sessions and applications keep running."""
    importlib.import_module("kernel_ext").unload_ipython_extension(ipython)
