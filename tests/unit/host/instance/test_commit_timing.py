"""When a commit is due: one rule for inline processing and for processing threads."""

from __future__ import annotations

import math
from types import SimpleNamespace
from typing import Any

import pytest

from kstreams_repl.engine.config import StreamsConfig
from kstreams_repl.host.instance.polling.commit_timing import CommitTiming
from kstreams_repl.host.instance.polling.committer import Committer


def timing_of(*, requested: bool = False, touched: bool = True, **config: Any) -> tuple[CommitTiming, Any]:
    def refresh(now: float) -> None:
        committer.touched, committer.refresh_at = True, now + 100.0

    committer: Any = SimpleNamespace(last_commit=10.0, touched=touched, refresh_at=math.inf, refresh=refresh)
    task: Any = SimpleNamespace(task=SimpleNamespace(commit_requested=requested))
    return CommitTiming(committer, [task], StreamsConfig({"application.id": "app"}, **config)), committer


def test_a_commit_is_due_after_its_interval_or_at_once_when_requested() -> None:
    timing, _ = timing_of(commit_interval_ms=100)
    assert not timing.is_due(10.09) and timing.is_due(10.11)
    timing, _ = timing_of(commit_interval_ms=100, requested=True)
    assert timing.is_due(10.0)


def test_at_rest_it_is_due_sooner_unless_that_is_off() -> None:
    timing, _ = timing_of(commit_interval_ms=100, repl_commit_eager_ms=5)
    assert not timing.is_due_at_rest(10.004) and timing.is_due_at_rest(10.006)
    timing, _ = timing_of(commit_interval_ms=100, repl_commit_eager_ms=-1)
    assert not timing.is_due_at_rest(1e9)


def test_an_instance_at_rest_waits_until_its_commit_is_due() -> None:
    timing, committer = timing_of(commit_interval_ms=100, repl_commit_eager_ms=5)
    assert timing.seconds_left(10.0) == pytest.approx(0.005)
    timing, _ = timing_of(commit_interval_ms=100, repl_commit_eager_ms=-1)
    assert timing.seconds_left(10.0) == pytest.approx(0.1)
    committer.touched = False
    timing, _ = timing_of(touched=False)
    assert timing.seconds_left(10.0) == math.inf


def test_offsets_that_grow_old_are_committed_again() -> None:
    timing, committer = timing_of(commit_interval_ms=100, touched=False)
    committer.refresh_at = 10.5
    assert not timing.is_due(10.05) and not committer.touched
    assert timing.is_due(10.6) and committer.touched


def test_postponed_commits_of_a_task_at_rest_are_written_and_not_those_of_one_with_activity_since() -> None:
    """The stores of one with activity hold rows of the open commit, which may be aborted."""
    written: list[str] = []

    def task_of(name: str, *, touched: bool) -> Any:
        return SimpleNamespace(settled=False, touched=touched, on_disk=False, wait=True, settle=lambda positions: written.append(name))

    tasks = [task_of("at rest", touched=False), task_of("active", touched=True)]
    clients: Any = SimpleNamespace(transactions=object())
    none: Any = None
    Committer(tasks, clients, none, none, StreamsConfig({"application.id": "app"})).settle()
    assert written == ["at rest"]
