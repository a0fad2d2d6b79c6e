"""Class data sharing (CDS) archives of the two JVMs, Spark's and the embedded broker's, which halve the JVM's start time.

A JVM started with `sharing_flags` maps the classes of its archive instead of loading and verifying them. ``kstreams prepare`` creates the
archives: it runs a small application once with ``$KSTREAMS_MAKE_ARCHIVES`` set, and each JVM writes its archive when it ends. An archive
belongs to one Java and one class path; the JVM checks both, and runs without an archive that does not match.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterable
from pathlib import Path

from kstreams_repl.system.java import JavaRuntime, shim_cache

MAKE_VARIABLE = "KSTREAMS_MAKE_ARCHIVES"
KEPT_ARCHIVES = 4
"""Spark's archive takes 170 MB, the broker's 60; archives of removed environments are never used again."""

_QUIET = ("-Xlog:disable", "-Xlog:all=error:stderr")
"""The JVM would print to standard output why it does not use an archive."""


def archive_directory() -> Path:
    """Return the directory of archives: next to the broker's jars, in this user's cache."""
    return shim_cache().parent / "classes"


def archive_path(name: str, java: JavaRuntime, class_path: Iterable[Path]) -> Path:
    """Return the path of a JVM's archive, whether it exists or not.

    Args:
        name: name of the program, to make the directory readable for people.
        java: the runtime that runs it.
        class_path: its jars, or the directory that contains them.
    """
    versions = "\n".join([str(java.home), java.version, *map(str, class_path)])
    return archive_directory() / f"{name}-{hashlib.sha256(versions.encode()).hexdigest()[:16]}.jsa"


def making_archives() -> bool:
    """Return whether this process runs to create archives."""
    return bool(os.environ.get(MAKE_VARIABLE))


def sharing_flags(archive: Path) -> tuple[str, ...]:
    """Return the JVM's flags to use an archive, or to write it if archives are being created; empty if there is none."""
    if making_archives():
        return (f"-XX:ArchiveClassesAtExit={archive}", *_QUIET)
    return (f"-XX:SharedArchiveFile={archive}", *_QUIET) if archive.is_file() else ()


def forget_old_archives() -> None:
    """Delete all archives except the newest few."""
    found = sorted(archive_directory().glob("*.jsa"), key=lambda path: path.stat().st_mtime, reverse=True)
    for path in found[KEPT_ARCHIVES:]:
        path.unlink(missing_ok=True)
