"""Kafka Streams topologies in Python: built cell by cell, run on Spark, inspected with DuckDB.

    import kstreams_repl as ks
    session = ks.connect()                                   # an embedded broker, local Spark
    builder = ks.StreamsBuilder()
    builder.stream("words", value_serde=ks.serdes.string).group_by_key().count(store="counts")
    app = session.deploy(builder, "word-count")
    session.sql("SELECT * FROM counts")

Names are imported on first use; importing the package starts nothing. Names that are not in `__all__` are internal.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from kstreams_repl import serving as queries
    from kstreams_repl.engine import serdes
    from kstreams_repl.engine.config import StreamsConfig
    from kstreams_repl.engine.dsl import (
        Branched,
        BranchedKStream,
        CogroupedKStream,
        EmitStrategy,
        GlobalKTable,
        JoinWindows,
        KGroupedStream,
        KGroupedTable,
        KStream,
        KTable,
        Materialized,
        SessionWindowedCogroupedKStream,
        SessionWindowedKStream,
        SessionWindows,
        SlidingWindowedKStream,
        SlidingWindows,
        Stores,
        StreamsBuilder,
        Suppressed,
        TimeWindowedCogroupedKStream,
        TimeWindowedKStream,
        TimeWindows,
        UnlimitedWindows,
        timestamps,
    )
    from kstreams_repl.engine.dsl.graph.call_log import Problem
    from kstreams_repl.engine.metrics.custom import CustomSensor, StreamsMetrics
    from kstreams_repl.engine.metrics.snapshot import Metric
    from kstreams_repl.engine.operators.streams.async_options import AsyncOptions
    from kstreams_repl.engine.processor import (
        Cancellable,
        FixedKeyProcessor,
        FixedKeyProcessorContext,
        FixedKeyRecord,
        ProcessingContext,
        Processor,
        ProcessorContext,
        PunctuationType,
        Record,
    )
    from kstreams_repl.engine.processor.current_call import CallContext, current_call, current_calls
    from kstreams_repl.engine.runtime.nodes.handlers import ErrorContext, Response
    from kstreams_repl.engine.runtime.nodes.node_counts import NodeCount
    from kstreams_repl.engine.serdes import Serde
    from kstreams_repl.engine.topology import Node, Subtopology, TopologyDescription
    from kstreams_repl.engine.topology.describe import DescribedNode, DescribedSubtopology
    from kstreams_repl.engine.topology.offset_reset import AutoOffsetReset
    from kstreams_repl.engine.topology.stores import StoreBuilder, StoreKind
    from kstreams_repl.engine.topology.topology import Topology
    from kstreams_repl.host.instance.metadata import HostInfo, KeyQueryMetadata, LagInfo, StreamsMetadata
    from kstreams_repl.host.instance.reports.run_progress import RunProgress
    from kstreams_repl.host.kafka.admin import Admin, TopicDescription
    from kstreams_repl.host.kafka.clients import ClientSettings
    from kstreams_repl.host.kafka.group_admin import CommittedOffset
    from kstreams_repl.host.spark.instance_reports import ApplicationReport, InstanceReport, TaskReport
    from kstreams_repl.pictures.chart import Chart, ChartKind
    from kstreams_repl.pictures.diff_text import DiffText
    from kstreams_repl.pictures.markup import Markup
    from kstreams_repl.pictures.picture import Picture
    from kstreams_repl.pictures.retries import Retries, RetryReport, WaitingRecord
    from kstreams_repl.pictures.table import Table
    from kstreams_repl.repl.inspection.result import SqlResult
    from kstreams_repl.repl.session import Application, Session, connect
    from kstreams_repl.repl.session.application.batch_report import BatchReport, PartitionRange, WrittenTable
    from kstreams_repl.repl.session.application.edit import EditPlan
    from kstreams_repl.repl.session.application.listeners import Listeners, UncaughtResponse
    from kstreams_repl.repl.session.application.query_view import QueryServer
    from kstreams_repl.repl.session.application.savepoints import Savepoint
    from kstreams_repl.repl.session.application.state import ApplicationState
    from kstreams_repl.repl.session.application.versions import Version
    from kstreams_repl.repl.session.applications import Applications
    from kstreams_repl.repl.session.cleanup import Cleanup
    from kstreams_repl.repl.session.left_applications import LeftApplication
    from kstreams_repl.repl.session.reset import Reset
    from kstreams_repl.repl.session.session_file import Saved, SavedVersion, SessionFiles
    from kstreams_repl.repl.session.source.source_slice import Program
    from kstreams_repl.repl.session.topics.records import ReadRecord, Records
    from kstreams_repl.repl.session.views.metrics_view import MetricsView
    from kstreams_repl.repl.session.views.record_counts import Counts, NodeRate
    from kstreams_repl.repl.session.views.sample import NodeSample, Sample
    from kstreams_repl.repl.session.views.store_view import StoreView
    from kstreams_repl.serving.position import Position, PositionBound
    from kstreams_repl.serving.query_types import (
        KeyQuery,
        KeysQuery,
        MultiVersionedKeyQuery,
        Query,
        RangeQuery,
        ResultOrder,
        TimestampedKeyQuery,
        TimestampedRangeQuery,
        VersionedKeyQuery,
        VersionedRangeQuery,
        WindowKeyQuery,
        WindowRangeQuery,
    )
    from kstreams_repl.serving.state_query import FailureReason, QueryResult, StateQueryRequest, StateQueryResult
    from kstreams_repl.serving.store_types import QueryableStoreType, QueryableStoreTypes, StoreQueryParameters
    from kstreams_repl.system import errors
    from kstreams_repl.system.errors import KStreamsError
    from kstreams_repl.system.secrets import SecretReference, secret
    from kstreams_repl.system.types import (
        AggregationWithHeaders,
        RecordMetadata,
        TaskId,
        TopicPartition,
        ValueAndTimestamp,
        ValueTimestampHeaders,
        VersionedRecord,
        Windowed,
    )
    from kstreams_repl.test_driver import tables
    from kstreams_repl.test_driver.driver import ProducedRecord, TestInputTopic, TestOutputTopic, TestRecord, TopologyTestDriver
    from kstreams_repl.test_driver.mock_context import CapturedForward, CapturedPunctuator, MockProcessorContext
    from kstreams_repl.test_driver.recording import RecordedRecord, Recording

__version__ = "0.1.0"

__all__ = [
    "Admin", "AggregationWithHeaders",
    "Application", "ApplicationReport", "ApplicationState", "Applications", "AsyncOptions", "AutoOffsetReset",
    "BatchReport", "Branched", "BranchedKStream", "CallContext", "Cancellable", "CapturedForward", "CapturedPunctuator",
    "Chart", "ChartKind", "Cleanup", "ClientSettings", "CogroupedKStream", "CommittedOffset", "Counts", "CustomSensor",
    "DescribedNode", "DescribedSubtopology", "DiffText", "EditPlan", "EmitStrategy", "ErrorContext", "FailureReason",
    "FixedKeyProcessor", "FixedKeyProcessorContext", "FixedKeyRecord", "GlobalKTable", "HostInfo", "InstanceReport",
    "JoinWindows", "KGroupedStream", "KGroupedTable", "KStream", "KStreamsError", "KTable", "KeyQuery", "KeyQueryMetadata",
    "KeysQuery", "LagInfo", "LeftApplication", "Listeners", "Markup", "Materialized", "Metric", "MetricsView",
    "MockProcessorContext", "MultiVersionedKeyQuery", "Node", "NodeCount", "NodeRate", "NodeSample", "PartitionRange",
    "Picture", "Position", "PositionBound", "Problem", "ProcessingContext", "Processor", "ProcessorContext", "ProducedRecord",
    "Program", "PunctuationType", "Query", "QueryResult", "QueryServer", "QueryableStoreType", "QueryableStoreTypes",
    "RangeQuery", "ReadRecord", "Record", "RecordMetadata", "RecordedRecord", "Recording", "Records", "Reset", "Response",
    "ResultOrder", "Retries", "RetryReport", "RunProgress", "Sample", "Saved", "SavedVersion", "Savepoint", "SecretReference", "Serde",
    "Session", "SessionFiles", "SessionWindowedCogroupedKStream", "SessionWindowedKStream", "SessionWindows", "SlidingWindowedKStream",
    "SlidingWindows", "SqlResult", "StateQueryRequest", "StateQueryResult", "StoreBuilder", "StoreKind", "StoreQueryParameters",
    "StoreView", "Stores", "StreamsBuilder", "StreamsConfig", "StreamsMetadata", "StreamsMetrics", "Subtopology", "Suppressed",
    "Table", "TaskId", "TaskReport", "TestInputTopic", "TestOutputTopic", "TestRecord", "TimeWindowedCogroupedKStream",
    "TimeWindowedKStream", "TimeWindows", "TimestampedKeyQuery", "TimestampedRangeQuery", "TopicDescription", "TopicPartition",
    "Topology", "TopologyDescription", "TopologyTestDriver", "UncaughtResponse", "UnlimitedWindows", "ValueAndTimestamp",
    "ValueTimestampHeaders",
    "Version", "VersionedKeyQuery", "VersionedRangeQuery", "VersionedRecord", "WaitingRecord", "WindowKeyQuery", "WindowRangeQuery",
    "Windowed", "WrittenTable", "connect", "current_call", "current_calls", "errors", "queries", "secret", "serdes", "tables",
    "timestamps",
]  # fmt: skip

_PLACES = {
    "kstreams_repl.host.batch.completion": ("RunProgress",),
    "kstreams_repl.engine.config": ("StreamsConfig",),
    "kstreams_repl.pictures.chart": ("Chart", "ChartKind"),
    "kstreams_repl.pictures.diff_text": ("DiffText",),
    "kstreams_repl.pictures.markup": ("Markup",),
    "kstreams_repl.pictures.picture": ("Picture",),
    "kstreams_repl.pictures.retries": ("Retries", "RetryReport", "WaitingRecord"),
    "kstreams_repl.pictures.table": ("Table",),
    "kstreams_repl.engine.dsl": (
        "Branched", "BranchedKStream", "CogroupedKStream", "EmitStrategy", "GlobalKTable", "JoinWindows", "KGroupedStream",
        "KGroupedTable", "KStream", "KTable", "Materialized", "SessionWindowedCogroupedKStream", "SessionWindowedKStream",
        "SessionWindows", "SlidingWindowedKStream", "SlidingWindows", "Stores", "StreamsBuilder", "Suppressed",
        "TimeWindowedCogroupedKStream", "TimeWindowedKStream", "TimeWindows", "UnlimitedWindows",
    ),
    "kstreams_repl.engine.dsl.graph.call_log": ("Problem",),
    "kstreams_repl.system.errors": ("KStreamsError",),
    "kstreams_repl.repl.inspection.result": ("SqlResult",),
    "kstreams_repl.host.kafka.admin": ("Admin", "TopicDescription"),
    "kstreams_repl.host.kafka.group_admin": ("CommittedOffset",),
    "kstreams_repl.host.kafka.clients": ("ClientSettings",),
    "kstreams_repl.system.secrets": ("SecretReference", "secret"),
    "kstreams_repl.engine.metrics.custom": ("CustomSensor", "StreamsMetrics"),
    "kstreams_repl.engine.metrics.snapshot": ("Metric",),
    "kstreams_repl.engine.operators.streams.async_options": ("AsyncOptions",),
    "kstreams_repl.engine.processor": (
        "Cancellable", "FixedKeyProcessor", "FixedKeyProcessorContext", "FixedKeyRecord", "ProcessingContext", "Processor",
        "ProcessorContext", "PunctuationType", "Record",
    ),
    "kstreams_repl.host.instance.metadata": ("HostInfo", "KeyQueryMetadata", "LagInfo", "StreamsMetadata"),
    "kstreams_repl.serving.position": ("Position", "PositionBound",),
    "kstreams_repl.serving.query_types": (
        "KeyQuery", "KeysQuery", "MultiVersionedKeyQuery", "Query", "RangeQuery", "ResultOrder",
        "TimestampedKeyQuery", "TimestampedRangeQuery", "VersionedKeyQuery", "VersionedRangeQuery", "WindowKeyQuery", "WindowRangeQuery",
    ),
    "kstreams_repl.serving.state_query": ("FailureReason", "QueryResult", "StateQueryRequest", "StateQueryResult",),
    "kstreams_repl.serving.store_types": ("QueryableStoreType", "QueryableStoreTypes", "StoreQueryParameters",),
    "kstreams_repl.engine.processor.current_call": ("CallContext", "current_call", "current_calls"),
    "kstreams_repl.engine.runtime.nodes.handlers": ("ErrorContext", "Response"),
    "kstreams_repl.engine.runtime.nodes.node_counts": ("NodeCount",),
    "kstreams_repl.engine.serdes": ("Serde",),
    "kstreams_repl.repl.session": ("Application", "Session", "connect"),
    "kstreams_repl.repl.session.application.batch_report": ("BatchReport", "PartitionRange", "WrittenTable"),
    "kstreams_repl.repl.session.application.edit": ("EditPlan",),
    "kstreams_repl.repl.session.application.listeners": ("Listeners", "UncaughtResponse"),
    "kstreams_repl.repl.session.application.query_view": ("QueryServer",),
    "kstreams_repl.repl.session.application.savepoints": ("Savepoint",),
    "kstreams_repl.repl.session.application.state": ("ApplicationState",),
    "kstreams_repl.repl.session.application.versions": ("Version",),
    "kstreams_repl.repl.session.applications": ("Applications",),
    "kstreams_repl.repl.session.cleanup": ("Cleanup",),
    "kstreams_repl.repl.session.left_applications": ("LeftApplication",),
    "kstreams_repl.repl.session.reset": ("Reset",),
    "kstreams_repl.repl.session.session_file": ("Saved", "SavedVersion", "SessionFiles"),
    "kstreams_repl.repl.session.source.source_slice": ("Program",),
    "kstreams_repl.repl.session.topics.records": ("ReadRecord", "Records"),
    "kstreams_repl.repl.session.views.metrics_view": ("MetricsView",),
    "kstreams_repl.repl.session.views.record_counts": ("Counts", "NodeRate"),
    "kstreams_repl.repl.session.views.sample": ("NodeSample", "Sample"),
    "kstreams_repl.repl.session.views.store_view": ("StoreView",),
    "kstreams_repl.host.spark.instance_reports": ("ApplicationReport", "InstanceReport", "TaskReport"),
    "kstreams_repl.test_driver.driver": ("ProducedRecord", "TestInputTopic", "TestOutputTopic", "TestRecord", "TopologyTestDriver"),
    "kstreams_repl.test_driver.mock_context": ("CapturedForward", "CapturedPunctuator", "MockProcessorContext"),
    "kstreams_repl.test_driver.recording": ("RecordedRecord", "Recording"),
    "kstreams_repl.engine.topology": ("Node", "Subtopology", "TopologyDescription"),
    "kstreams_repl.engine.topology.describe": ("DescribedNode", "DescribedSubtopology"),
    "kstreams_repl.engine.topology.offset_reset": ("AutoOffsetReset",),
    "kstreams_repl.engine.topology.stores": ("StoreBuilder", "StoreKind"),
    "kstreams_repl.engine.topology.topology": ("Topology",),
    "kstreams_repl.system.types": (
        "AggregationWithHeaders", "RecordMetadata", "TaskId", "TopicPartition", "ValueAndTimestamp",
    "ValueTimestampHeaders",
        "VersionedRecord", "Windowed",
    ),
}  # fmt: skip
_PLACE_OF = {name: place for place, names in _PLACES.items() for name in names}
_MODULES = {
    "errors": "system.errors", "queries": "serving", "serdes": "engine.serdes", "tables": "testing.tables",
    "timestamps": "engine.dsl.timestamps",
}  # fmt: skip
_SHOWN = frozenset({"GlobalKTable", "KStream", "KTable", "StreamsBuilder", "Topology"})


def __getattr__(name: str) -> Any:
    if name in _MODULES:
        return importlib.import_module(f"{__name__}.{_MODULES[name]}")
    place = _PLACE_OF.get(name)
    if place is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    with importlib.import_module(f"{__name__}.system.extras").extras():  # for example DuckDB for the session
        value = getattr(importlib.import_module(place), name)
    if name in _SHOWN:
        importlib.import_module(f"{__name__}.pictures.objects").install()
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})


def load_ipython_extension(ipython: Any) -> None:
    """``%load_ext kstreams_repl``: magics, completion, short errors, pictures. Loading twice does nothing."""
    with importlib.import_module(f"{__name__}.system.extras").extras():
        importlib.import_module("kernel_ext").load_ipython_extension(ipython)


def unload_ipython_extension(ipython: Any) -> None:
    """``%unload_ext kstreams_repl``: removes what loading added; sessions and applications keep running."""
    importlib.import_module("kernel_ext").unload_ipython_extension(ipython)
