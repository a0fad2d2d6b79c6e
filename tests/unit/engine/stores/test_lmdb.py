"""What only LMDB has: other processes, owners, crashes of the machine, full disks, forks, clean-up in small steps."""

from __future__ import annotations

import multiprocessing
import os
import re
import resource
import time
from pathlib import Path
from typing import Any

import pytest

from kstreams_repl.engine.config import KEYS
from kstreams_repl.engine.stores.engine import lmdb as lmdb_module
from kstreams_repl.engine.stores.engine import lmdb_engine, read_only
from kstreams_repl.engine.stores.engine.lmdb import LmdbEnvironment, LockedError
from kstreams_repl.engine.stores.engine.lmdb_snapshot import LmdbSnapshot
from kstreams_repl.engine.stores.engine.read_only import open_read_only
from kstreams_repl.system.errors import InvalidStateStoreError, StateStoreError, TaskCorruptedError, TaskMigratedError

SMALL = 64 << 20


def opened(path: Path, **options: Any) -> LmdbEnvironment:
    return LmdbEnvironment(path, map_bytes=SMALL, **options)


def in_another_process(function: Any, *arguments: Any) -> Any:
    context = multiprocessing.get_context("spawn")
    with context.Pool(1) as pool:
        return pool.apply(function, arguments)


def take_and_commit(path: str, token: str) -> int:
    environment = LmdbEnvironment(path, map_bytes=SMALL)
    environment.take_ownership(token)
    environment.engine("e").put(b"k", token.encode())
    environment.commit({"c-0": 9}, 9)
    environment.close()
    return 0


def read_snapshot(path: str) -> tuple[list[tuple[bytes, bytes]], int, dict[str, int], list[str]]:
    with LmdbSnapshot(path) as snapshot:
        return snapshot.read("e")[0], snapshot.commit_id, snapshot.positions, snapshot.names()


def hold_write_lock(path: str, ready: Any) -> None:
    environment = LmdbEnvironment(path, map_bytes=SMALL)
    transaction = environment._env.begin(write=True)
    ready.set()
    time.sleep(20)
    transaction.abort()


def test_what_was_committed_is_there_after_reopening(tmp_path: Path) -> None:
    environment = opened(tmp_path)
    environment.engine("e").put(b"k", b"1")
    environment.set_attribute("note", b"x")
    environment.commit({"topic-with-dash-3": 7}, 4)
    environment.engine("e").put(b"k", b"lost")
    environment.close()
    again = opened(tmp_path)
    assert (again.engine("e").get(b"k"), again.commit_id, dict(again.positions)) == (b"1", 4, {"topic-with-dash-3": 7})
    assert again.attribute("note") == b"x"
    again.close()


def commit_for_ever(path: str, committed: Any) -> None:
    environment = LmdbEnvironment(path, map_bytes=SMALL)
    engine = environment.engine("e")
    for number in range(1_000_000):
        for key in range(20):
            engine.put(b"%02d" % key, b"%d" % number)
        environment.commit({"c-0": number}, number)
        committed.value = number


@pytest.mark.parametrize("after", [1, 40, 150])
def test_a_killed_process_leaves_its_last_commit_whole(tmp_path: Path, after: int) -> None:
    context = multiprocessing.get_context("spawn")
    committed = context.Value("q", -1)
    writer = context.Process(target=commit_for_ever, args=(str(tmp_path), committed))
    writer.start()
    while committed.value < after and writer.is_alive():
        time.sleep(0.001)
    writer.kill()
    writer.join()
    environment = opened(tmp_path)
    assert environment.commit_id >= after and environment.positions["c-0"] == environment.commit_id
    assert {value for _, value in environment.engine("e").range()} == {b"%d" % environment.commit_id}
    environment.close()


