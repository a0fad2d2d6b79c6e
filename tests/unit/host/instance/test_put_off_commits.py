"""Local stores that take several commits together: what is there in between, and when it may not be."""

from __future__ import annotations

import multiprocessing
import os
import signal
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from kstreams_repl import StreamsBuilder, serdes
from kstreams_repl.engine.config import StreamsConfig
from kstreams_repl.engine.runtime.task import StreamTask, TaskSpec
from kstreams_repl.engine.stores.engine.lmdb import LmdbEnvironment
from kstreams_repl.engine.stores.engine.lmdb_snapshot import LmdbSnapshot
from kstreams_repl.host.instance.state.environment_attributes import INPUT
from kstreams_repl.host.instance.tasks import active_task
from kstreams_repl.host.instance.tasks.active_task import ActiveTask
from kstreams_repl.system.types import RecordBatch, TaskId, TopicPartition
from tests.unit.engine.runtime.rig import Outbox

IN, LOG = TopicPartition("in", 0), TopicPartition("app-counts-changelog", 0)
Make = Callable[..., tuple[ActiveTask, LmdbEnvironment]]


@pytest.fixture
def make(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Make]:
    monkeypatch.setattr(active_task, "_SETTLE_SECONDS", 3600.0)  # a busy machine may be slower than what is set
    opened: list[ActiveTask] = []

    def counting(*, logging: bool = True) -> tuple[ActiveTask, LmdbEnvironment]:
        builder = StreamsBuilder()
        stream = builder.stream("in", key_serde=serdes.string, value_serde=serdes.string)
        stream.group_by_key(key_serde=serdes.string, value_serde=serdes.string).count(store="counts", logging=logging)
        (part,) = builder.build().subtopologies()
        environment = LmdbEnvironment(tmp_path / "e", map_bytes=64 << 20)
        environment.take_ownership("me")
        config = StreamsConfig({"application.id": "app"})
        spec = TaskSpec("app", part, TaskId(0, 0), {IN: part.nodes[0].name}, config)
        task = StreamTask(spec, environment=environment, collector=Outbox(), wall_clock=lambda: 0)
        task.initialize()
        active = ActiveTask(task, environment, {IN: 0}, frozenset({LOG}), token="me")
        opened.append(active)
        return active, environment

    yield counting
    for each in opened:
        each.close()


def commit(active: ActiveTask, commit_id: int, *keys: str, more: bool) -> None:
    start = active.task.group.queues[IN].next_offset or 0
    count = len(keys)
    batch = RecordBatch([key.encode() for key in keys], [b"v"] * count, [10] * count, list(range(start, start + count)))
    active.task.add_records(IN, batch)
    active.process(count)
    active.wait = more and active.may_wait()
    active.prepare(commit_id)
    active.finish(commit_id, {LOG: 10 * commit_id})


def count_of(environment: LmdbEnvironment, key: bytes) -> bytes | None:
    row = environment.engine("counts").get(key)
    return None if row is None else row[8:]


def test_commits_while_more_records_wait_reach_the_store_together(make: Make) -> None:
    active, environment = make()
    commit(active, 1, "a", more=False)
    commit(active, 2, "a", "b", more=True)
    commit(active, 3, "b", more=True)
    assert (environment.commit_id, environment.positions[str(LOG)], active.settled) == (1, 10, False)
    assert active.commit_id == 3 and active.committed[IN] == 4
    active.settle({})
    assert (environment.commit_id, environment.positions[str(LOG)], active.settled) == (3, 30, True)
    assert environment.positions[f"{INPUT}{IN}"] == 4


def test_a_crash_in_between_leaves_rows_and_position_of_the_same_commit(make: Make) -> None:
    active, environment = make()
    commit(active, 1, "a", more=False)
    commit(active, 2, "a", more=True)
    assert count_of(environment, b"a") == (2).to_bytes(8)
    environment.rollback()
    assert count_of(environment, b"a") == (1).to_bytes(8)
    assert (environment.commit_id, environment.positions[str(LOG)]) == (1, 10)


def test_the_first_commit_reaches_the_store_at_once(make: Make) -> None:
    active, environment = make()
    commit(active, 1, "a", more=True)
    assert environment.commit_id == 1 and active.settled


def test_a_store_without_a_changelog_takes_every_commit_at_once(make: Make) -> None:
    active, environment = make(logging=False)
    commit(active, 1, "a", more=False)
    commit(active, 2, "a", more=True)
    assert environment.commit_id == 2 and active.settled


@pytest.mark.parametrize(("bound", "most"), [("_SETTLE_ROWS", 2), ("_SETTLE_BYTES", 24)])
def test_many_rows_and_long_ones_do_not_wait(make: Make, monkeypatch: pytest.MonkeyPatch, bound: str, most: int) -> None:
    monkeypatch.setattr(active_task, bound, most)
    active, environment = make()
    commit(active, 1, "a", more=False)
    commit(active, 2, "a", "b", more=True)
    assert environment.commit_id == 1
    commit(active, 3, "c", more=True)
    assert environment.commit_id == 3


@pytest.mark.parametrize(("rows", "taken"), [(2, 3), (3, 1)])
def test_a_large_store_has_bounds_of_its_own(make: Make, monkeypatch: pytest.MonkeyPatch, rows: int, taken: int) -> None:
    monkeypatch.setattr(active_task, "_SETTLE_SECONDS", 0.0)
    monkeypatch.setattr(active_task, "_LARGE_SECONDS", 3600.0)
    monkeypatch.setattr(active_task, "_LARGE_PAGES", 1)
    monkeypatch.setattr(active_task, "_LARGE_ROWS", rows)
    active, environment = make()
    commit(active, 1, "a", "b", more=False)
    commit(active, 2, "a", "b", more=True)
    assert environment.commit_id == 1
    commit(active, 3, "a", "b", more=True)
    assert environment.commit_id == taken


def look_and_die(path: str) -> None:
    with LmdbSnapshot(path) as snapshot:
        snapshot.tree("counts")
        with snapshot.transaction():
            os.kill(os.getpid(), signal.SIGKILL)


@pytest.mark.parametrize("due", [True, False])
def test_a_reader_that_was_killed_is_forgotten_while_the_task_runs_on(make: Make, monkeypatch: pytest.MonkeyPatch, due: bool) -> None:
    """It kept all that was written over on the disk for as long as the environment was open: weeks, until the map was full."""
    monkeypatch.setattr(active_task, "_READERS_SECONDS", 0.0 if due else 3600.0)
    active, environment = make()
    commit(active, 1, "a", more=False)
    reader = multiprocessing.get_context("spawn").Process(target=look_and_die, args=(environment.path,))
    reader.start()
    reader.join()
    assert reader.exitcode == -signal.SIGKILL
    commit(active, 2, "a", more=False)
    assert environment.reader_check() == (0 if due else 1)
