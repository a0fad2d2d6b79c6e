"""The public surface is what `kstreams_repl.__all__` lists, no more and no less; each name is documented and can be loaded by itself."""

from __future__ import annotations

import importlib
import inspect
import subprocess
import sys
from pathlib import Path

import pytest

import kstreams_repl
from tests.unit.public_api import classes, handed_out

ROOT = Path(__file__).resolve().parents[2]

EXPECTED = [
    "Admin", "AggregationWithHeaders",
    "Application", "ApplicationReport", "ApplicationState", "Applications", "AsyncOptions", "AutoOffsetReset",
    "BatchReport", "Branched", "BranchedKStream", "CallContext", "Cancellable", "CapturedForward", "CapturedPunctuator",
    "Chart", "ChartKind", "Cleanup", "ClientSettings", "CogroupedKStream", "CommittedOffset", "Counts", "CustomSensor",
    "DescribedNode", "DescribedSubtopology", "DiffText", "EditPlan", "EmitStrategy", "ErrorContext", "FailureReason",
    "FixedKeyProcessor", "FixedKeyProcessorContext", "FixedKeyRecord", "GlobalKTable", "HostInfo", "InstanceReport",
    "JoinWindows",
    "KGroupedStream", "KGroupedTable", "KStream", "KStreamsError", "KTable", "KeyQuery", "KeyQueryMetadata", "KeysQuery",
    "LagInfo", "LeftApplication",
    "Listeners", "Markup", "Materialized", "Metric", "MetricsView", "MockProcessorContext", "MultiVersionedKeyQuery", "Node",
    "NodeCount", "NodeRate", "NodeSample", "PartitionRange", "Picture", "Position", "PositionBound", "Problem",
    "ProcessingContext", "Processor", "ProcessorContext", "ProducedRecord", "Program", "PunctuationType", "Query",
    "QueryResult", "QueryServer", "QueryableStoreType", "QueryableStoreTypes", "RangeQuery", "ReadRecord", "Record",
    "RecordMetadata",
    "RecordedRecord", "Recording", "Records", "Reset", "Response", "ResultOrder", "Retries", "RetryReport", "RunProgress", "Sample",
    "Saved", "SavedVersion", "Savepoint", "SecretReference", "Serde", "Session", "SessionFiles", "SessionWindowedCogroupedKStream",
    "SessionWindowedKStream", "SessionWindows", "SlidingWindowedKStream", "SlidingWindows", "SqlResult", "StateQueryRequest",
    "StateQueryResult", "StoreBuilder", "StoreKind", "StoreQueryParameters", "StoreView", "Stores", "StreamsBuilder",
    "StreamsMetadata",
    "StreamsConfig", "StreamsMetrics", "Subtopology", "Suppressed", "Table", "TaskId", "TaskReport", "TestInputTopic",
    "TestOutputTopic", "TestRecord", "TimeWindowedCogroupedKStream", "TimeWindowedKStream", "TimeWindows",
    "TimestampedKeyQuery", "TimestampedRangeQuery", "TopicDescription", "TopicPartition", "Topology", "TopologyDescription",
    "TopologyTestDriver", "UncaughtResponse", "UnlimitedWindows", "ValueAndTimestamp", "ValueTimestampHeaders",
    "Version", "VersionedKeyQuery",
    "VersionedRangeQuery", "VersionedRecord", "WaitingRecord", "WindowKeyQuery", "WindowRangeQuery", "Windowed", "WrittenTable",
    "connect", "current_call",
    "current_calls", "errors", "queries", "secret", "serdes", "tables", "timestamps",
]  # fmt: skip

