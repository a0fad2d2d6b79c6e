"""Old names of arguments go on for one release, with a DeprecationWarning at the caller's line; the new ones do the same."""

from __future__ import annotations

import argparse
import inspect
from pathlib import Path

import pytest

import kstreams_repl as ks
from kernel_ext.arguments import old_names
from kstreams_repl.errors import CallError
from kstreams_repl.session.session_directory import SessionDirectory
from tests.unit.public_api import functions, renamed_arguments

OLD = {
    "Application.peek": {"seconds": "timeout"},
    "Application.sql": {"records": "topic_limit", "rows": "store_limit", "since": "start", "until": "end"},
    "Application.tail": {"seconds": "timeout"},
    "Application.wait": {"seconds": "timeout"},
    "Materialized": {"history_ms": "history", "retention_ms": "retention"},
    "Session.cleanup": {"confirm": "dry_run"},
    "Session.peek": {"seconds": "timeout"},
    "Session.record": {"seconds": "timeout"},
    "Session.sample": {"seconds": "timeout"},
    "Session.spark_frame": {"records": "topic_limit", "since": "start", "until": "end"},
    "Session.sql": {"records": "topic_limit", "rows": "store_limit", "since": "start", "until": "end"},
    "StoreView.rows": {"rows": "store_limit"},
}


def test_the_old_names_are_these_and_no_function_has_one_of_them_as_its_own() -> None:
    assert renamed_arguments() == OLD
    old = {"seconds", "since", "until", "confirm", "retention_ms", "history_ms"}
    own = [name for name, function in functions().items() if old & set(inspect.signature(function).parameters) and name not in ALLOWED]
    assert own == []


ALLOWED = {
    "Application.wait": "until= is a condition there",
    "Admin.__init__": "of every call, set once",
    "BatchReport.__init__": "seconds is a duration that was measured",
    "StoreBuilder.__init__": "a description with the figures that the engine reads; `Stores` makes one of ms or timedeltas",
}


def test_an_old_name_does_what_the_new_one_does_and_warns_where_it_is_written() -> None:
    with pytest.warns(DeprecationWarning, match=r"Materialized\(retention_ms=\) is now Materialized\(retention=\)") as told:
        kept = ks.Materialized("counts", retention_ms=5)  # type: ignore[call-arg]
    assert kept == ks.Materialized("counts", retention=5) and kept.retention_ms == 5
    assert told[0].filename == __file__


def test_a_method_of_a_session_takes_the_old_name_before_it_looks_at_names(tmp_path: Path) -> None:
    session = ks.Session(None, directory=SessionDirectory(tmp_path))
    session.close()
    gone = pytest.raises(ks.KStreamsError)
    with pytest.warns(DeprecationWarning, match=r"cleanup\(confirm=\) is now cleanup\(dry_run=False\)") as told, gone:
        session.cleanup("app", confirm=True)  # type: ignore[call-arg]
    assert told[0].filename == __file__
    with pytest.raises(CallError, match="both confirm= and dry_run="):
        session.cleanup("app", confirm=True, dry_run=True)  # type: ignore[call-arg]
    with pytest.raises(CallError, match="no argument 'secnds'"):
        session.peek("topic", secnds=1)  # type: ignore[call-arg]


def test_an_old_option_of_a_magic_warns() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--start", "--from", dest="start", action=old_names("--from"))
    assert parser.parse_args(["--start", "earliest"]).start == "earliest"
    with pytest.warns(DeprecationWarning, match="--from is now --start"):
        assert parser.parse_args(["--from", "earliest"]).start == "earliest"
