"""A snapshot as of the last commit, without the thread that takes them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from kstreams_repl.host.instance.state.snapshots import Manifest, SnapshotDirectory, publish_copy


def take_snapshot(environment: Any, directory: SnapshotDirectory, application_id: str, task: str, work: Path) -> Manifest:
    """Copy an open LMDB environment into `work`, and publish the copy."""
    environment.copy_to(str(work / "copy"))
    published = publish_copy(work / "copy", directory, application_id, task)
    for entry in (work / "copy").iterdir():
        entry.unlink()
    (work / "copy").rmdir()
    return published