SESSION = [
    "admin", "applications", "attach", "bootstrap_servers", "cleanup", "close", "closed", "create_topic", "delete_topic", "deploy",
    "detached",
    "files", "logs", "master", "peek", "plan", "produce", "produce_table", "read", "record", "reset", "run_batch", "sample", "savepoints",
    "schema", "serdes_of", "settings", "spark", "spark_frame", "sql", "start", "started", "topics", "variables",
]  # fmt: skip
APPLICATION = [
    "abandon", "all_local_store_partition_lags", "apply", "batch_progress", "batch_report", "bootstrap_servers", "changes",
    "counts", "current", "describe", "edit", "error", "export", "failed_record", "generation", "listen", "log",
    "metadata_for_all_clients", "metrics", "node_rates", "outdated", "pause", "peek", "picture", "query",
    "query_metadata_for_key", "query_token_path", "remaining", "reports", "restarts", "resume", "retries", "rollback", "savepoint",
    "serve", "skip", "sql", "standing", "start", "status", "stop", "store", "stores", "streams_metadata_for_store", "tail",
    "versions", "wait",
]  # fmt: skip


def test_the_names_are_these() -> None:
    assert sorted(kstreams_repl.__all__) == sorted(EXPECTED)


@pytest.mark.parametrize("name", EXPECTED)
def test_name_is_loaded_on_use_and_documented(name: str) -> None:
    value = getattr(kstreams_repl, name)
    assert inspect.getdoc(value)
    assert name in dir(kstreams_repl)


FIRST_OF_ITS_PACKAGE = sorted({".".join(place.split(".")[1:3]): name for name, place in kstreams_repl._PLACE_OF.items()}.values())


@pytest.mark.parametrize("name", FIRST_OF_ITS_PACKAGE)
def test_name_can_be_the_first_thing_loaded(name: str) -> None:
    """No order of imports is needed: any name can be the first in a fresh interpreter. One of each package, because no modules import
    each other in a circle (`test_architecture.py`)."""
    done = subprocess.run([sys.executable, "-c", f"from kstreams_repl import {name}"], cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize(("cls", "wanted"), [("Session", SESSION), ("Application", APPLICATION)])
def test_methods_are_these_and_documented(cls: str, wanted: list[str]) -> None:
    found = getattr(kstreams_repl, cls)
    members = {name: member for name, member in inspect.getmembers(found) if not name.startswith("_")}
    assert sorted(members) == sorted(wanted)
    for name, member in members.items():
        target = member.fget if isinstance(member, property) else getattr(member, "func", member)
        assert inspect.getdoc(target) or name in ("bootstrap_servers",), name


def test_what_a_public_function_returns_can_be_imported() -> None:
    known = {*kstreams_repl.__all__, *importlib.import_module("kstreams_repl.engine.dsl.kip28").__all__}
    assert {name: where for name, where in handed_out().items() if name not in known} == {}


def test_what_shows_a_table_gives_its_rows_to_pandas_polars_and_arrow() -> None:
    tabular = {name: cls for name, cls in classes().items() if hasattr(cls, "table") and not name.endswith("Builder")}
    assert {"Table", "Records", "SqlResult", "EditPlan", "MetricsView", "Recording", "Counts"} <= set(tabular)
    for name, cls in {**tabular, "StoreView": kstreams_repl.StoreView}.items():
        assert [way for way in ("df", "pl", "arrow") if not callable(getattr(cls, way, None))] == [], name


def test_the_rows_are_the_same_on_every_way_out() -> None:
    record = kstreams_repl.RecordedRecord("t", 0, 7, 1000, b"a", None, [("h", b"1")])
    counts = kstreams_repl.Counts({"n": kstreams_repl.NodeRate(3, 2)})
    for result in (kstreams_repl.Table.of(("a", "b"), [(1, "x"), (None, 2)]), kstreams_repl.Recording([record], {"t": 1}), counts):
        rows = [tuple(row.values()) for row in result.arrow().to_pylist()]
        assert len(rows) == len(result.table()) and result.pl().rows() == rows
        assert list(result.df().columns) == list(result.table().columns) and len(result.df()) == len(rows)


def test_an_unknown_name_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="no attribute 'StreamBuilder'"):
        kstreams_repl.StreamBuilder  # noqa: B018


def test_every_error_is_a_kstreams_error_that_says_when() -> None:
    errors = importlib.import_module("kstreams_repl.system.errors")
    classes = [value for value in vars(errors).values() if inspect.isclass(value) and issubclass(value, Exception)]
    assert len(classes) > 15
    for cls in classes:
        assert issubclass(cls, errors.KStreamsError | UserWarning)
        assert cls.__doc__
