"""Kept instances: what is being closed is waited for, and an instance that cannot be closed in order harms nobody else."""

from __future__ import annotations

import gc
import threading
import time
import weakref
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from kstreams_repl.engine.stores.engine.lmdb import LmdbEnvironment
from kstreams_repl.host.instance.control.channel import Signal
from kstreams_repl.host.instance.control.file_channel import FileChannel
from kstreams_repl.host.instance.epochs import instance_cache as warm_module
from kstreams_repl.host.instance.epochs.instance_cache import InstanceCache
from kstreams_repl.system.errors import StateStoreError
from kstreams_repl.system.types import TopicPartition

SMALL = 64 << 20
LOG = TopicPartition("app-counts-changelog", 0)


class _Instance:
    """One at rest, with a real environment of its own. It is closed when the gate is open."""

    def __init__(self, directory: Path, name: str = "app", *, trouble: BaseException | None = None, gate: bool = True) -> None:
        self.plan = SimpleNamespace(application_id=name, remote=False, control_directory=str(directory), generation=1)
        self.slot = 0
        self.path = directory / name
        self.environment = LmdbEnvironment(self.path, map_bytes=SMALL)
        self.environment.take_ownership("1/0/1/1/a")
        self.begun, self.gate = threading.Event(), threading.Event()
        if gate:
            self.gate.set()
        self._trouble = trouble
        sync = self.environment._mark_closed

        def slowly() -> bool:
            """As when much is to be synced."""
            self.begun.set()
            self.gate.wait()
            return sync()

        self.environment._mark_closed = slowly  # type: ignore[method-assign]

    def rest(self) -> None:
        """There is no restore to suspend."""

    def close(self) -> None:
        self.environment.close()
        if self._trouble is not None:
            raise self._trouble

    @property
    def closed(self) -> bool:
        return self.environment.closed


def kept_by(warm: InstanceCache, instance: Any) -> Any:
    warm.put(instance)
    return instance


def settle(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 30
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.01)


