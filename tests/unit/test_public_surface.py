"""The public surface is what the facades list, no more and no less; each name is documented and can be loaded by itself."""

from __future__ import annotations

import importlib
import inspect
import json
import re
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest

import kstreams_repl
from kstreams_repl.system.facade import doors, exports
from tests.unit.public_api import classes, handed_out
from workshop.commands.docs_hooks import api_pages, api_reference

ROOT = Path(__file__).resolve().parents[2]

EXPECTED = {
    "kstreams_repl": """
        Application AsyncOptions AutoOffsetReset Branched ClientSettings EmitStrategy FixedKeyProcessor FixedKeyProcessorContext
        FixedKeyRecord GlobalKTable JoinWindows KGroupedStream KGroupedTable KStream KStreamsError KTable Materialized Processor
        ProcessorContext PunctuationType Record Response Serde Session SessionWindows SlidingWindows StoreBuilder StoreKind Stores
        StreamsBuilder StreamsConfig Suppressed TimeWindows Topology UnlimitedWindows ValueAndTimestamp Windowed connect current_call
        current_calls errors kip28 look queries recipes reports secret serdes testing timestamps types
    """,
    "kstreams_repl.kip28": """
        DefaultPartitionGrouper KStreamBuilder KStreamWindowed PartitionGrouper Processor ProcessorContext ProcessorDef TopologyBuilder
    """,
    "kstreams_repl.queries": """
        AsyncQueryClient FailureReason HostInfo KeyQuery KeyQueryMetadata KeysQuery LagInfo MultiVersionedKeyQuery Position PositionBound
        Query QueryClient QueryResult QueryServer QueryableStoreType QueryableStoreTypes RangeQuery RemoteResult ResultOrder
        StateQueryRequest StateQueryResult StoreQueryParameters StoreView StreamsMetadata
        TimestampedKeyQuery TimestampedKeyWithHeadersQuery TimestampedRangeQuery TimestampedRangeWithHeadersQuery
        TimestampedWindowKeyWithHeadersQuery TimestampedWindowRangeWithHeadersQuery VersionedKeyQuery
        VersionedRangeQuery WindowKeyQuery WindowRangeQuery connect connect_async open_state
    """,
    "kstreams_repl.recipes": "Notebook list open search",
    "kstreams_repl.reports": """
        Admin ApplicationReport ApplicationState Applications BatchReport Cause Causes Chart ChartKind Cleanup
        CommittedOffset ComparedRows Comparison Counts Debugger DescribedNode DescribedSubtopology DiffText EditPlan
        FirstDifference Fork ForkPlan Forks InstanceReport LeftApplication Listeners Look Markup Metric MetricsView
        NodeCount NodeRate NodeSample NodeVisit Noise PartitionRange Picture Problem Program ReadRecord RecordTrace
        Records Reset Retries RetryReport RowDifference RunProgress Sample Saved SavedVersion Savepoint SentRecord
        SessionFiles SqlResult StoreAccess Table TaskReport TopicDescription TopologyDescription TracedRecord
        UncaughtResponse Version Versions WaitingRecord WrittenTable
    """,
    "kstreams_repl.testing": """
        CapturedForward CapturedPunctuator MockProcessorContext ProducedRecord RecordedRecord Recording SavedState StandaloneCluster
        TestInputTopic TestOutputTopic TestRecord TopologyTestDriver compare_topologies outputs_of recording_fixture tables
    """,
    "kstreams_repl.types": """
        AggregationWithHeaders BranchedKStream CallContext Cancellable CogroupedKStream CustomSensor ErrorContext Node ProcessingContext
        RecordMetadata RecordPosition SecretReference SessionWindowedCogroupedKStream SessionWindowedKStream SlidingWindowedKStream
        StreamsMetrics Subtopology TaskId TimeWindowedCogroupedKStream TimeWindowedKStream TopicPartition UserLine ValueTimestampHeaders
        VersionedRecord
    """,
}
"""By facade. At the top stands what a program types; at most 50 names."""