def fail_to_write(path: str) -> list[str]:
    environment = LmdbEnvironment(path, map_bytes=SMALL)
    engine = environment.engine("e")
    engine.put(b"small", b"1")
    environment.commit({"c-0": 1}, 1)
    resource.setrlimit(resource.RLIMIT_FSIZE, (512 << 10, resource.RLIM_INFINITY))
    for number in range(20_000):
        engine.put(b"%06d" % number, b"v" * 100)
    said = []
    for attempt in (lambda: environment.commit({"c-0": 2}, 2), lambda: environment.commit({"c-0": 3}, 3), lambda: engine.get(b"small")):
        try:
            attempt()
        except StateStoreError as error:
            said.append(f"{error.fields.get('path')} {error.fields.get('bytes', 0) > 0}")
    resource.setrlimit(resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
    environment.close()
    again = LmdbEnvironment(path, map_bytes=SMALL)
    said.append(f"{again.engine('e').get(b'small')!r} {again.engine('e').get(b'000001')} {again.commit_id} {again.positions['c-0']}")
    again.engine("e").put(b"more", b"v" * 1_000_000)
    again.commit({"c-0": 4}, 4)
    said.append(str(again.commit_id))
    again.close()
    return said


def test_a_file_that_cannot_grow_stops_commits_until_it_is_opened_again(tmp_path: Path) -> None:
    said = in_another_process(fail_to_write, str(tmp_path))
    assert said == [f"{tmp_path} True"] * 3 + ["b'1' None 1 1", "4"]


def test_zombie_commit_is_fenced(tmp_path: Path) -> None:
    zombie = opened(tmp_path)
    zombie.take_ownership("old")
    zombie.engine("e").put(b"k", b"old")
    zombie.commit({"c-0": 1}, 1)
    in_another_process(take_and_commit, str(tmp_path), "new")
    zombie.engine("e").put(b"k", b"zombie")
    with pytest.raises(TaskMigratedError):
        zombie.commit({"c-0": 2}, 2)
    with pytest.raises(StateStoreError):
        zombie.commit({"c-0": 2}, 2)
    zombie.close()
    rows, commit_id, positions, _ = in_another_process(read_snapshot, str(tmp_path))
    assert (rows, commit_id, positions) == ([(b"k", b"new")], 9, {"c-0": 9})


def test_taking_ownership_reads_what_the_former_owner_committed_last(tmp_path: Path) -> None:
    environment = opened(tmp_path)
    in_another_process(take_and_commit, str(tmp_path), "before")
    environment.take_ownership("now")
    assert (environment.commit_id, environment.positions["c-0"], environment.owner) == (9, 9, "now")
    environment.close()


def test_another_process_reads_while_the_task_writes(tmp_path: Path) -> None:
    environment = opened(tmp_path)
    environment.engine("e").put(b"a", b"1")
    environment.engine("f").put(b"x", b"y")
    environment.commit({"c-0": 1}, 1)
    environment.engine("e").put(b"b", b"uncommitted")
    assert in_another_process(read_snapshot, str(tmp_path)) == ([(b"a", b"1")], 1, {"c-0": 1}, ["e", "f"])
    environment.close()


def test_a_snapshot_in_the_owner_s_process_shares_its_handle(tmp_path: Path) -> None:
    environment = opened(tmp_path)
    environment.engine("e").put(b"a", b"1")
    environment.commit({}, 1)
    with LmdbSnapshot(tmp_path) as snapshot:
        rows, complete = snapshot.read("e", limit=1)
    assert (rows, complete) == ([(b"a", b"1")], True)
    environment.engine("e").put(b"b", b"2")
    environment.commit({}, 2)
    environment.close()


def test_a_snapshot_says_when_it_stopped_early(tmp_path: Path) -> None:
    environment = opened(tmp_path)
    environment.restore("e", [b"%03d" % i for i in range(100)], [b"v"] * 100)
    environment.close()
    with LmdbSnapshot(tmp_path) as snapshot:
        rows, complete = snapshot.read("e", limit=99)
        assert (len(rows), complete) == (99, False)
        rows, complete = snapshot.read("e", reverse=True, limit=2)
        assert [key for key, _ in rows] == [b"099", b"098"]


def test_a_missing_store_and_a_missing_directory_are_typed_errors(tmp_path: Path) -> None:
    opened(tmp_path / "there").close()
    with LmdbSnapshot(tmp_path / "there") as snapshot, pytest.raises(InvalidStateStoreError):
        snapshot.read("nope")
    with pytest.raises(InvalidStateStoreError):
        LmdbSnapshot(tmp_path / "nowhere")


def test_a_path_opens_once_per_process(tmp_path: Path) -> None:
    environment = opened(tmp_path)
    with pytest.raises(StateStoreError, match="already open"):
        opened(tmp_path)
    environment.close()
    opened(tmp_path).close()


def test_a_path_is_open_until_it_is_closed_whole(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    environment = opened(tmp_path)
    environment.take_ownership("1/0/1/1/a")
    sync, seen = environment._mark_closed, []

    def meanwhile() -> bool:
        seen.append(lmdb_module.is_open_here(tmp_path))
        with pytest.raises(StateStoreError, match="still being closed in this process"):
            opened(tmp_path)
        return sync()

    monkeypatch.setattr(environment, "_mark_closed", meanwhile)
    environment.close()
    assert seen == [True]
    opened(tmp_path).close()


def test_a_crash_of_the_machine_is_noticed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    environment = opened(tmp_path)
    environment.engine("e").put(b"k", b"1")
    environment.commit({}, 1)
    monkeypatch.setattr(lmdb_module, "boot_id", lambda: b"next boot")
    environment._marked = False  # the process dies: nobody marks it as closed
    environment.close()
    with pytest.raises(TaskCorruptedError, match="machine crashed"):
        opened(tmp_path)


def test_a_reboot_after_a_clean_close_is_trusted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    environment = opened(tmp_path)
    environment.engine("e").put(b"k", b"1")
    environment.commit({}, 1)
    environment.close()
    monkeypatch.setattr(lmdb_module, "boot_id", lambda: b"next boot")
    again = opened(tmp_path)
    assert again.engine("e").get(b"k") == b"1"
    again.close()


@pytest.mark.parametrize("damage", ["zero", "truncate", "garbage", "empty"])
def test_a_damaged_file_is_a_typed_error(tmp_path: Path, damage: str) -> None:
    environment = opened(tmp_path)
    environment.restore("e", [b"%06d" % i for i in range(5000)], [b"v" * 50] * 5000)
    environment.close()
    data = tmp_path / "data.mdb"
    content = bytearray(data.read_bytes())
    if damage == "zero":
        content[:8192] = bytes(8192)
    elif damage == "truncate":
        del content[10_000:]
    elif damage == "garbage":
        content[:8192] = os.urandom(8192)
    data.write_bytes(b"xx" if damage == "empty" else content)
    with pytest.raises(StateStoreError) as raised:
        opened(tmp_path)
    assert raised.value.fields["path"] == str(tmp_path)


def test_a_full_map_is_a_typed_error_and_nothing_is_committed_after_it(tmp_path: Path) -> None:
    environment = LmdbEnvironment(tmp_path, map_bytes=1 << 20)
    engine = environment.engine("e")
    engine.put(b"small", b"1")
    environment.commit({"c-0": 1}, 1)
    engine.put(b"large", b"v" * (2 << 20))
    with pytest.raises(StateStoreError, match="map of this environment is full") as raised:
        environment.commit({"c-0": 2}, 2)
    assert raised.value.fields["path"] == str(tmp_path) and raised.value.fields["bytes"] > 0
    with pytest.raises(StateStoreError):
        environment.commit({"c-0": 3}, 3)
    with pytest.raises(StateStoreError):
        engine.get(b"small")
    environment.close()
    again = opened(tmp_path)
    assert (again.engine("e").get(b"small"), again.engine("e").get(b"large"), again.commit_id) == (b"1", None, 1)
    again.close()


def test_an_environment_does_not_survive_a_fork(tmp_path: Path) -> None:
    environment = opened(tmp_path)
    environment.engine("e").put(b"k", b"1")
    environment.commit({}, 1)
    child = os.fork()
    if child == 0:
        try:
            environment.engine("e").get(b"k")
            os._exit(1)
        except StateStoreError:
            os._exit(0)
    _, status = os.waitpid(child, 0)
    assert os.waitstatus_to_exitcode(status) == 0
    assert environment.engine("e").get(b"k") == b"1"
    environment.close()


def test_a_held_write_lock_is_given_up_after_the_timeout(tmp_path: Path) -> None:
    opened(tmp_path).close()
    context = multiprocessing.get_context("spawn")
    ready = context.Event()
    holder = context.Process(target=hold_write_lock, args=(str(tmp_path), ready))
    holder.start()
    try:
        assert ready.wait(30)
        with pytest.raises(LockedError):
            opened(tmp_path, lock_timeout=0.2)
    finally:
        holder.kill()
        holder.join()
    lmdb_module._OPEN.clear()


def test_the_wait_for_the_lock_when_a_new_store_is_opened_is_bounded_too(tmp_path: Path) -> None:
    environment = opened(tmp_path, lock_timeout=0.2)
    context = multiprocessing.get_context("spawn")
    ready = context.Event()
    holder = context.Process(target=hold_write_lock, args=(str(tmp_path), ready))
    holder.start()
    try:
        assert ready.wait(30)
        with pytest.raises(LockedError):
            environment.engine("new")
        with pytest.raises(StateStoreError, match="was not free"):
            environment.engine("other")
    finally:
        holder.kill()
        holder.join()
    environment.close()


def test_a_new_store_is_opened_when_the_holder_of_the_lock_was_ended(tmp_path: Path) -> None:
    context = multiprocessing.get_context("spawn")
    ready = context.Event()
    holder = context.Process(target=hold_write_lock, args=(str(tmp_path), ready))

    def end(owner: str | None) -> bool:
        holder.kill()
        return True

    environment = opened(tmp_path, lock_timeout=1.0, on_locked=end)
    holder.start()
    assert ready.wait(30)
    environment.engine("new").put(b"k", b"v")
    environment.commit({}, 1)
    assert environment.engine("new").get(b"k") == b"v"
    holder.join()
    environment.close()


def test_a_large_deleted_range_leaves_in_small_steps(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lmdb_engine, "DELETIONS_PER_COMMIT", 10)
    environment = opened(tmp_path)
    environment.restore("e", [b"a%02d" % i for i in range(25)] + [b"b"], [b"v"] * 26)
    engine = environment.engine("e")
    engine.delete_range(b"a", b"b")
    assert list(engine.range()) == [(b"b", b"v")] and engine.get(b"a07") is None
    for commit, left in ((0, 16), (1, 6), (2, 1)):
        environment.commit({}, commit)
        assert list(engine.range()) == [(b"b", b"v")]
        assert engine.approximate_count() == left
    environment.close()


def test_a_copy_has_the_last_commit(tmp_path: Path) -> None:
    environment = opened(tmp_path / "a")
    environment.engine("e").put(b"k", b"1")
    environment.commit({"c-0": 1}, 1)
    environment.copy_to(str(tmp_path / "b"))
    copy = opened(tmp_path / "b")
    assert (copy.engine("e").get(b"k"), copy.commit_id) == (b"1", 1)
    assert environment.reader_check() == 0 and environment.size_on_disk() > 0
    copy.close()
    environment.close()


def test_stores_that_are_not_persistent_start_empty(tmp_path: Path) -> None:
    environment = opened(tmp_path)
    environment.engine("m", persistent=False).put(b"k", b"1")
    environment.commit({}, 1)
    assert environment.engine("m", persistent=False).get(b"k") == b"1"
    environment.close()
    again = opened(tmp_path)
    assert again.engine("m", persistent=False).get(b"k") is None
    again.close()


def test_a_full_map_names_no_setting_that_there_is_not(tmp_path: Path) -> None:
    environment = LmdbEnvironment(tmp_path, map_bytes=1 << 20)
    for number in range(100):
        environment.engine("e").put(b"%d" % number, bytes(100_000))
    with pytest.raises(StateStoreError, match="map of this environment is full") as caught:
        environment.commit({}, 1)
    environment.close()
    assert "ulimit" in str(caught.value.hint)
    assert set(re.findall(r"[a-z]+(?:\.[a-z]+)+", str(caught.value.hint))) <= set(KEYS)


def rewrite(environment: LmdbEnvironment, times: int) -> int:
    """The size of the file after so many commits of the same rows."""
    engine = environment.engine("e")
    for commit in range(times):
        for number in range(500):
            engine.put(b"k%d" % number, b"%04d" % commit * 50)
        environment.commit({}, commit)
        engine.get(b"k0")
    return environment.size_on_disk()


def test_an_iterator_pins_its_rows_on_the_disk_until_it_is_dropped(tmp_path: Path) -> None:
    environment = opened(tmp_path)
    settled = rewrite(environment, 10)
    rows = environment.engine("e").range()
    next(rows)
    pinned = rewrite(environment, 20)
    assert pinned > 2 * settled
    del rows
    assert rewrite(environment, 20) == pinned
    for _ in range(300):
        next(environment.engine("e").range())
        rewrite(environment, 1)
    assert environment.size_on_disk() == pinned
    environment.close()


def test_more_iterators_than_may_be_open_say_what_to_do(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lmdb_module, "MAX_READERS", 8)
    environment = opened(tmp_path)
    rewrite(environment, 1)
    kept = []
    with pytest.raises(StateStoreError, match=r"(?s)iterator kept open.*list") as raised:
        for _ in range(9):
            kept.append(environment.engine("e").range())
            next(kept[-1])
            rewrite(environment, 1)
    assert raised.value.hint
    with pytest.raises(StateStoreError, match="no LMDB reader slot is free"):  # asked before each commit at least once
        environment.owner  # noqa: B018
    kept.clear()
    del raised
    environment.close()


def test_attributes_that_wait_while_a_store_in_memory_is_restored_reach_the_disk(tmp_path: Path) -> None:
    """A task with stores of both kinds: what the take-over noted (topic ids, whose rows they are) was taken for written, and never was."""
    environment = opened(tmp_path / "e")
    environment.take_ownership("me")
    environment.set_attribute("topic-id:a", b"1")
    environment.restore("m", [b"k"], [b"v"], persistent=False)
    environment.rollback()
    environment.set_attribute("topic-id:a", b"1")
    environment.commit({}, 1)
    environment.close()
    environment = opened(tmp_path / "e")
    assert environment.attribute("topic-id:a") == b"1"
    environment.close()


@pytest.mark.parametrize("junk", [b"junk ", b"\0", bytes(range(256))], ids=["text", "zeros", "bytes"])
@pytest.mark.parametrize("start", [0, 8192], ids=["from the beginning", "all pages but the first two"])
@pytest.mark.parametrize("first", ["get", "a long key", "range", "commit"])
def test_junk_over_an_open_file_is_an_error_with_path_and_hint_and_the_file_is_refused_afterwards(
    tmp_path: Path, junk: bytes, start: int, first: str
) -> None:
    """A read raised LMDB's own error, without a word about where and what to do, and the processing handler could skip the record."""
    environment = opened(tmp_path)
    environment.take_ownership("me")
    engine = environment.engine("e")
    for commit in range(2):
        engine.put_many([b"%06d" % (n * 7919 % 2000) for n in range(2000)], [bytes(60)] * 2000)
        environment.commit({}, commit)
    file = tmp_path / "data.mdb"
    size = file.stat().st_size - start
    with file.open("r+b") as data:
        data.seek(start)
        data.write((junk * (size // len(junk) + 1))[:size])
    engine.put(b"new", b"x")
    calls: dict[str, Any] = {
        "get": lambda: engine.get(b"000042"),
        "a long key": lambda: engine.get(b"0" * 600),
        "range": lambda: list(engine.range(b"000001", b"000900")),
        "commit": lambda: environment.commit({}, 3),
    }
    for call in (calls[first], *calls.values()):
        with pytest.raises(StateStoreError) as raised:
            call()
        assert str(tmp_path) in raised.value.message and "resume the application" in str(raised.value.hint)
    environment.close()
    with pytest.raises(TaskCorruptedError, match="corrupted"):
        opened(tmp_path)


@pytest.mark.timeout(30)
@pytest.mark.parametrize(("called", "name"), [("check_head", "b"), ("_file", "a"), ("_file", "b")])
def test_garbage_may_give_its_share_back_while_a_handle_is_opened(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, called: str, name: str
) -> None:
    """A session stood still for ever: the collector ran in the thread that was opening another store's files."""
    for each in ("a", "b"):
        opened(tmp_path / each).close()
    garbage, ordinary = [open_read_only(str(tmp_path / "a"))], getattr(read_only, called)

    def collecting(path: str) -> object:
        while garbage:
            garbage.pop().release()
        return ordinary(path)

    monkeypatch.setattr(read_only, called, collecting)
    handle = open_read_only(str(tmp_path / name))
    assert not handle.outdated and handle.env.stat()["entries"] >= 0
    handle.release()
    assert handle.outdated
