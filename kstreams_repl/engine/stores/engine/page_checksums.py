"""Checksums of an environment's pages in a file next to it, so that damage is detected before LMDB maps the file: a damaged file
would crash the process or, worse, return wrong rows.

For why pages and not rows, with figures, see docs/design/013-page-checksums.md.

`check` verifies a file before it is opened: its head, and each page whose checksum is known. `PageSeal` maintains the checksums of
an open file: after each commit, those of the pages it wrote, which are the ones that were free before or lie behind the former end
(LMDB never writes a page that is in use). The header names the commit and is written last, so after a crash only the pages of one
commit can lack checksums, and they are recognised in the same way. Pages written by a restore or by commits larger than `BUDGET`
have no checksum at first; later commits and a clean close add them.
"""

from __future__ import annotations

import os
import struct
import zlib
from array import array
from collections.abc import Callable, Iterable
from contextlib import suppress

from kstreams_repl.engine.stores.engine.failures import corrupted
from kstreams_repl.engine.stores.engine.lmdb_pages import FreeLists, NotPagesError, PageFile, changed_pages, pages_of

BUDGET = 2048
"""Pages to checksum per commit; takes about 2 ms."""
_SPARE = 256
"""How many of these may be pages of earlier commits that have no checksum yet."""
_MOST_FREE = 250_000
"""Above this number of free pages, the pages of a commit are not determined, because comparing the lists costs too much."""
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
    """Return (page size, commit, checksums) from the checksum file; None if it is missing or unusable."""
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
    """Raise if a file is not what was last committed.

    Another process may be writing: a page that differs counts only if no commit happened during the check.

    Raises:
        TaskCorruptedError: the file is damaged.
    """
    with suppress(FileNotFoundError):
        os.unlink(os.path.join(path, _FORMER))  # written by an earlier release
    if not os.path.exists(os.path.join(path, _DATA)):
        remove_seal(path)
        return
    _check(path, _find_damage)


def check_head(path: str) -> None:
    """Check, for a reader, only the damage on which LMDB would crash at once; the cost does not depend on the file's size.

    Raises:
        TaskCorruptedError: the file cannot be read.
    """
    _check(path, _find_truncation)


def _check(path: str, find: Callable[[str, PageFile], str | None]) -> None:
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
            pages.refresh()  # after the commit was read: the file may have grown since, so its length is at least what the commit needs
            wrong = find(path, pages)
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


def _find_truncation(path: str, pages: PageFile) -> str | None:
    """Return an error text if the file is too short. Pages allocated and freed within one transaction are never written, so free
    pages may be missing at the end."""
    newest = pages.metas()[0]
    there, needed = len(pages.view) // pages.page_size, newest.last_page + 1
    try:
        if there >= needed or pages.free_pages(newest).issuperset(range(there, needed)):
            return None
    except NotPagesError:
        pass  # the tree of free pages refers to pages that do not exist
    return f"its last commit needs {needed * pages.page_size:,} bytes, its file has {len(pages.view):,}"