@pytest.fixture
def warm(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[InstanceCache]:
    monkeypatch.setattr(warm_module, "_settled_ends", lambda instance: {})
    monkeypatch.setattr(warm_module, "_WATCH_SECONDS", 0.01)
    FileChannel(tmp_path).signal(1, Signal.PAUSE)
    made = InstanceCache(0.0)
    yield made
    made.close()
    settle(lambda: made._thread is None)


def test_stores_that_the_watching_thread_still_closes_are_waited_for(warm: InstanceCache, tmp_path: Path) -> None:
    late = kept_by(warm, _Instance(tmp_path, gate=False))
    late.begun.wait()
    opened: Future[str] = Future()

    def successor() -> None:
        try:
            warm.take(late.plan, 0)
            LmdbEnvironment(late.path, map_bytes=SMALL).close()
            opened.set_result("opened")
        except StateStoreError as error:
            opened.set_result(error.message)

    thread = threading.Thread(target=successor)
    thread.start()
    thread.join(0.3)
    late.gate.set()
    assert opened.result(30) == "opened"
    thread.join()


def test_the_clients_of_an_edited_instance_are_freed_at_once(warm: InstanceCache, tmp_path: Path) -> None:
    """They are parts of cycles and have some forty threads, and the collector of a worker runs seldom."""
    warm._seconds = 60.0
    old = kept_by(warm, _Instance(tmp_path))
    old.itself, old.hand_over = old, dict
    environment, gone, plan = old.environment, weakref.ref(old), SimpleNamespace(**{**vars(old.plan), "generation": 2})
    environment._mark_closed = bool  # it refers to the instance
    del old
    gc.disable()
    try:
        assert warm.take(plan, 0) is None
        assert gone() is None
    finally:
        gc.enable()
        environment.close()


def test_another_application_is_not_waited_for(warm: InstanceCache, tmp_path: Path) -> None:
    late = kept_by(warm, _Instance(tmp_path, gate=False))
    late.begun.wait()
    other: Any = SimpleNamespace(application_id="another", generation=1)
    assert warm.take(other, 0) is None
    late.gate.set()


def test_a_signal_ends_the_wait_for_what_is_being_closed(warm: InstanceCache, tmp_path: Path) -> None:
    late = kept_by(warm, _Instance(tmp_path, gate=False))
    late.begun.wait()
    answers = [True, True, False]
    assert warm.take(late.plan, 0, lambda: answers.pop(0)) is None
    assert answers == []

    def interrupted() -> bool:
        raise InterruptedError("a stop")

    with pytest.raises(InterruptedError):
        warm.take(late.plan, 0, interrupted)
    late.gate.set()


def test_everything_is_closed_when_close_returns(warm: InstanceCache, tmp_path: Path) -> None:
    late = kept_by(warm, _Instance(tmp_path, gate=False))
    late.begun.wait()
    threading.Timer(0.1, late.gate.set).start()
    warm.close()
    LmdbEnvironment(late.path, map_bytes=SMALL).close()


@pytest.mark.slow
@pytest.mark.parametrize("trouble", [ValueError("the user's Processor.close"), SystemExit(3)])
def test_an_instance_whose_close_fails_keeps_no_other_open(
    warm: InstanceCache, tmp_path: Path, trouble: BaseException, caplog: pytest.LogCaptureFixture
) -> None:
    every = [_Instance(tmp_path, "a", trouble=trouble), _Instance(tmp_path, "b")]
    for instance in every:
        kept_by(warm, instance)
    settle(lambda: all(instance.closed for instance in every))
    later = kept_by(warm, _Instance(tmp_path, "c"))
    settle(lambda: later.closed)
    assert "a[0]: closing a kept instance failed" in caplog.text
    assert "b[0]" not in caplog.text


def test_a_former_instance_whose_close_fails_does_not_stop_its_successor(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(warm_module, "_settled_ends", lambda instance: {})
    monkeypatch.setattr(warm_module, "_unchanged", lambda kept: False)
    FileChannel(tmp_path).signal(1, Signal.RUN)
    warm = InstanceCache()
    former = kept_by(warm, _Instance(tmp_path, trouble=ValueError("the user's Processor.close")))
    assert warm.take(former.plan, 0) is None
    LmdbEnvironment(former.path, map_bytes=SMALL).close()
    newer: Any = SimpleNamespace(application_id="app", generation=2)
    again = kept_by(warm, _Instance(tmp_path, trouble=ValueError("again")))
    again.hand_over = again.close
    assert warm.take(newer, 0) is None
    assert warm.take_environments("app") == {}
    warm.close()


def test_a_lease_that_cannot_be_understood_keeps_no_other_open(warm: InstanceCache, tmp_path: Path) -> None:
    strange = tmp_path / "strange"
    strange.mkdir()
    (strange / "lease.json").write_text('{"generation": 1, "signal": "dance"}')
    every = [_Instance(strange, "a"), _Instance(tmp_path, "b")]
    for instance in every:
        kept_by(warm, instance)
    settle(lambda: all(instance.closed for instance in every))


def test_the_ends_of_a_kept_instance_are_behind_the_markers_of_its_last_commit() -> None:
    """Markers come after the commit's acknowledgement: the instance was taken for changed, and every store was opened anew."""
    ends = {LOG: 10}

    def settled(partitions: Any) -> dict[TopicPartition, int]:
        before = dict(ends)
        ends[LOG] = 11  # the marker
        return before

    clients = SimpleNamespace(
        transactions=object(), admin=SimpleNamespace(settled_end_offsets=settled), changelog_ends=lambda partitions: dict(ends)
    )
    instance: Any = SimpleNamespace(tasks=[SimpleNamespace(changelogs=[LOG])], updater=None, clients=clients)
    assert warm_module._settled_ends(instance) == warm_module._changelog_ends(instance) == {LOG: 11}
