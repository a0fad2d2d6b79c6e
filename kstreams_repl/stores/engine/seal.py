"""Checksums of an environment's pages beside its file, so that damage is noticed before LMDB maps it: a damaged file would crash the
process or, worse, answer.

Why pages and not rows, with figures: docs/design/013-page-seals.md.

`check` looks at a file before it is opened: its head, and each page whose checksum is known. `PageSeal` keeps the checksums of an open one:
after each commit those of the pages it wrote, which are the ones that were free before it or lie behind the former end (LMDB never writes
a page that is in use). The header names the commit; it is written last, so a crash leaves at most one commit whose own pages are not known,
and those are told apart in the same way. Pages of a restore, and those of commits larger than `BUDGET`, are unknown at first; later commits
and a clean close make up for that.
"""

from __future__ import annotations

import os
import struct
import zlib
from array import array
from collections.abc import Callable, Iterable
from contextlib import suppress

from kstreams_repl.stores.engine.failures import corrupted
from kstreams_repl.stores.engine.page_file import NotPagesError, PageFile

BUDGET = 2048
"""Pages per commit; about 2 ms."""
_SPARE = 256
"""Of them, of pages that are not of this commit."""
_MOST_FREE = 100_000
"""With more free pages than that to compare, a commit's own are not looked for."""
_DATA, _SEAL, _FORMER = "data.mdb", "data.pages", "data.crc32"
_HEADER = struct.Struct("=8sIIQI")
_MAGIC = b"KSPAGES1"
_HEADER_BYTES = 64
_BLOCK = 1024
_TRIES = 3
UNKNOWN = 0


def _checksum(page: memoryview) -> int:
    return zlib.crc32(page) or 1


def _header(page_size: int, transaction: int) -> bytes:
    start = _HEADER.pack(_MAGIC, page_size, 0, transaction, 0)[:-4]
    return (start + struct.pack("=I", zlib.crc32(start))).ljust(_HEADER_BYTES, b"\0")


