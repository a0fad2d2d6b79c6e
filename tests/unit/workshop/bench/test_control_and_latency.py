"""What the benchmarks of control and latency count beside the time."""

from __future__ import annotations

import json
from types import SimpleNamespace
from typing import Any

import pytest

from kstreams_repl.host.spark.instance_reports import ApplicationReport, InstanceReport
from kstreams_repl.system.errors import KStreamsError
from workshop.bench.control import _Taken, main, pids_of
from workshop.bench.latency import epochs_ended


def query(name: str, batch: int | None) -> Any:
    return SimpleNamespace(name=name, lastProgress=None if batch is None else {"batchId": batch})


def test_epochs_are_counted_by_the_micro_batches_of_the_generation() -> None:
    running = [query("other-1", 40), query("app-1", None), query("app-2", 6)]
    assert epochs_ended(running, "app-2") == 7
    assert epochs_ended(running, "app-1") == 0


def test_epochs_of_a_query_that_does_not_run_cannot_be_counted() -> None:
    with pytest.raises(KStreamsError, match="app-3"):
        epochs_ended([query("app-2", 6)], "app-3")


def test_a_resume_tells_how_many_processes_are_new(capsys: pytest.CaptureFixture[str]) -> None:
    taken = _Taken()
    taken.add("pause", 0.1)
    for seconds, new in ((0.4, 0), (0.5, 2)):
        taken.add("resume to first record", seconds, new)
    taken.emit(instances=2)
    pause, resume = map(json.loads, capsys.readouterr().out.splitlines())
    assert "new_processes" not in pause
    assert (resume["value"], resume["runs"], resume["new_processes"], resume["met"]) == (0.45, 2, 2, True)


def test_processes_are_those_that_the_instances_report() -> None:
    told = {slot: InstanceReport(slot, "running", pid, 1) for slot, pid in ((0, 11), (1, 12), (2, 12))}
    assert pids_of(ApplicationReport(1, told)) == {11, 12}


def test_a_long_rest_outlasts_sparks_look_for_idle_workers() -> None:
    (option,) = [each for each in main.params if each.name == "idle_seconds"]
    assert option.default > 60 + 10