def _find_damage(path: str, pages: PageFile) -> str | None:
    """Return an error text if the file is damaged, as far as its checksums tell."""
    newest, before = pages.metas()
    known, wrong = _read(path), _find_truncation(path, pages)
    if wrong is not None or known is None or known[0] != pages.page_size:
        return wrong
    _, transaction, sums = known
    if newest.transaction == transaction:
        sealed, first = newest, 0
    elif newest.transaction == transaction + 1 and before.transaction == transaction:
        sealed, first = before, 2  # crashed between a commit and its seal: the newest meta page has no checksum
    elif newest.transaction > transaction:
        return None  # written by a release that keeps no checksums
    else:
        return "its last commit is missing"
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
    """The checksums of an environment that this process has open, maintained for its one writer. An error in the checksum file
    disables them and has no other effect."""

    def __init__(self, path: str) -> None:
        self._path = path
        self._pages: PageFile | None = None
        self._file = -1
        self._transaction = 0
        self._sums = array("I")
        self._free: set[int] = set()
        self._lists: FreeLists = {}
        self._last_page = -1
        self._file_complete = True
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
            self._lists, self._last_page = self._pages.free_lists(sealed), sealed.last_page
            self._free = pages_of(self._lists)
        self.follow()

    def follow(self) -> None:
        """Add the checksums of the transaction that was just committed, and of some pages that have none yet."""
        pages = self._pages
        if pages is None:
            return
        try:
            self._follow(pages)
        except (OSError, NotPagesError):
            self._disable()

    def forget(self) -> None:
        """Mark all checksums as unknown until the next `follow`, because a transaction wrote too many pages to follow."""
        if self._pages is not None and self._transaction:
            self._transaction = 0
            self._write_header()

    def close(self, *, finish: bool = False) -> None:
        """Close the files.

        Args:
            finish: first add the checksums of all pages; only when nothing writes any more.
        """
        try:
            if finish and self._pages is not None:
                self._follow(self._pages)
                rest = (page for page in range(2, self._last_page + 1) if not self._sums[page] and page not in self._free)
                self._seal(self._pages, rest)
                self._write_header()
        except (OSError, NotPagesError):
            self._disable()
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
        lists = pages.free_lists(newest)
        end = newest.last_page + 1
        if len(self._sums) < end:
            self._sums.extend([UNKNOWN] * (end - len(self._sums)))
        written: list[int] = []
        if followed:
            taken, freed = changed_pages(self._lists, lists)
            self._free |= freed
            self._free -= taken
            written = [*taken, *range(self._last_page + 1, end)]
            for number in written[BUDGET:]:
                self._sums[number] = UNKNOWN
        else:
            self._sums, self._next, self._free = array("I", bytes(4 * end)), 2, pages_of(lists)
        spare = min(_SPARE, max(0, BUDGET - len(written)))
        self._lists, self._last_page, self._transaction = lists, newest.last_page, newest.transaction
        self._file_complete = self._file_complete and followed
        self._seal(pages, [0, 1, *written[:BUDGET], *self._unknown(spare)], written[BUDGET:])
        self._write_header()

    def _unknown(self, most: int) -> list[int]:
        """Return at most `most` pages that are in use and have no checksum yet."""
        pages: list[int] = []
        sums, free, end = self._sums, self._free, self._last_page + 1
        while most and len(pages) < most and self._next < end:
            try:
                page = sums.index(UNKNOWN, self._next, end)
            except ValueError:
                self._next = end
                break
            self._next = page + 1
            if page not in free:
                pages.append(page)
        return pages

    def _seal(self, pages: PageFile, numbers: Iterable[int], unknown: Iterable[int] = ()) -> None:
        """Compute checksums and write the blocks of the checksum file that contain them."""
        sums, view, size = self._sums, pages.view, pages.page_size
        end = len(view) // size
        blocks = {number // _BLOCK for number in unknown}
        for number in numbers:
            start = number * size
            sums[number] = _checksum(view[start : start + size]) if number < end else UNKNOWN
            blocks.add(number // _BLOCK)
        if not self._file_complete:  # the file on disk has checksums of pages that were not followed
            blocks, self._file_complete = set(range(len(sums) // _BLOCK + 1)), True
        for block in blocks:
            os.pwrite(self._file, sums[block * _BLOCK : (block + 1) * _BLOCK].tobytes(), _HEADER_BYTES + 4 * block * _BLOCK)

    def _write_header(self) -> None:
        assert self._pages is not None
        os.pwrite(self._file, _header(self._pages.page_size, self._transaction), 0)

    def _disable(self) -> None:
        self._transaction = 0
        with suppress(OSError):
            remove_seal(self._path)
        pages, self._pages = self._pages, None
        if pages is not None:
            pages.close()
