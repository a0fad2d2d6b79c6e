"""When a local copy of a store is trusted, and when it is made anew."""

from __future__ import annotations

import os
import time
from pathlib import Path

import pytest

from kstreams_repl.errors import TaskMigratedError
from kstreams_repl.instance import local_state
from kstreams_repl.instance.local_state import Changelog, fresh_environment, owner_token, remember_topics, why_not_trusted
from kstreams_repl.stores.engine.lmdb import LmdbEnvironment
from kstreams_repl.topology.stores import StoreBuilder, StoreKind
from kstreams_repl.types import TaskId, TopicPartition

AT = TopicPartition("app-s-changelog", 0)
LOG = Changelog(TaskId(0, 0), StoreBuilder("s", StoreKind.KEY_VALUE), AT)


def made(path: Path, position: int = 10) -> LmdbEnvironment:
    environment = LmdbEnvironment(path)
    environment.take_ownership("me")
    remember_topics(environment, [LOG], {AT.topic: "id-1"})
    environment.engine("s").put(b"k", b"v")
    environment.commit({str(AT): position}, 1)
    return environment


def why(environment: LmdbEnvironment, *, first: int = 0, end: int = 10, topic_id: str = "id-1") -> str | None:
    return why_not_trusted(environment, [LOG], {AT: first}, {AT: end}, {AT.topic: topic_id})


def test_copy_inside_its_changelog_is_trusted(tmp_path: Path) -> None:
    environment = made(tmp_path / "e")
    assert why(environment) is None
    assert why(environment, end=500) is None
    environment.close()


@pytest.mark.parametrize(
    ("ends", "reason"),
    [({"first": 11, "end": 20}, "before the start"), ({"end": 9}, "after the end"), ({"topic_id": "id-2"}, "made again")],
)
def test_copy_that_does_not_fit_its_changelog_is_not_trusted(tmp_path: Path, ends: dict[str, object], reason: str) -> None:
    environment = made(tmp_path / "e")
    assert reason in str(why(environment, **ends))  # type: ignore[arg-type]
    environment.close()


def test_old_copy_is_trusted_only_when_it_is_not_behind(tmp_path: Path) -> None:
    environment = made(tmp_path / "e")
    long_ago = time.time() - 2 * 24 * 60 * 60
    os.utime(tmp_path / "e" / "data.mdb", (long_ago, long_ago))
    assert why(environment) is None
    assert "keeps deletions" in str(why(environment, end=11))
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
    assert started == local_state.start_time(os.getpid())
    assert not local_state.end_process(token), "this process ends itself"
    assert not local_state.end_process(f"3/1/{os.getppid()}/1/x"), "another process that has got the pid since"
    assert not local_state.end_process("nonsense")


def test_former_owner_cannot_commit(tmp_path: Path) -> None:
    environment = made(tmp_path / "e")
    other = environment._env.begin(write=True)  # what a successor in another process does
    other.put(b"owner", b"successor", db=environment._meta)
    other.commit()
    with pytest.raises(TaskMigratedError):
        environment.commit({str(AT): 11}, 2)
    environment.close()
