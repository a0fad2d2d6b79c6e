"""Checks of an environment's file before LMDB maps it: a damaged file would crash the process or, worse, answer.

Two checks. The *head* is read at every open: page size, magic numbers, and that the file is as long as its last commit says. A *seal* is a
checksum of the whole file, written at a clean close and verified and removed at the next open; files over `SEAL_BYTES` go without.
"""

from __future__ import annotations

import os
import struct
import zlib
from contextlib import suppress

from kstreams_repl.stores.engine.failures import corrupted

SEAL_BYTES = 256 << 20
_DATA, _SEAL = "data.mdb", "data.crc32"
_MAGIC, _VERSION = 0xBEEFC0DE, 1
_META = struct.Struct("=16xIIQQI")
_LAST_PAGE_AND_TRANSACTION = struct.Struct("=QQ")
_LAST_PAGE_AT = 16 + 120
_CHUNK = 1 << 20


def check(path: str) -> None:
    """Refuse a file that cannot be what was last committed, and take its seal off.

    Raises:
        TaskCorruptedError: it cannot.
    """
    data = os.path.join(path, _DATA)
    if not os.path.exists(data):
        remove_seal(path)
        return
    size = os.path.getsize(data)
    if size:
        _check_head(path, data, size)
    seal = os.path.join(path, _SEAL)
    if os.path.exists(seal):
        with open(seal, encoding="ascii", errors="replace") as file:
            expected = file.read().strip()
        if f"{_checksum(data):08x}" != expected:
            raise corrupted(path, "its contents changed since it was closed")
        remove_seal(path)


def _check_head(path: str, data: str, size: int) -> None:
    with open(data, "rb") as file:
        head = file.read(256)
        if len(head) < 256:
            raise corrupted(path, f"its file has only {size} bytes")
        page_size = _META.unpack_from(head)[4]
        if page_size < 512 or page_size & (page_size - 1) or page_size > 65536:
            raise corrupted(path, "its first page is damaged")
        file.seek(page_size)
        pages = [head, file.read(256)]
    newest = (-1, 0)
    for page in pages:
        if len(page) < 256 or _META.unpack_from(page)[:2] != (_MAGIC, _VERSION):
            raise corrupted(path, "its first pages are damaged")
        last_page, transaction = _LAST_PAGE_AND_TRANSACTION.unpack_from(page, _LAST_PAGE_AT)
        newest = max(newest, (transaction, last_page))
    if (newest[1] + 1) * page_size > size:
        raise corrupted(path, f"its file has {size:,} bytes, its last commit needs {(newest[1] + 1) * page_size:,}")


def seal(path: str) -> None:
    """Leave the checksum of a closed environment's file beside it."""
    data = os.path.join(path, _DATA)
    if os.path.getsize(data) > SEAL_BYTES:
        return
    with open(os.path.join(path, _SEAL), "w", encoding="ascii") as file:
        file.write(f"{_checksum(data):08x}\n")


def remove_seal(path: str) -> None:
    with suppress(FileNotFoundError):
        os.unlink(os.path.join(path, _SEAL))


def _checksum(data: str) -> int:
    checksum = 0
    with open(data, "rb") as file:
        while chunk := file.read(_CHUNK):
            checksum = zlib.crc32(chunk, checksum)
    return checksum
