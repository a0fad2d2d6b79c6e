"""A disk that can be full: a small tmpfs of the test's own, mounted for real."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest


class SmallDisk:
    """A mounted tmpfs."""

    def __init__(self, path: Path, megabytes: int) -> None:
        self.path = path
        self._ballast = path / "ballast"
        _mount("-t", "tmpfs", "-o", f"size={megabytes}m,mode=0700", "tmpfs", str(path))

    def fill(self, *, leave: int = 0) -> None:
        """Take all room but so many bytes."""
        with self._ballast.open("ab", buffering=0) as file:
            while (rest := self.free - leave) > 0:
                try:
                    file.write(bytes(min(rest, 1 << 20)))
                except OSError:
                    return

    def make_room(self, megabytes: int) -> None:
        """Put in a larger disk."""
        self._ballast.unlink(missing_ok=True)
        _mount("-o", f"remount,size={megabytes}m", str(self.path))

    @property
    def free(self) -> int:
        told = os.statvfs(self.path)
        return told.f_bavail * told.f_frsize

    def close(self) -> None:
        subprocess.run(["umount", "-l", str(self.path)], check=True, capture_output=True)


def _mount(*arguments: str) -> None:
    done = subprocess.run(["mount", *arguments], capture_output=True, text=True)
    if done.returncode:
        raise PermissionError(done.stderr.strip() or "mount is not permitted")


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Callable[[int], SmallDisk]]:
    """Makes disks of so many megabytes; skips the test where nobody may mount."""
    made: list[SmallDisk] = []

    def make(megabytes: int) -> SmallDisk:
        path = tmp_path / f"disk-{len(made)}"
        path.mkdir()
        try:
            made.append(SmallDisk(path, megabytes))
        except (PermissionError, FileNotFoundError) as error:
            pytest.skip(f"a tmpfs cannot be mounted here: {error}")
        return made[-1]

    yield make
    for disk in made:
        disk.close()
