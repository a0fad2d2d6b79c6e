"""Snapshots come back from files and from a topic that others may write to."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from kstreams_repl.engine.metrics.metrics_snapshot import Snapshot, validated
from kstreams_repl.host.instance.control.file_channel import FileChannel

GOOD = Snapshot(7, [("stream-thread-metrics", {"thread-id": "t"}, {"commit-total": 3, "state": "running", "poll-latency-avg": None})])


def test_a_snapshot_comes_back_as_it_was() -> None:
    for said in (GOOD.plain(), json.dumps(GOOD.plain())):
        found = validated(said)
        assert found is not None and [*Snapshot.read(found)] == [*GOOD]


@pytest.mark.parametrize(
    "said",
    ["", "x", "[1]", "{}", None, 5, {"at_ms": 1}, {"at_ms": "x", "groups": []}, {"at_ms": 1, "groups": [["g", {}]]},
     {"at_ms": 1, "groups": [["g", {}, {"a": [1]}]]}, {"at_ms": 1, "groups": [["g", {"t": 1}, {}]]},
     {"at_ms": 1, "groups": [["g", [], 1]]}],
)  # fmt: skip
def test_what_is_none_is_left_out_and_raises_nothing(said: Any) -> None:
    assert validated(said) is None


def test_metrics_of_the_other_instances_are_there_when_one_file_is_damaged(tmp_path: Path) -> None:
    lease = FileChannel(tmp_path)
    (tmp_path / "metrics-1-0.json").write_text(json.dumps({"groups": []}))
    (tmp_path / "metrics-1-1.json").write_text(json.dumps(GOOD.plain()))
    (tmp_path / "metrics-1-x.json").write_text(json.dumps(GOOD.plain()))
    assert lease.metrics(1) == {1: GOOD.plain()}
