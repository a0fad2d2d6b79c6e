"""Snapshots over file systems of fsspec: one of this host, one in memory (as an object store has no directories), and a server at
the other end of a socket. And what is told when one does not work.
"""

from __future__ import annotations

import os
import threading
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from kstreams_repl.engine.stores.engine.lmdb import LmdbEnvironment
from kstreams_repl.host.instance.state.snapshot_directory import (
    LocalDirectory,
    RemoteDirectory,
    SnapshotDirectory,
    check_directory,
    shown_address,
    snapshot_directory,
)
from kstreams_repl.host.instance.state.snapshots import Snapshotter, fetch_snapshot, manifests, prune
from kstreams_repl.system.errors import ConfigError, SnapshotError
from tests.unit.host.instance.snapshot_copies import take_snapshot

fsspec = pytest.importorskip("fsspec")


@pytest.fixture
def ftp(tmp_path: Path) -> Iterator[str]:
    """An FTP server on loopback; its address, with a user who may write and one who may only read."""
    pytest.importorskip("pyftpdlib")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # it is built on asyncore
        from pyftpdlib.authorizers import DummyAuthorizer
        from pyftpdlib.handlers import FTPHandler
        from pyftpdlib.ioloop import IOLoop
        from pyftpdlib.servers import FTPServer

    root = tmp_path / "ftp"
    root.mkdir()
    authorizer = DummyAuthorizer()
    authorizer.add_user("writer", "secret", str(root), perm="elradfmwMT")
    authorizer.add_user("reader", "secret", str(root), perm="elr")
    handler = type("Handler", (FTPHandler,), {"authorizer": authorizer})
    server = FTPServer(("127.0.0.1", 0), handler, ioloop=IOLoop())
    over = threading.Event()

    def serve() -> None:
        while not over.is_set():
            server.serve_forever(timeout=0.05, blocking=False)
        server.close_all()

    thread = threading.Thread(target=serve)
    thread.start()
    yield f"127.0.0.1:{server.address[1]}"
    over.set()
    thread.join()