SESSION = [
    "admin", "applications", "attach", "bootstrap_servers", "cleanup", "close", "closed", "create_topic", "delete_topic", "deploy",
    "detached",
    "files", "forks", "logs", "master", "plan", "produce", "produce_table", "read", "record", "reset", "run_batch", "sample", "savepoints",
    "schema", "serdes_of", "settings", "spark", "spark_frame", "sql", "start", "started", "topics", "values", "variables", "versions",
]  # fmt: skip
APPLICATION = [
    "all_local_store_partition_lags", "apply", "batch_progress", "batch_report", "bootstrap_servers", "changes", "compare",
    "config", "counts", "debug", "describe", "diff", "edit", "error", "explain", "export", "failed_record", "fork",
    "generation", "listen", "log",
    "metadata_for_all_clients", "metrics", "name", "node_rates", "pause", "picture", "query",
    "query_metadata_for_key", "query_token_path", "remaining", "reports", "restarts", "resume", "retries", "rollback", "savepoint",
    "serve", "skip", "sql", "standing", "start", "status", "stop", "store", "stores", "streams_metadata_for_store", "tail", "tap",
    "topology", "versions", "wait", "why",
]  # fmt: skip


NAMES = [(door, name) for door, names in EXPECTED.items() for name in names.split()]
DOCS = ROOT / "docs"


def test_the_page_on_versions_names_each_public_module() -> None:
    page = (ROOT / "docs" / "reference" / "stability.md").read_text(encoding="utf-8")
    named = {name for name in re.findall(r"`(\w+)`", page.partition("## The public interface")[2].partition("**Deprecation")[0])}
    modules = {name.rpartition(".")[2] for name in EXPECTED} | {name for name in EXPECTED["kstreams_repl"].split() if name.islower()}
    assert modules - {"connect", "current_call", "current_calls", "look", "secret"} <= named


def test_the_names_are_these() -> None:
    names = {door: sorted(exports(door)) for door in doors("kstreams_repl")}
    assert names == {door: sorted(expected.split()) for door, expected in EXPECTED.items()}
    assert len(kstreams_repl.__all__) <= 51


@pytest.mark.parametrize("door", EXPECTED)
def test_a_facade_offers_what_its_stub_lists_and_its_page_shows(door: str) -> None:
    """The stub is what type checkers know, `__all__` and `dir` are what a program finds, the page is what is documented."""
    loaded = importlib.import_module(door)
    assert sorted(loaded.__all__) == sorted(EXPECTED[door].split()) and set(loaded.__all__) <= set(dir(loaded))
    shown = [path.rpartition(".")[2] for path in re.findall("^::: (.+)$", api_reference(door), re.MULTILINE)]
    own = [name for name in loaded.__all__ if f"{door}.{name}" not in EXPECTED]
    assert sorted(shown) == sorted(own) and (DOCS / api_pages()[door]).is_file()


def test_a_name_has_one_facade() -> None:
    counted = Counter(name for door, name in NAMES if door != "kstreams_repl.kip28")
    assert {name for name, count in counted.items() if count > 1} == {"connect"}, "of a cluster, and of a query server"


@pytest.mark.parametrize(("door", "name"), NAMES)
def test_name_is_loaded_on_use_and_documented(door: str, name: str) -> None:
    assert inspect.getdoc(getattr(importlib.import_module(door), name))


FIRST_OF_ITS_PACKAGE = {
    ".".join(place.split(".")[1:3]): (door, name) for door in EXPECTED for name, place in exports(door).items() if place != door
}


