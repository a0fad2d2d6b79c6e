"""The pinned class path: fetched once, verified always. The mirror is a real HTTP server on loopback."""

from __future__ import annotations

import functools
import gc
import hashlib
import http.server
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from kstreams_repl.host.kafka.embedded import jars
from kstreams_repl.host.kafka.embedded.jars import LockedJar, cache_directory, ensure_jars, locked_jars, missing_jars, parse_lock
from kstreams_repl.system.errors import EmbeddedBrokerError
from tests.disks import SmallDisk, small_disk

__all__ = ["small_disk"]

CONTENT = {"one": b"first jar" * 1000, "two": b"second jar" * 2000}


class _Handler(http.server.SimpleHTTPRequestHandler):
    def log_message(self, *arguments: object) -> None:
        pass


@pytest.fixture
def repository(tmp_path: Path) -> Iterator[tuple[Path, str]]:
    """A Maven repository of two small jars, served on loopback: its folder and its address."""
    root = tmp_path / "repository"
    for name, content in CONTENT.items():
        folder = root / "org" / "example" / name / "1.0"
        folder.mkdir(parents=True)
        (folder / f"{name}-1.0.jar").write_bytes(content)
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), functools.partial(_Handler, directory=str(root)))
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    yield root, f"http://127.0.0.1:{server.server_port}"
    server.shutdown()
    server.server_close()
    thread.join()


@pytest.fixture(autouse=True)
def small_lock(monkeypatch: pytest.MonkeyPatch) -> None:
    pinned = tuple(LockedJar("org.example", name, "1.0", len(data), hashlib.sha256(data).hexdigest()) for name, data in CONTENT.items())
    monkeypatch.setattr(jars, "locked_jars", lambda: pinned)


def test_the_committed_lock_pins_a_broker_and_nothing_of_streams() -> None:
    locked = locked_jars()
    assert {"kafka_2.13", "kafka-clients", "kafka-storage", "lz4-java", "zstd-jni", "snappy-java"} <= {jar.artifact for jar in locked}
    assert not any("rocksdb" in jar.artifact or "streams" in jar.artifact for jar in locked)
    assert {jar.version for jar in locked if jar.group == "org.apache.kafka"} == {jars.KAFKA_VERSION}
    assert all(len(jar.sha256) == 64 and jar.size > 0 for jar in locked)
    assert 30_000_000 < sum(jar.size for jar in locked) < 50_000_000


def test_the_lock_is_read_line_by_line() -> None:
    assert parse_lock("# a comment\n\na.b:c:1.2  10 abc\n") == (LockedJar("a.b", "c", "1.2", 10, "abc"),)
    (jar,) = parse_lock("a.b:c:1.2 10 abc CC0-1.0 OR BSD-2-Clause\n")
    assert jar.licence == "CC0-1.0 OR BSD-2-Clause"


def test_missing_jars_are_fetched_from_the_mirror_with_progress_and_only_once(
    repository: tuple[Path, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[tuple[str, int, int]] = []
    cache, total = tmp_path / "cache", sum(map(len, CONTENT.values()))
    paths = ensure_jars(cache, mirror=repository[1] + "/", progress=lambda *step: seen.append(step))
    assert [path.read_bytes() for path in paths] == list(CONTENT.values())
    assert {name for name, _, _ in seen} == {"one-1.0.jar", "two-1.0.jar"} and seen[-1][1:] == (total, total)
    monkeypatch.setattr(jars, "_fetch_one", pytest.fail)
    assert ensure_jars(cache, progress=lambda *step: pytest.fail("nothing was missing")) == paths
    assert sorted(path.name for path in cache.iterdir()) == ["one-1.0.jar", "two-1.0.jar"]


def test_the_mirror_may_come_from_the_environment(repository: tuple[Path, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(jars.MIRROR_VARIABLE, repository[1])
    assert len(ensure_jars(tmp_path / "cache")) == 2


def test_a_jar_damaged_in_the_cache_is_fetched_again(repository: tuple[Path, str], tmp_path: Path) -> None:
    cache = tmp_path / "cache"
    first, _ = ensure_jars(cache, mirror=repository[1])
    damaged = bytearray(CONTENT["one"])
    damaged[7] ^= 1
    first.write_bytes(damaged)
    assert [jar.artifact for jar in missing_jars(cache)] == ["one"]
    ensure_jars(cache, mirror=repository[1])
    assert first.read_bytes() == CONTENT["one"]


def test_a_mirror_with_another_jar_is_refused_and_its_jar_never_reaches_the_cache(repository: tuple[Path, str], tmp_path: Path) -> None:
    evil = repository[0] / "org" / "example" / "two" / "1.0" / "two-1.0.jar"
    evil.write_bytes(b"evil jar!!" * 2000)
    with pytest.raises(EmbeddedBrokerError, match="two-1.0.jar is not the one that jars.lock pins"):
        ensure_jars(tmp_path / "cache", mirror=repository[1])
    assert not (tmp_path / "cache" / "two-1.0.jar").exists()


@pytest.mark.filterwarnings("ignore::ResourceWarning")  # jgo leaves the connection of a refused download to the garbage collector
def test_a_jar_that_cannot_be_fetched_names_the_settings_that_help(repository: tuple[Path, str], tmp_path: Path) -> None:
    (repository[0] / "org" / "example" / "two" / "1.0" / "two-1.0.jar").unlink()
    with pytest.raises(EmbeddedBrokerError, match="two-1.0.jar could not be fetched") as caught:
        ensure_jars(tmp_path / "cache", mirror=repository[1])
    assert jars.MIRROR_VARIABLE in str(caught.value)
    del caught
    gc.collect()


def test_the_cache_is_where_the_environment_says(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "xdg"))
    monkeypatch.delenv(jars.CACHE_VARIABLE, raising=False)
    assert cache_directory() == tmp_path / "xdg" / "kstreams_repl" / "jars"
    monkeypatch.setenv(jars.CACHE_VARIABLE, str(tmp_path / "own"))
    assert cache_directory() == tmp_path / "own" / "jars"


def test_a_cache_on_a_full_disk_is_told_with_what_is_needed_and_no_half_jar_stays(
    repository: tuple[Path, str], small_disk: Callable[[int], SmallDisk]
) -> None:
    disk = small_disk(1)
    disk.fill()
    expected = r"not enough disk space for the broker's jars in .*/jars: 0\.0 MB free, 0 MB needed"
    with pytest.raises(EmbeddedBrokerError, match=expected) as caught:
        ensure_jars(disk.path / "jars", mirror=repository[1])
    assert caught.value.path == str(disk.path / "jars")
    assert caught.value.needed_bytes == 2 * sum(map(len, CONTENT.values()))
    assert "KSTREAMS_CACHE" in (caught.value.hint or "")
    assert list((disk.path / "jars").glob("*")) == []
    disk.make_room(2)
    assert all(path.exists() for path in ensure_jars(disk.path / "jars", mirror=repository[1]))