@pytest.fixture(params=["local", "memory", "ftp"])
def directory(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[SnapshotDirectory]:
    if request.param == "memory":
        files = fsspec.filesystem("memory", skip_instance_cache=True)
        yield RemoteDirectory(files, f"/{tmp_path.name}")
        files.store.clear()
        return
    if request.param == "ftp":
        address = f"ftp://writer:secret@{request.getfixturevalue('ftp')}/kept"
    else:
        address = f"local://{tmp_path}/kept"
    yield snapshot_directory(address)


def stored(path: Path, number: int) -> LmdbEnvironment:
    environment = LmdbEnvironment(path) if path.exists() else made(path)
    environment.engine("counts").put(b"k", b"%d" % number)
    environment.commit({"log-0": number}, commit_id=number)
    return environment


def made(path: Path) -> LmdbEnvironment:
    path.mkdir(parents=True)
    return LmdbEnvironment(path)


def anything(manifest: Any) -> None:
    return None


def test_a_snapshot_goes_there_and_comes_back(directory: SnapshotDirectory, tmp_path: Path) -> None:
    check_directory(directory)
    assert directory.children("app/0_0") == []
    environment = stored(tmp_path / "store", 1)
    first = take_snapshot(environment, directory, "app", "0_0", tmp_path / "work")
    environment.close()
    environment = stored(tmp_path / "store", 2)
    second = take_snapshot(environment, directory, "app", "0_0", tmp_path / "work")
    environment.close()
    assert [made.commit_id for made in manifests(directory, "app", "0_0")] == [2, 1]
    fetched = fetch_snapshot(directory, "app", "0_0", tmp_path / "new", anything)
    assert fetched == second
    copy = LmdbEnvironment(tmp_path / "new")
    assert (copy.engine("counts").get(b"k"), copy.positions, copy.commit_id) == (b"2", {"log-0": 2}, 2)
    copy.close()
    prune(directory, "app", "0_0", 1)
    assert directory.children("app/0_0") == [second.name]
    assert first.name != second.name


def test_what_never_was_there_may_be_removed(directory: SnapshotDirectory) -> None:
    directory.remove("app/0_0/none")
    with pytest.raises(FileNotFoundError):
        directory.read("app/0_0/none")


def test_an_unknown_protocol_names_what_is_wanted() -> None:
    with pytest.raises(ConfigError, match="s4") as raised:
        snapshot_directory("s4://bucket/path")
    assert raised.value.fields["key"] == "repl.snapshot.dir"
    assert "local directory" in str(raised.value)


def test_a_memory_that_goes_with_its_process_is_no_place_for_snapshots() -> None:
    with pytest.raises(ConfigError, match="each process"):
        snapshot_directory("memory://kept")


@pytest.mark.parametrize("address", ["{0}/file/kept", "local://{0}/file/kept", "/proc/none/kept", "local:///proc/none/kept"])
def test_a_path_that_cannot_be_made_is_told_with_a_way_out(address: str, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("no directory")
    with pytest.raises(SnapshotError, match="writing") as raised:
        check_directory(snapshot_directory(address.format(tmp_path)))
    assert "create the directory" in str(raised.value)


def test_a_server_that_does_not_let_us_write_is_told_without_the_password(ftp: str) -> None:
    with pytest.raises(SnapshotError) as raised:
        check_directory(snapshot_directory(f"ftp://reader:secret@{ftp}/kept"))
    assert "reader:***@" in str(raised.value) and "secret" not in str(raised.value)
    with pytest.raises(SnapshotError, match="530|incorrect|Authentication") as refused:
        check_directory(snapshot_directory(f"ftp://reader:wrong@{ftp}/kept"))
    assert "credentials" in str(refused.value)


def test_a_server_that_is_away_is_told_and_asked_again_later(tmp_path: Path) -> None:
    import socket

    with socket.socket() as away:  # bound, so that no other process listens there, and not listening
        away.bind(("127.0.0.1", 0))
        directory = snapshot_directory(f"ftp://127.0.0.1:{away.getsockname()[1]}/kept")
        for _ in range(2):
            with pytest.raises(SnapshotError, match="refused"):
                directory.children("app")


def test_a_snapshotter_tells_what_is_wrong_and_stops_telling_when_it_is_mended(tmp_path: Path) -> None:
    blocked = tmp_path / "kept"
    blocked.write_text("in the way")
    environment = stored(tmp_path / "store", 1)
    snapshotter = Snapshotter(
        [("0_0", environment)], snapshot_directory(str(blocked)), "app", seconds=0.01, keep=1, work=tmp_path / "work"
    ).start()
    settle(lambda: snapshotter.error is not None and "create the directory" in snapshotter.error)
    blocked.unlink()
    settle(lambda: snapshotter.taken == {"0_0": 1})
    assert snapshotter.error is None
    snapshotter.close()
    environment.close()


def settle(condition: Any) -> None:
    waited = threading.Event()
    for _ in range(1000):
        if condition():
            return
        waited.wait(0.01)
    raise AssertionError("never")


def test_passwords_in_addresses_are_not_shown() -> None:
    assert shown_address("sftp://me:secret@host:22/dir") == "sftp://me:***@host:22/dir"
    assert shown_address("s3://bucket/path") == "s3://bucket/path"


def test_what_is_made_in_a_local_directory_is_for_its_user_alone(tmp_path: Path) -> None:
    before = os.umask(0o022)
    try:
        local = LocalDirectory(tmp_path / "snapshots")
        local.publish("app/0_0/5/manifest.json", b"{}")
        (tmp_path / "rows").write_bytes(b"rows")
        local.upload(tmp_path / "rows", "app/0_1/5/data")
    finally:
        os.umask(before)
    made = [tmp_path / "snapshots", *(path for path in (tmp_path / "snapshots").rglob("*") if path.is_dir())]
    assert len(made) == 6 and not any(path.stat().st_mode & 0o077 for path in made)
