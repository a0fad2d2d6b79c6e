"""When a local copy of a store is trusted, and when it is made anew."""

from __future__ import annotations

import os
import time
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from kstreams_repl.engine.commit.offset_metadata import COMMIT_ID, encode
from kstreams_repl.engine.config import StreamsConfig
from kstreams_repl.engine.stores.engine.environment import Environment
from kstreams_repl.engine.stores.engine.lmdb import LmdbEnvironment
from kstreams_repl.engine.topology.store_builder import StoreBuilder, StoreKind
from kstreams_repl.host.instance.state.changelogs import ChangelogBounds, ChangelogPartition
from kstreams_repl.host.instance.state.environment_attributes import AS_OF, INPUT, remember_topics, set_as_of
from kstreams_repl.host.instance.state.owner_token import end_process, owner_token
from kstreams_repl.host.instance.state.state_manager import fresh_environment, open_environment, why_not_trusted
from kstreams_repl.host.kafka.group_admin import CommittedOffset
from kstreams_repl.system.errors import StateStoreError, TaskMigratedError
from kstreams_repl.system.process_info import start_time
from kstreams_repl.system.types import TaskId, TopicPartition

AT = TopicPartition("app-s-changelog", 0)
IN = TopicPartition("in", 0)
DAY = 24 * 60 * 60
LOG = ChangelogPartition(TaskId(0, 0), StoreBuilder("s", StoreKind.KEY_VALUE), AT)

SPEC: Any = SimpleNamespace(
    task_id=TaskId(0, 0), application_id="app", subtopology=SimpleNamespace(stores=[LOG.store])
)


def made(path: Path, position: int = 10) -> LmdbEnvironment:
    environment = LmdbEnvironment(path)
    environment.take_ownership("me")
    remember_topics(environment, [LOG], {AT.topic: "id-1"})
    environment.engine("s").put(b"k", b"v")
    environment.commit({str(AT): position}, 1)
    return environment


def why(
    environment: Environment,
    *,
    first: int = 0,
    end: int = 10,
    topic_id: str = "id-1",
    committed: dict[TopicPartition, CommittedOffset] | None = None,
    log: ChangelogPartition = LOG,
    **config: str,
) -> str | None:
    return why_not_trusted(
        environment,
        [log],
        ChangelogBounds({AT: first}, {AT: end}, {AT.topic: topic_id}),
        config=StreamsConfig({"application.id": "app"}, **config),
        committed=lambda: committed or {},
    )


def made_long_ago(path: Path, *, days: float = 2, position: int = 10) -> None:
    """A copy whose last commit was then, closed since."""
    environment = made(path, position)
    set_as_of(environment, time.time() - days * DAY)
    environment.commit({f"{INPUT}{IN}": 7}, 1)
    environment.close()


def opened(path: Path) -> Environment:
    """As the take-over opens it: it writes who owns it."""
    return open_environment(path, SPEC, owner_token(1, 0))


def test_copy_inside_its_changelog_is_trusted(tmp_path: Path) -> None:
    environment = made(tmp_path / "e")
    assert why(environment) is None
    assert why(environment, end=500) is None
    environment.close()


@pytest.mark.parametrize(
    ("ends", "reason"),
    [({"first": 11, "end": 20}, "before the start"), ({"end": 9}, "after the end"), ({"topic_id": "id-2"}, "recreated")],
)
def test_copy_that_does_not_fit_its_changelog_is_not_trusted(tmp_path: Path, ends: dict[str, object], reason: str) -> None:
    environment = made(tmp_path / "e")
    assert reason in str(why(environment, **ends))  # type: ignore[arg-type]
    environment.close()


def test_old_copy_that_is_behind_is_not_trusted_though_it_has_just_been_opened(tmp_path: Path) -> None:
    made_long_ago(tmp_path / "e")
    environment = opened(tmp_path / "e")
    assert why(environment) is None
    assert "keeps deletions" in str(why(environment, end=11))
    environment.close()


def test_young_copy_that_is_behind_is_trusted(tmp_path: Path) -> None:
    made_long_ago(tmp_path / "e", days=0.5)
    environment = opened(tmp_path / "e")
    assert why(environment, end=500) is None
    environment.close()


def test_opening_and_replaying_do_not_make_an_old_copy_young(tmp_path: Path) -> None:
    """The first of the records that it lacks says nothing of the deletions among the others."""
    made_long_ago(tmp_path / "e")
    environment = opened(tmp_path / "e")
    environment.restore("s", [b"a"], [b"b"], positions={str(AT): 11})
    environment.close()
    environment = opened(tmp_path / "e")
    assert "keeps deletions" in str(why(environment, end=12))
    environment.close()


def test_rows_of_a_store_that_was_in_memory_meanwhile_are_not_trusted(tmp_path: Path) -> None:
    """The store's deletions since then may be gone from its changelog, while the commits of others keep the environment young."""
    environment = made(tmp_path / "e")
    in_memory = ChangelogPartition(LOG.task, replace(LOG.store, persistent=False), AT)
    remember_topics(environment, [in_memory], {AT.topic: "id-1"})
    environment.commit({}, 2)
    assert why(environment, end=20, log=in_memory) is None
    assert "in memory" in (why(environment, end=20) or "")
    environment = fresh_environment(environment, "me")  # type: ignore[assignment]
    remember_topics(environment, [LOG], {AT.topic: "id-1"})
    environment.commit({str(AT): 20}, 3)
    assert why(environment, end=20) is None
    environment.close()


