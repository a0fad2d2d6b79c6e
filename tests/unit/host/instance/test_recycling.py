"""Environments that pass from one task to the next without being closed, and who may take them."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from kstreams_repl.engine.config import StreamsConfig
from kstreams_repl.engine.runtime.task import TaskSpec
from kstreams_repl.engine.stores.engine.lmdb import LmdbEnvironment
from kstreams_repl.engine.topology.store_builder import StoreBuilder, StoreKind
from kstreams_repl.engine.topology.subtopologies import Subtopology
from kstreams_repl.host.instance.state.environment_attributes import forget_inputs
from kstreams_repl.host.instance.state.owner_token import is_held, owner_token
from kstreams_repl.host.instance.state.state_manager import open_environment
from kstreams_repl.system.errors import TaskMigratedError
from kstreams_repl.system.process_info import start_time
from kstreams_repl.system.types import TaskId

STORE = StoreBuilder("s", StoreKind.KEY_VALUE)
SPEC = TaskSpec("app", Subtopology(0, (), (STORE,)), TaskId(0, 0), {}, StreamsConfig({"application.id": "app"}), frozenset())


def made(path: Path) -> LmdbEnvironment:
    environment = LmdbEnvironment(path)
    environment.take_ownership(owner_token(1, 0))
    environment.engine("s").put(b"k", b"v")
    environment.commit({"log-0": 7, "input:in-0": 3}, 4)
    return environment


def test_a_recycled_environment_keeps_what_is_committed_and_nothing_else(tmp_path: Path) -> None:
    before = made(tmp_path / "e")
    called: list[str] = []
    before.before_commit(lambda: called.append("old"))
    before.engine("s").put(b"k", b"uncommitted")
    before.engine("memory", persistent=False).put(b"a", b"b")
    after = open_environment(tmp_path / "e", SPEC, "2/1/1/1/x", before)
    assert after is before and before.owner == "2/1/1/1/x"
    assert after.engine("s").get(b"k") == b"v" and after.engine("memory", persistent=False).get(b"a") is None
    assert (dict(after.positions), after.commit_id) == ({"log-0": 7, "input:in-0": 3}, 4)
    after.commit({}, 5)
    assert called == []
    after.close()


def test_a_closed_spare_is_opened_anew(tmp_path: Path) -> None:
    spare = made(tmp_path / "e")
    spare.close()
    opened = open_environment(tmp_path / "e", SPEC, "2/1/1/1/x", spare)
    assert opened is not spare and opened.engine("s").get(b"k") == b"v"
    opened.close()


def test_a_copy_does_not_take_an_environment_from_a_task_that_runs(tmp_path: Path) -> None:
    environment = made(tmp_path / "e")
    parent = os.getppid()
    running = f"1/0/{parent}/{start_time(parent)}/x"
    environment.take_ownership(running)
    with pytest.raises(TaskMigratedError):
        environment.take_ownership("1/1/2/3/y/standby", unless=is_held)
    assert environment.owner == running
    environment.take_ownership("1/0/0/0/z")
    environment.take_ownership("1/1/2/3/y/standby", unless=is_held)
    assert environment.owner == "1/1/2/3/y/standby"
    environment.close()


def test_an_environment_is_in_use_while_its_process_lives_and_has_not_closed_it() -> None:
    parent = os.getppid()
    token = f"1/0/{parent}/{start_time(parent)}/x"
    assert is_held(token, False) and is_held(f"{token}/standby", False)
    assert not is_held(token, True)
    assert not is_held(f"1/0/{parent}/17/x", False)
    assert not is_held(owner_token(1, 0), False)
    assert not is_held("text", False)


def test_stores_that_move_on_without_their_task_forget_its_input_offsets(tmp_path: Path) -> None:
    environment = made(tmp_path / "e")
    forget_inputs(environment)
    assert dict(environment.positions) == {"log-0": 7, "input:in-0": -1} and environment.commit_id == 4
    environment.close()


def test_a_copy_of_an_environment_is_owned_by_nobody_and_closed_in_order(tmp_path: Path) -> None:
    environment = made(tmp_path / "e")
    environment.copy_to(str(tmp_path / "copy"))
    environment.engine("s").put(b"k", b"later")
    environment.commit({"log-0": 8}, 5)
    copy = LmdbEnvironment(tmp_path / "copy")
    assert copy.owner is None and copy.engine("s").get(b"k") == b"v" and copy.positions["log-0"] == 7
    copy.take_ownership("me", unless=is_held)
    copy.close()
    environment.close()
