"""What belongs to one process stays with it when that process forks."""

from __future__ import annotations

import gc
import os
import shutil
import sys
import traceback
from collections.abc import Callable
from pathlib import Path

import pytest
from confluent_kafka import Consumer

from kstreams_repl.host.kafka.clients import ClientSettings, make_admin_client, make_consumer, make_producer
from kstreams_repl.repl.inspection.sandbox import open_sandbox
from kstreams_repl.system.errors import ForkedProcessError
from kstreams_repl.system.forks import OwnLock, finalizer_of, when_forked

pytestmark = pytest.mark.filterwarnings("ignore:.*multi-threaded.*fork:DeprecationWarning")


class Owner:
    pass


def in_a_child(call: Callable[[], object]) -> int:
    """Run a call in a forked child, whose interpreter is not finalised, and return its exit code: 0 if it did not raise."""
    pid = os.fork()
    if pid == 0:
        try:
            call()
        except BaseException:
            traceback.print_exc()
            os._exit(1)
        os._exit(0)
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])


def test_an_owner_leaves_in_the_child_and_only_there() -> None:
    left: list[str] = []
    owner = when_forked(Owner(), lambda _: left.append("left"))

    def child() -> None:
        assert left == ["left"]

    assert in_a_child(child) == 0
    assert left == [] and owner is not None


def test_an_owner_that_is_gone_is_not_called() -> None:
    left: list[str] = []
    when_forked(Owner(), lambda _: left.append("left"))
    gc.collect()

    def child() -> None:
        assert left == []

    assert in_a_child(child) == 0


def test_a_finalizer_acts_in_the_process_that_made_it(tmp_path: Path) -> None:
    owner, place = Owner(), tmp_path / "place"
    place.mkdir()
    finalizer = finalizer_of(owner, shutil.rmtree, place)

    def child() -> None:
        finalizer()
        assert place.exists()

    assert in_a_child(child) == 0
    assert place.exists()
    finalizer()
    assert not place.exists()


def test_a_lock_of_the_parent_raises_in_the_child_even_while_it_is_held() -> None:
    lock = OwnLock("this application")

    def child() -> None:
        with pytest.raises(ForkedProcessError, match=f"this application belongs to process {os.getppid()}.*forked"), lock:
            pass

    with lock, lock:
        assert in_a_child(child) == 0
    assert lock.is_own


def test_native_clients_are_not_destroyed_in_a_child() -> None:
    """Their threads are missing there: librdkafka and DuckDB wait for them or crash."""
    settings = ClientSettings("127.0.0.1:1")
    clients = [make_consumer(settings, group_id="g"), make_producer(settings), make_admin_client(settings), open_sandbox()]
    assert isinstance(clients[0], Consumer)
    before = [sys.getrefcount(client) for client in clients]

    def child() -> None:
        assert all(sys.getrefcount(client) > count for client, count in zip(clients, before, strict=True)), "each is held once more"
        clients.clear()
        gc.collect()

    assert in_a_child(child) == 0
    assert [sys.getrefcount(client) for client in clients] == before