@pytest.mark.parametrize(("door", "name"), FIRST_OF_ITS_PACKAGE.values())
def test_name_can_be_the_first_thing_loaded(door: str, name: str) -> None:
    """No order of imports is needed: any name can be the first in a fresh interpreter. One of each package, because no modules import
    each other in a circle (`test_architecture.py`)."""
    done = subprocess.run([sys.executable, "-c", f"from {door} import {name}"], cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


def code_of_docs() -> dict[str, str]:
    """The text of the pages' code blocks and of the notebooks' code cells."""
    pages = [*DOCS.rglob("*.md"), ROOT / "README.md"]
    texts = {page.name: "".join(re.findall(r"^```python\n(.*?)^```", page.read_text("utf-8"), re.DOTALL | re.MULTILINE)) for page in pages}
    for notebook in (ROOT / "notebooks").glob("*.ipynb"):
        cells = json.loads(notebook.read_text("utf-8"))["cells"]
        texts[notebook.name] = "\n".join("".join(cell["source"]) for cell in cells if cell["cell_type"] == "code")
    return texts


@pytest.mark.parametrize(("page", "text"), code_of_docs().items())
def test_what_the_docs_use_is_exported(page: str, text: str) -> None:
    used = set(re.findall(r"\bks\.(?:(testing|queries|recipes|reports|types|kip28)\.)?(\w+)", text))
    for door, names in re.findall(r"from (kstreams_repl[.\w]*) import ([\w, ]+)", text):
        if page.endswith(".ipynb") and door == "kstreams_repl.demo" and names in ("data", "tutorial"):
            continue  # the records that the notebooks produce, and the tutorial's checks
        assert door in EXPECTED, f"{page} imports from {door}, which is internal"
        used |= {(door.removeprefix("kstreams_repl").removeprefix("."), name.strip()) for name in names.split(",")}
    assert [f"{door}.{name}" for door, name in used if name not in EXPECTED[f"kstreams_repl.{door}".rstrip(".")].split()] == []


@pytest.mark.parametrize(("cls", "wanted"), [("Session", SESSION), ("Application", APPLICATION)])
def test_methods_are_these_and_documented(cls: str, wanted: list[str]) -> None:
    found = getattr(kstreams_repl, cls)
    members = {name: member for name, member in inspect.getmembers(found) if not name.startswith("_")}
    assert sorted(members) == sorted(wanted)
    for name, member in members.items():
        target = member.fget if isinstance(member, property) else getattr(member, "func", member)
        assert inspect.getdoc(target) or name in ("bootstrap_servers",), name


def test_what_a_public_function_returns_can_be_imported() -> None:
    known = {name for _, name in NAMES}
    assert {name: where for name, where in handed_out().items() if name not in known} == {}


def test_what_shows_a_table_gives_its_rows_to_pandas_polars_and_arrow() -> None:
    tabular = {name: cls for name, cls in classes().items() if hasattr(cls, "table") and not name.endswith("Builder")}
    assert {"Table", "Records", "SqlResult", "EditPlan", "MetricsView", "Recording", "Counts"} <= set(tabular)
    for name, cls in {**tabular, "StoreView": kstreams_repl.queries.StoreView}.items():
        assert [way for way in ("df", "pl", "arrow") if not callable(getattr(cls, way, None))] == [], name


def test_the_rows_are_the_same_on_every_way_out() -> None:
    record = kstreams_repl.testing.RecordedRecord("t", 0, 7, 1000, b"a", None, [("h", b"1")])
    counts = kstreams_repl.reports.Counts({"n": kstreams_repl.reports.NodeRate(3, 2)})
    table = kstreams_repl.reports.Table.of(("a", "b"), [(1, "x"), (None, 2)])
    for result in (table, kstreams_repl.testing.Recording([record], {"t": 1}), counts):
        rows = [tuple(row.values()) for row in result.arrow().to_pylist()]
        assert len(rows) == len(result.table()) and result.pl().rows() == rows
        assert list(result.df().columns) == list(result.table().columns) and len(result.df()) == len(rows)


def test_an_unknown_name_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="no attribute 'StreamBuilder'"):
        kstreams_repl.StreamBuilder  # noqa: B018
    with pytest.raises(AttributeError, match="Hint: it is kstreams_repl.queries.KeyQuery"):
        kstreams_repl.KeyQuery  # noqa: B018


def test_every_error_is_a_kstreams_error_that_says_when() -> None:
    errors = importlib.import_module("kstreams_repl.system.errors")
    classes = [value for value in vars(errors).values() if inspect.isclass(value) and issubclass(value, Exception)]
    assert len(classes) > 15
    for cls in classes:
        assert issubclass(cls, errors.KStreamsError | UserWarning)
        assert cls.__doc__
