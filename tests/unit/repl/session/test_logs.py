"""Logs as a table: the last lines, whatever is in them."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace

from kstreams_repl.host.spark.instance_reports import application_report
from kstreams_repl.repl.session.logs import logs_table
from kstreams_repl.system.errors import KStreamsError
from kstreams_repl.system.processes import last_lines


def test_the_last_lines_of_a_log_are_shown_and_those_of_a_missing_one_are_none(tmp_path: Path) -> None:
    log = tmp_path / "server.log"
    log.write_bytes(b"".join(b"line %d\n" % number for number in range(5000)) + b"\xff\xfe\x1b[31mred\n\n")
    assert last_lines(log, 2) == ["line 4999", "\ufffd\ufffd\x1b[31mred"]
    assert last_lines(log, 0) == [] and last_lines(tmp_path / "none", 5) == []


def test_hostile_lines_are_shown_inert(tmp_path: Path) -> None:
    log = tmp_path / "server.log"
    log.write_text("<script>alert(1)</script>\x1b[2J\n")
    table = logs_table([], [("broker", log)], 5)
    assert "\x1b" not in table.text()
    assert "<script>" not in table._repr_mimebundle_()["text/html"]


def test_without_anything_logged_it_says_so(tmp_path: Path) -> None:
    assert logs_table([], [("broker", tmp_path / "none")], 5).note == "nothing was logged"


def test_no_lines_of_a_workers_trace_are_shown_where_none_are_asked_for() -> None:
    """The last 0 lines are none; they were all of them."""
    error = KStreamsError("it failed", worker_trace="one\ntwo\nthree")
    app = SimpleNamespace(name="app", reports=SimpleNamespace(instances={}), restarts=(), error=error)
    assert [line for _, line in logs_table([app], [], 0).rows] == ["it failed"]  # type: ignore[list-item]
    assert [line for _, line in logs_table([app], [], 2).rows] == ["it failed", "two", "three"]  # type: ignore[list-item]


def test_input_that_was_deleted_before_it_was_read_is_named_with_its_number() -> None:
    reports = application_report(1, {0: {"slot": 0, "state": "running", "pid": 1, "at_ms": 1, "skipped": {"in-0": 1234}}})
    app = SimpleNamespace(name="app", reports=reports, restarts=(), error=None)
    (row,) = logs_table([app], [], 5).rows  # type: ignore[list-item]
    assert row == ("app, instance 0", "1,234 offsets of in-0 were deleted before they were read, by the topic's retention or by hand")


def test_objects_that_are_shared_because_they_cannot_be_copied_are_named_with_their_node() -> None:
    reports = application_report(1, {0: {"slot": 0, "state": "running", "pid": 1, "at_ms": 1, "uncopied": [["score", "generator"]]}})
    app = SimpleNamespace(name="app", reports=reports, restarts=(), error=None)
    (row,) = logs_table([app], [], 5).rows  # type: ignore[list-item]
    assert row == ("app, node score", "values of type generator cannot be copied while they wait: change none of them in place")
