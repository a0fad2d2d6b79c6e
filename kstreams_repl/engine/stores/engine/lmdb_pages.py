"""Read LMDB's file as pages, without LMDB: find the newest commit and the pages that are free in it.

A damaged file crashes a process that opens it with LMDB, so the file is checked here first, and every number is checked before it
is used. Format: LMDB 0.9 on 64-bit machines (two alternating meta pages; the tree of free pages, keyed by the transaction that
freed them).
"""

from __future__ import annotations

import mmap
import os
import struct
from array import array
from dataclasses import dataclass

MAGIC, VERSION = 0xBEEFC0DE, 1
_META = struct.Struct("=16xII16x")
_PAGE_SIZE = struct.Struct("=I")
_PAGE_SIZE_AT = 40
_FREE_ROOT = struct.Struct("=Q")
_FREE_ROOT_AT = 80
_LAST = struct.Struct("=QQ")
_LAST_AT = 136
_HEADER = struct.Struct("=Q2xHHH")
_NODE = struct.Struct("=HHHH")
_BRANCH, _LEAF, _BIG = 1, 2, 1
_NO_PAGE = (1 << 64) - 1
_MOST_DEPTH = 32
_TRANSACTION = struct.Struct("=Q")

FreeLists = dict[int, "array[int]"]
"""The free pages by the transaction that freed them."""


class NotPagesError(ValueError):
    """The file is damaged or not an LMDB file."""


@dataclass(frozen=True, slots=True)
class Meta:
    """One of the two meta pages."""

    page: int
    transaction: int
    last_page: int
    free_root: int


class PageFile:
    """A data file, memory-mapped for reading through its own file descriptor; takes no lock."""

    def __init__(self, path: str) -> None:
        self._file = os.open(path, os.O_RDONLY)
        self.view = memoryview(b"")
        try:
            self.refresh()
            head = self.view[:256]
            if len(head) < 256:
                raise NotPagesError(f"its file has only {len(head)} bytes")
            (self.page_size,) = _PAGE_SIZE.unpack_from(head, _PAGE_SIZE_AT)
            if self.page_size < 512 or self.page_size & (self.page_size - 1) or self.page_size > 65536:
                raise NotPagesError("its first page is damaged")
            self.metas()
        except BaseException:
            self.close()
            raise

    def refresh(self) -> None:
        """Map the part by which the file has grown."""
        size = os.fstat(self._file).st_size
        if size != len(self.view):
            self._unmap()
            if size:
                self.view = memoryview(mmap.mmap(self._file, size, prot=mmap.PROT_READ))

    def _unmap(self) -> None:
        self.view = memoryview(b"")  # the map is released with its last slice, which the frames of an error may still hold

    def close(self) -> None:
        if self._file >= 0:
            self._unmap()
            os.close(self._file)
            self._file = -1

    def page(self, number: int) -> memoryview:
        """Return the bytes of a page.

        Raises:
            NotPagesError: the page number is out of range.
        """
        start = number * self.page_size
        if not 0 <= start <= len(self.view) - self.page_size:
            raise NotPagesError(f"it refers to page {number}, but the file has {len(self.view) // self.page_size} pages")
        return self.view[start : start + self.page_size]

    def metas(self) -> tuple[Meta, Meta]:
        """Return both meta pages, the newest first."""
        metas = []
        for number in (0, 1):
            page = self.page(number)
            if _META.unpack_from(page)[:2] != (MAGIC, VERSION):
                raise NotPagesError("its first pages are damaged")
            last_page, transaction = _LAST.unpack_from(page, _LAST_AT)
            metas.append(Meta(number, transaction, last_page, _FREE_ROOT.unpack_from(page, _FREE_ROOT_AT)[0]))
        newest = max(metas, key=lambda meta: meta.transaction)
        return newest, metas[1 - newest.page]

    def free_pages(self, meta: Meta) -> set[int]:
        """Return the pages that are free as of that commit.

        Raises:
            NotPagesError: the tree of free pages is damaged.
        """
        return pages_of(self.free_lists(meta))

    def free_lists(self, meta: Meta) -> FreeLists:
        """Return the pages that are free as of that commit, by the transaction that freed them.

        Raises:
            NotPagesError: the tree of free pages is damaged.
        """
        lists: FreeLists = {}
        try:
            if meta.free_root != _NO_PAGE:
                self._collect(meta.free_root, lists, 0)
        except struct.error as error:
            raise NotPagesError("its tree of free pages is damaged") from error
        return lists

    def _collect(self, number: int, lists: FreeLists, depth: int) -> None:
        page = self.page(number)
        stored_number, flags, lower, _ = _HEADER.unpack_from(page)
        if stored_number != number or depth > _MOST_DEPTH or not 16 <= lower <= self.page_size:
            raise NotPagesError("its tree of free pages is damaged")
        for offset in range(16, lower, 2):
            node = page[offset] | page[offset + 1] << 8
            low, high, node_flags, key_size = _NODE.unpack_from(page, node)
            if flags & _BRANCH:
                self._collect(low | high << 16 | node_flags << 32, lists, depth + 1)
            elif flags & _LEAF:
                size, start = low | high << 16, node + 8 + key_size
                (transaction,) = _TRANSACTION.unpack_from(page, node + 8)
                if node_flags & _BIG:
                    first = struct.unpack_from("=Q", page, start)[0] * self.page_size + 16
                    lists[transaction] = _listed(self.view[first : first + size])
                else:
                    lists[transaction] = _listed(page[start : start + size])
            else:
                raise NotPagesError("its tree of free pages is damaged")


def _listed(data: memoryview) -> array[int]:
    numbers = array("Q")
    if len(data) % 8:
        raise NotPagesError("its tree of free pages is damaged")
    numbers.frombytes(data)
    if not numbers or numbers[0] > len(numbers) - 1:
        raise NotPagesError("its tree of free pages is damaged")
    return numbers[1 : 1 + numbers[0]]


def pages_of(lists: FreeLists) -> set[int]:
    """Return all pages of these lists."""
    return set().union(*lists.values())


def changed_pages(before: FreeLists, after: FreeLists) -> tuple[set[int], set[int]]:
    """Return the pages that are only in the lists of one commit, and those that are only in the lists of a later one.

    Only lists that differ become numbers: a small commit changes two of them, and 80,000 free pages as numbers cost it 6 ms.
    """
    changed = [transaction for transaction in before.keys() | after.keys() if before.get(transaction) != after.get(transaction)]
    old, new = (pages_of({each: lists[each] for each in changed if each in lists}) for lists in (before, after))
    return old - new, new - old
