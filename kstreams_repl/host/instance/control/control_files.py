"""Small JSON files that are replaced atomically, and the reserve of disk blocks that lets the last of them be written on a full disk."""

from __future__ import annotations

import json
from contextlib import suppress
from pathlib import Path

from kstreams_repl.engine.commit.failpoints import failpoint
from kstreams_repl.system.disk_errors import is_full
from kstreams_repl.system.files import replacing
from kstreams_repl.system.types import JsonMapping, JsonObject

RESERVE_BYTES = 16 * 1024


def write_whole(path: Path, content: JsonMapping) -> None:
    """Replace a small file atomically; a reader sees the old or the new content.

    Raises:
        OSError: it could not be written; the old content stays.
    """
    with replacing(path) as file:
        file.write(json.dumps(content).encode())
        failpoint("F10")


def write_if_room(path: Path, content: JsonMapping) -> bool:
    """Call `write_whole`; return False, and keep the old content, when the disk is full."""
    try:
        write_whole(path, content)
    except OSError as error:
        if not is_full(error):
            raise
        return False
    return True


def keep_reserve(path: Path) -> None:
    """Reserve the disk blocks that `write_last_word` to this file will need when the disk is full."""
    reserve = _reserve_of(path)
    if not reserve.exists():
        with suppress(OSError):
            reserve.write_bytes(b" " * RESERVE_BYTES)


def write_last_word(path: Path, content: JsonMapping) -> None:
    """Call `write_whole`; on a full disk the reserve becomes the file.

    Raises:
        OSError: there is no reserve either.
    """
    try:
        write_whole(path, content)
    except OSError as error:
        if not is_full(error):
            raise
        text = json.dumps(content).encode()
        reserve = _reserve_of(path)
        if len(text) > RESERVE_BYTES or not reserve.exists():
            raise
        with reserve.open("r+b") as file:
            file.write(text)
            file.truncate()
        reserve.replace(path)


def read_whole(path: Path) -> JsonObject | None:
    """Return the content of a file written by `write_whole`; None when it is missing or invalid."""
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return None
    return content if isinstance(content, dict) else None


def _reserve_of(path: Path) -> Path:
    return path.with_name(f".{path.name}.reserve")
