"""Kafka Streams' topologies in Python: built cell by cell, run inside Spark, looked into with DuckDB.

    import kstreams_repl as ks
    session = ks.connect()                                   # an embedded broker, local Spark
    builder = ks.StreamsBuilder()
    builder.stream("words", value_serde=ks.serdes.string).group_by_key().count(store="counts")
    app = session.deploy(builder, "word-count")
    session.sql("SELECT * FROM counts")

Names are loaded when they are used; importing the package starts nothing. What is not listed in `__all__` is internal.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from kstreams_repl import errors, serdes
    from kstreams_repl.config import StreamsConfig
    from kstreams_repl.dsl import (
        Branched,
        EmitStrategy,
        GlobalKTable,
        JoinWindows,
        KStream,
        KTable,
        Materialized,
        SessionWindows,
        SlidingWindows,
        StreamsBuilder,
        Suppressed,
        TimeWindows,
        UnlimitedWindows,
        timestamps,
    )
    from kstreams_repl.errors import KStreamsError
    from kstreams_repl.processor import FixedKeyProcessor, FixedKeyRecord, Processor, ProcessorContext, PunctuationType, Record
    from kstreams_repl.runtime.handlers import ErrorContext, Response
    from kstreams_repl.session import Application, Session, connect
    from kstreams_repl.testing import tables
    from kstreams_repl.testing.driver import TopologyTestDriver
    from kstreams_repl.testing.mock_context import MockProcessorContext
    from kstreams_repl.testing.recording import Recording
    from kstreams_repl.topology.stores import StoreBuilder, StoreKind
    from kstreams_repl.topology.topology import Topology
    from kstreams_repl.types import ValueAndTimestamp, VersionedRecord, Windowed

__version__ = "0.1.0"

__all__ = [
    "Application",
    "Branched",
    "EmitStrategy",
    "ErrorContext",
    "FixedKeyProcessor",
    "FixedKeyRecord",
    "GlobalKTable",
    "JoinWindows",
    "KStream",
    "KStreamsError",
    "KTable",
    "Materialized",
    "MockProcessorContext",
    "Processor",
    "ProcessorContext",
    "PunctuationType",
    "Record",
    "Recording",
    "Response",
    "Session",
    "SessionWindows",
    "SlidingWindows",
    "StoreBuilder",
    "StoreKind",
    "StreamsBuilder",
    "StreamsConfig",
    "Suppressed",
    "TimeWindows",
    "Topology",
    "TopologyTestDriver",
    "UnlimitedWindows",
    "ValueAndTimestamp",
    "VersionedRecord",
    "Windowed",
    "connect",
    "errors",
    "serdes",
    "tables",
    "timestamps",
]

_PLACES = {
    "kstreams_repl.config": ("StreamsConfig",),
    "kstreams_repl.dsl": (
        "Branched", "EmitStrategy", "GlobalKTable", "JoinWindows", "KStream", "KTable", "Materialized", "SessionWindows", "SlidingWindows",
        "StreamsBuilder", "Suppressed", "TimeWindows", "UnlimitedWindows",
    ),
    "kstreams_repl.errors": ("KStreamsError",),
    "kstreams_repl.processor": ("FixedKeyProcessor", "FixedKeyRecord", "Processor", "ProcessorContext", "PunctuationType", "Record"),
    "kstreams_repl.runtime.handlers": ("ErrorContext", "Response"),
    "kstreams_repl.session": ("Application", "Session", "connect"),
    "kstreams_repl.testing.driver": ("TopologyTestDriver",),
    "kstreams_repl.testing.recording": ("Recording",),
    "kstreams_repl.testing.mock_context": ("MockProcessorContext",),
    "kstreams_repl.topology.stores": ("StoreBuilder", "StoreKind"),
    "kstreams_repl.topology.topology": ("Topology",),
    "kstreams_repl.types": ("ValueAndTimestamp", "VersionedRecord", "Windowed"),
}  # fmt: skip
_PLACE_OF = {name: place for place, names in _PLACES.items() for name in names}
_MODULES = {"errors": "errors", "serdes": "serdes", "tables": "testing.tables", "timestamps": "dsl.timestamps"}
_SHOWN = frozenset({"GlobalKTable", "KStream", "KTable", "StreamsBuilder", "Topology"})
_WITH_EXAMPLES = frozenset({"MockProcessorContext", "ProcessorContext", "Topology", "TopologyTestDriver"})


def __getattr__(name: str) -> Any:
    if name in _MODULES:
        return importlib.import_module(f"{__name__}.{_MODULES[name]}")
    place = _PLACE_OF.get(name)
    if place is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    with importlib.import_module(f"{__name__}.extras").extras():  # the session needs DuckDB, say
        value = getattr(importlib.import_module(place), name)
    if name in _SHOWN:
        importlib.import_module(f"{__name__}.display.objects").install()
    if name in _WITH_EXAMPLES:
        importlib.import_module(f"{__name__}.testing.examples").install(value)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})


def load_ipython_extension(ipython: Any) -> None:
    """``%load_ext kstreams_repl``: magics, completion, short errors, pictures. Loading twice does nothing."""
    with importlib.import_module(f"{__name__}.extras").extras():
        importlib.import_module("kernel_ext").load_ipython_extension(ipython)


def unload_ipython_extension(ipython: Any) -> None:
    """``%unload_ext kstreams_repl``: takes away what loading added; sessions and applications stay."""
    importlib.import_module("kernel_ext").unload_ipython_extension(ipython)
