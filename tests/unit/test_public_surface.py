"""The public surface is what `kstreams_repl.__all__` lists, no more and no less; each name is documented and can be loaded by itself."""

from __future__ import annotations

import importlib
import inspect
import subprocess
import sys
from pathlib import Path

import pytest

import kstreams_repl

ROOT = Path(__file__).resolve().parents[2]

EXPECTED = [
    "Application", "Branched", "EmitStrategy", "ErrorContext", "FixedKeyProcessor", "FixedKeyRecord",
    "GlobalKTable", "JoinWindows", "KStream",
    "KStreamsError", "KTable", "Materialized", "MockProcessorContext", "Processor", "ProcessorContext", "PunctuationType",
    "Record", "Recording", "Response", "Session", "SessionWindows", "SlidingWindows",
    "StoreBuilder", "StoreKind", "StreamsBuilder", "StreamsConfig", "Suppressed", "TimeWindows", "Topology", "TopologyTestDriver",
    "UnlimitedWindows", "ValueAndTimestamp", "VersionedRecord", "Windowed", "connect", "errors", "serdes",
    "tables", "timestamps",
]  # fmt: skip

SESSION = [
    "admin", "applications", "attach", "bootstrap_servers", "cleanup", "close", "create_topic", "deploy", "detached", "files", "logs",
    "master", "peek", "plan",
    "produce", "read",
    "record", "sample", "serdes_of", "settings", "spark", "spark_frame", "sql", "start", "started", "topics",
]  # fmt: skip
APPLICATION = [
    "bootstrap_servers", "changes", "describe", "edit", "error", "export", "generation", "log", "metrics", "node_rates", "outdated",
    "pause", "peek",
    "picture", "remaining", "reports", "resume", "rollback", "sql", "standing", "start", "status", "stop", "store", "stores", "tail",
    "versions", "wait",
]  # fmt: skip


def test_the_names_are_these() -> None:
    assert sorted(kstreams_repl.__all__) == sorted(EXPECTED)


@pytest.mark.parametrize("name", EXPECTED)
def test_name_is_loaded_on_use_and_documented(name: str) -> None:
    value = getattr(kstreams_repl, name)
    assert inspect.getdoc(value)
    assert name in dir(kstreams_repl)


@pytest.mark.parametrize("name", EXPECTED)
def test_name_can_be_the_first_thing_loaded(name: str) -> None:
    """No order of imports is needed: each name works in a fresh interpreter."""
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


def test_an_unknown_name_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="no attribute 'StreamBuilder'"):
        kstreams_repl.StreamBuilder  # noqa: B018


def test_every_error_is_a_kstreams_error_that_says_when() -> None:
    errors = importlib.import_module("kstreams_repl.errors")
    classes = [value for value in vars(errors).values() if inspect.isclass(value) and issubclass(value, Exception)]
    assert len(classes) > 15
    for cls in classes:
        assert issubclass(cls, errors.KStreamsError)
        assert cls.__doc__