def test_old_copy_of_an_earlier_release_is_as_old_as_its_file(tmp_path: Path) -> None:
    environment = made(tmp_path / "e")
    environment.set_attribute(AS_OF, None)
    environment.commit({str(AT): 10}, 1)
    environment.close()
    long_ago = time.time() - 2 * DAY
    os.utime(tmp_path / "e" / "data.mdb", (long_ago, long_ago))
    for _ in range(2):
        again = opened(tmp_path / "e")
        assert "keeps deletions" in str(why(again, end=11))
        again.close()


def test_old_copy_with_the_last_commit_of_its_task_is_trusted(tmp_path: Path) -> None:
    """An application that rested for days goes on with its stores."""
    made_long_ago(tmp_path / "e")
    environment = opened(tmp_path / "e")
    last = {IN: CommittedOffset(7, encode(-1, {COMMIT_ID: 1}))}
    assert why(environment, end=12, committed=last) is None
    for other in (CommittedOffset(7, encode(-1, {COMMIT_ID: 2})), CommittedOffset(8, encode(-1, {COMMIT_ID: 1})), CommittedOffset(7)):
        assert "keeps deletions" in str(why(environment, end=12, committed={IN: other}))
    environment.close()


def test_exactly_once_an_old_copy_may_lack_the_marker_of_its_own_commit(tmp_path: Path) -> None:
    made_long_ago(tmp_path / "e")
    environment = opened(tmp_path / "e")
    assert why(environment, end=11, processing_guarantee="exactly_once_v2") is None
    assert "keeps deletions" in str(why(environment, end=12, processing_guarantee="exactly_once_v2"))
    environment.close()


def test_how_long_deletions_are_kept_is_what_the_topic_is_made_with(tmp_path: Path) -> None:
    made_long_ago(tmp_path / "e", days=2)
    environment = opened(tmp_path / "e")
    week = StoreBuilder("s", StoreKind.KEY_VALUE, topic_config={"delete.retention.ms": str(7 * DAY * 1000)})
    assert why(environment, end=11, log=ChangelogPartition(TaskId(0, 0), week, AT)) is None
    assert why(environment, end=11, **{"topic.delete.retention.ms": str(7 * DAY * 1000)}) is None
    environment.close()
    made_long_ago(tmp_path / "f", days=0.5)
    environment = opened(tmp_path / "f")
    assert "keeps deletions" in str(why(environment, end=11, **{"topic.delete.retention.ms": "3600000"}))
    environment.close()


def test_fresh_environment_has_nothing_of_the_old_one(tmp_path: Path) -> None:
    fresh = fresh_environment(made(tmp_path / "e"), "next")
    assert fresh.commit_id == -1
    assert fresh.engine("s").get(b"k") is None
    assert [path.name for path in tmp_path.iterdir() if path.is_dir()] == ["e"]
    fresh.close()


def test_token_names_a_process_and_only_that_one_is_ended() -> None:
    token = owner_token(3, 1)
    generation, slot, pid, started, _ = token.split("/")
    assert (generation, slot, pid) == ("3", "1", str(os.getpid()))
    assert started == start_time(os.getpid())
    assert not end_process(token), "this process ends itself"
    assert not end_process(f"3/1/{os.getppid()}/1/x"), "another process that has got the pid since"
    assert not end_process("nonsense")


def test_former_owner_cannot_commit(tmp_path: Path) -> None:
    environment = made(tmp_path / "e")
    other = environment._env.begin(write=True)  # what a successor in another process does
    other.put(b"owner", b"successor", db=environment._meta)
    other.commit()
    with pytest.raises(TaskMigratedError):
        environment.commit({str(AT): 11}, 2)
    environment.close()


def test_a_folder_that_refuses_to_be_opened_is_a_typed_error(tmp_path: Path) -> None:
    (tmp_path / ".cleanup.lock").mkdir()  # stands for a full disk: the file cannot be made
    with pytest.raises(StateStoreError) as caught:
        opened(tmp_path / "e")
    assert isinstance(caught.value.__cause__, OSError) and caught.value.hint


@pytest.mark.parametrize("instead", ["a file", "a link to nothing", "a link to a file"])
def test_something_else_in_the_place_of_a_tasks_directory_is_replaced_by_a_new_one(
    tmp_path: Path, instead: str, caplog: pytest.LogCaptureFixture
) -> None:
    """The application stopped, and its hint said that the task restores by itself and continues."""
    path, file = tmp_path / "tasks" / "0_0", tmp_path / "file"
    path.parent.mkdir()
    file.write_text("somebody's")
    if instead == "a file":
        path.write_text("junk")
    else:
        path.symlink_to(file if instead == "a link to a file" else tmp_path / "nothing")
    environment = opened(path)
    assert path.is_dir() and environment.commit_id == -1
    assert "it is not a directory" in caplog.text
    environment.close()
    assert file.read_text() == "somebody's"
    assert [left.name for left in path.parent.iterdir() if "0_0" in left.name] == ["0_0"]
