"""The order of the numbered steps, and that a step that fails keeps the later ones from happening."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import pytest

from kstreams_repl.engine.commit import failpoints
from kstreams_repl.engine.commit.at_least_once import commit_at_least_once
from kstreams_repl.engine.commit.exactly_once import commit_exactly_once
from kstreams_repl.system.errors import ProducerFencedError, TaskMigratedError
from kstreams_repl.system.types import TaskId, TopicPartition

AT = TopicPartition("in", 0)
LOG = TopicPartition("log", 0)


class Recorder:
    """Plays all parts of a commit and writes down what was asked of it; raises where it is told to."""

    def __init__(self, fail_at: str | None = None, error: Exception | None = None) -> None:
        self.steps: list[str] = []
        self._fail_at = fail_at
        self._error = error or ProducerFencedError("fenced")
        self.id = TaskId(0, 0)
        self.finished: tuple[int, Mapping[TopicPartition, int]] | None = None

    def _did(self, step: str) -> None:
        self.steps.append(step)
        if step == self._fail_at:
            raise self._error

    def check_owner(self) -> None:
        self._did("owner")

    def prepare(self, commit_id: int) -> Mapping[TopicPartition, tuple[int, str]]:
        self._did("prepare")
        return {AT: (5, f"commit {commit_id}")}

    def with_changelog_ends(self, positions: Mapping[TopicPartition, int]) -> Mapping[TopicPartition, tuple[int, str]]:
        assert positions == {LOG: 9}
        self._did("ends")
        return {AT: (5, "commit 3, log 9")}

    def finish(self, commit_id: int, positions: Mapping[TopicPartition, int]) -> None:
        self._did("store")
        self.finished = (commit_id, positions)

    def seal(self) -> None:
        self._did("seal")

    def check(self) -> None:
        self._did("check")

    def take_positions(self) -> dict[TopicPartition, int]:
        return {LOG: 9}

    def flush(self, check: Callable[[], None] = lambda: None) -> None:
        self._did("flush")

    def send_offsets(self, offsets: Mapping[TopicPartition, tuple[int, str]], group: Any) -> None:
        assert offsets == {AT: (5, "commit 3, log 9" if "ends" in self.steps else "commit 3")}
        self._did("offsets")

    def commit(self, in_flight: Callable[[], None]) -> None:
        self._did("commit")
        in_flight()


EXACTLY = ["prepare", "seal", "flush", "check", "ends", "offsets", "commit", "store"]
AT_LEAST = ["owner", "prepare", "seal", "flush", "check", "offsets", "store"]


def exactly_once(part: Recorder) -> None:
    commit_exactly_once([part], 3, producer=part, output=part, group=None)  # type: ignore[arg-type]


def at_least_once(part: Recorder) -> None:
    commit_at_least_once(
        [part],
        3,
        flush=part.flush,
        output=part,
        commit_offsets=lambda offsets: part.send_offsets(offsets, None),
        changelog_ends=lambda tasks: {LOG: 9},
    )


def test_exactly_once_commits_the_store_last() -> None:
    part = Recorder()
    exactly_once(part)
    assert part.steps == EXACTLY
    assert part.finished == (3, {LOG: 9})


def test_f6_is_passed_while_the_commit_is_under_way() -> None:
    part, passed = Recorder(), []
    failpoints.hook("F6", lambda: passed.append(part.steps[-1]))
    try:
        exactly_once(part)
    finally:
        failpoints.hook("F6", None)
    assert passed == ["commit"]


def test_at_least_once_looks_for_the_owner_first() -> None:
    part = Recorder()
    at_least_once(part)
    assert part.steps == AT_LEAST
    assert part.finished == (3, {LOG: 9})


@pytest.mark.parametrize("step", EXACTLY[:-1])
def test_exactly_once_touches_no_store_after_a_failed_step(step: str) -> None:
    part = Recorder(step)
    with pytest.raises(ProducerFencedError):
        exactly_once(part)
    assert part.steps == EXACTLY[: EXACTLY.index(step) + 1]
    assert part.finished is None


@pytest.mark.parametrize("step", AT_LEAST[:-1])
def test_at_least_once_touches_no_store_after_a_failed_step(step: str) -> None:
    part = Recorder(step, TaskMigratedError("another owner"))
    with pytest.raises(TaskMigratedError):
        at_least_once(part)
    assert part.steps == AT_LEAST[: AT_LEAST.index(step) + 1]
    assert part.finished is None