def _read(path: str) -> tuple[int, int, array[int]] | None:
    """(page size, commit, checksums) as they were left; None when there are none that can be used."""
    try:
        with open(os.path.join(path, _SEAL), "rb") as file:
            data = file.read()
        magic, page_size, _, transaction, checksum = _HEADER.unpack_from(data)
    except (OSError, struct.error):
        return None
    if magic != _MAGIC or zlib.crc32(data[: _HEADER.size - 4]) != checksum or not transaction:
        return None
    sums = array("I")
    sums.frombytes(data[_HEADER_BYTES : _HEADER_BYTES + (len(data) - _HEADER_BYTES) // 4 * 4])
    return page_size, transaction, sums


def check(path: str) -> None:
    """Refuse a file that is not what was last committed.

    Another process may be writing: a page that differs counts when no commit came while it was looked at.

    Raises:
        TaskCorruptedError: it is not.
    """
    with suppress(FileNotFoundError):
        os.unlink(os.path.join(path, _FORMER))  # of an earlier release
    if not os.path.exists(os.path.join(path, _DATA)):
        remove_seal(path)
        return
    _check(path, _damage)


def check_head(path: str) -> None:
    """As `check`, for a reader: only what LMDB would crash on at once, whatever the size.

    Raises:
        TaskCorruptedError: the file cannot be read.
    """
    _check(path, _cut_short)


def _check(path: str, look: Callable[[str, PageFile], str | None]) -> None:
    data = os.path.join(path, _DATA)
    if not os.path.getsize(data):
        return
    try:
        pages = PageFile(data)
    except NotPagesError as error:
        raise corrupted(path, str(error)) from error
    try:
        for _ in range(_TRIES):
            began = pages.metas()
            pages.refresh()  # after the commit was looked up: a file that has grown since is no shorter than it needs
            wrong = look(path, pages)
            if wrong is None or pages.metas() == began:
                break
        else:
            return
    except NotPagesError as error:
        wrong = str(error)
    finally:
        pages.close()
    if wrong is not None:
        raise corrupted(path, wrong)


def _cut_short(path: str, pages: PageFile) -> str | None:
    """Pages that were taken and given back within one transaction are never written: free ones may be missing at the end."""
    newest = pages.metas()[0]
    there, needed = len(pages.view) // pages.page_size, newest.last_page + 1
    try:
        if there >= needed or pages.free_pages(newest).issuperset(range(there, needed)):
            return None
    except NotPagesError:
        pass  # it refers to what is not there
    return f"its file has {len(pages.view):,} bytes, its last commit needs {needed * pages.page_size:,}"


def _damage(path: str, pages: PageFile) -> str | None:
    """What is wrong with a file, as far as its checksums tell."""
    newest, before = pages.metas()
    known, wrong = _read(path), _cut_short(path, pages)
    if wrong is not None or known is None or known[0] != pages.page_size:
        return wrong
    _, transaction, sums = known
    if newest.transaction == transaction:
        sealed, first = newest, 0
    elif newest.transaction == transaction + 1 and before.transaction == transaction:
        sealed, first = before, 2  # died between a commit and its seal: the newest meta page is not known
    elif newest.transaction > transaction:
        return None  # written by somebody who keeps no seals
    else:
        return "its last commit is gone"
    try:
        free = pages.free_pages(sealed)
        page = pages.page
        for number in range(first, min(len(sums), sealed.last_page + 1)):
            if sums[number] != UNKNOWN and number not in free and sums[number] != _checksum(page(number)):
                return f"page {number} changed since it was committed"
    except NotPagesError as error:
        return str(error)
    return None


def remove_seal(path: str) -> None:
    for name in (_SEAL, _FORMER):
        with suppress(FileNotFoundError):
            os.unlink(os.path.join(path, name))


class PageSeal:
    """The checksums of an environment that this process has open; for its one writer. Trouble with its file ends it, and nothing else."""

    def __init__(self, path: str) -> None:
        self._path = path
        self._pages: PageFile | None = None
        self._file = -1
        self._transaction = 0
        self._sums = array("I")
        self._free: set[int] = set()
        self._last_page = -1
        self._told = True
        self._next = 0
        try:
            self._pages = PageFile(os.path.join(path, _DATA))
            self._file = os.open(os.path.join(path, _SEAL), os.O_CREAT | os.O_RDWR, 0o600)
        except (OSError, NotPagesError):
            self.close()
            return
        known = _read(path)
        newest, before = self._pages.metas()
        if known is not None and known[0] == self._pages.page_size and known[1] in (newest.transaction, before.transaction):
            sealed = newest if known[1] == newest.transaction else before
            self._sums, self._transaction = known[2], known[1]
            self._free, self._last_page = self._pages.free_pages(sealed), sealed.last_page
        self.follow()

    def follow(self) -> None:
        """A transaction has committed: seal its pages, and some that are not known yet."""
        pages = self._pages
        if pages is None:
            return
        try:
            self._follow(pages)
        except (OSError, NotPagesError):
            self._give_up()

    def forget(self) -> None:
        """A transaction has written more than is worth following: nothing is known until the next `follow`."""
        if self._pages is not None and self._transaction:
            self._transaction = 0
            self._say()

    def close(self, *, finish: bool = False) -> None:
        """End.

        Args:
            finish: nobody writes any more, and all pages are to be known.
        """
        try:
            if finish and self._pages is not None:
                self._follow(self._pages)
                rest = (page for page in range(2, self._last_page + 1) if not self._sums[page] and page not in self._free)
                self._seal(self._pages, rest)
                self._say()
        except (OSError, NotPagesError):
            self._give_up()
        pages, self._pages = self._pages, None
        if pages is not None:
            pages.close()
        file, self._file = self._file, -1
        if file >= 0:
            os.close(file)

    # ---- inside

    def _follow(self, pages: PageFile) -> None:
        pages.refresh()
        newest, _ = pages.metas()
        if newest.transaction == self._transaction:
            return
        followed = newest.transaction == self._transaction + 1 and len(self._free) < _MOST_FREE
        free = pages.free_pages(newest)
        end = newest.last_page + 1
        if len(self._sums) < end:
            self._sums.extend([UNKNOWN] * (end - len(self._sums)))
        written: list[int] = []
        if followed:
            written = [*(self._free - free), *range(self._last_page + 1, end)]
            for number in written[BUDGET:]:
                self._sums[number] = UNKNOWN
        else:
            self._sums, self._next = array("I", bytes(4 * end)), 2
        spare = min(_SPARE, max(0, BUDGET - len(written)))
        self._free, self._last_page, self._transaction = free, newest.last_page, newest.transaction
        self._told = self._told and followed
        self._seal(pages, [0, 1, *written[:BUDGET], *self._unknown(spare)], written[BUDGET:])
        self._say()

    def _unknown(self, most: int) -> list[int]:
        """Some pages in use that are not known yet."""
        found: list[int] = []
        sums, free, end = self._sums, self._free, self._last_page + 1
        while most and len(found) < most and self._next < end:
            try:
                at = sums.index(UNKNOWN, self._next, end)
            except ValueError:
                self._next = end
                break
            self._next = at + 1
            if at not in free:
                found.append(at)
        return found

    def _seal(self, pages: PageFile, numbers: Iterable[int], unknown: Iterable[int] = ()) -> None:
        """Take checksums and write the blocks of the file that they are in."""
        sums, view, size = self._sums, pages.view, pages.page_size
        end = len(view) // size
        blocks = {number // _BLOCK for number in unknown}
        for number in numbers:
            start = number * size
            sums[number] = _checksum(view[start : start + size]) if number < end else UNKNOWN
            blocks.add(number // _BLOCK)
        if not self._told:  # what lies in the file is of pages that were not followed
            blocks, self._told = set(range(len(sums) // _BLOCK + 1)), True
        for block in blocks:
            os.pwrite(self._file, sums[block * _BLOCK : (block + 1) * _BLOCK].tobytes(), _HEADER_BYTES + 4 * block * _BLOCK)

    def _say(self) -> None:
        assert self._pages is not None
        os.pwrite(self._file, _header(self._pages.page_size, self._transaction), 0)

    def _give_up(self) -> None:
        self._transaction = 0
        with suppress(OSError):
            remove_seal(self._path)
        pages, self._pages = self._pages, None
        if pages is not None:
            pages.close()
