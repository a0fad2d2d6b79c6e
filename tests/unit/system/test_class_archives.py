"""Which flags a JVM gets for its class archive."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from kstreams_repl.system import class_archives
from kstreams_repl.system.class_archives import archive_path, forget_old_archives, sharing_flags
from kstreams_repl.system.java import JavaRuntime


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("KSTREAMS_CACHE", str(tmp_path))
    monkeypatch.delenv(class_archives.MAKE_VARIABLE, raising=False)
    (tmp_path / "classes").mkdir()
    return tmp_path / "classes"


def java(version: str) -> JavaRuntime:
    return JavaRuntime(Path("/java"), version, frozenset(), "PATH")


def test_an_archive_belongs_to_one_java_and_one_class_path() -> None:
    jars = [Path("a.jar"), Path("b.jar")]
    assert archive_path("kafka", java("17.0.1"), jars) == archive_path("kafka", java("17.0.1"), jars)
    assert archive_path("kafka", java("17.0.2"), jars) != archive_path("kafka", java("17.0.1"), jars)
    assert archive_path("kafka", java("17.0.1"), jars[:1]) != archive_path("kafka", java("17.0.1"), jars)


def test_an_archive_is_used_once_it_is_there(cache: Path) -> None:
    archive = archive_path("kafka", java("17"), [Path("a.jar")])
    assert sharing_flags(archive) == ()
    archive.touch()
    assert f"-XX:SharedArchiveFile={archive}" in sharing_flags(archive)


def test_a_jvm_writes_its_archive_only_when_told_to(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(class_archives.MAKE_VARIABLE, "1")
    archive = archive_path("kafka", java("17"), [Path("a.jar")])
    assert f"-XX:ArchiveClassesAtExit={archive}" in sharing_flags(archive)


def test_archives_of_environments_that_are_gone_are_removed(cache: Path) -> None:
    for age in range(6):
        path = cache / f"spark-{age}.jsa"
        path.touch()
        os.utime(path, (1000 - age, 1000 - age))
    forget_old_archives()
    assert sorted(path.name for path in cache.iterdir()) == [f"spark-{age}.jsa" for age in range(4)]
