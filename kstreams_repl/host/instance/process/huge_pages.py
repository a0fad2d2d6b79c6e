"""Huge pages for the memory of a running task.

State is read at random: per record an index, a row, its values, each on a page of its own. With pages of 4 KiB the processor must
look up most of their addresses in memory first, twice in a virtual machine; with pages of 2 MiB its tables hold all of them.
Counting on 100,000 keys became a fifth faster. Linux gives such pages on request (`transparent_hugepage` says ``madvise`` or
``always``), and Python does not request them. So a worker does, for its heap, again as it grows. It is a hint: where it is
refused nothing changes. Moving 2 MiB takes up to 4 ms, so it is done in small steps, once per address: what is mapped there later
gets large pages when it is first touched.
"""

from __future__ import annotations

import ctypes
import resource
import sys
import time
from collections.abc import Iterator

EVERY_RECORDS = 20_000
"""Interval of requests, in records: an idle worker makes none."""
SETTLED_RECORDS = 300_000
"""A worker makes no request before this many records: a short run would pay for the move without a benefit."""
_SIZE = 1 << 21
_ADVISE_HUGE, _COLLAPSE = 14, 25  # MADV_HUGEPAGE; MADV_COLLAPSE, since Linux 6.1
_moved: set[int] = set()
"""Addresses of large pages for which the kernel was asked to move what is there."""


def use_huge_pages(seconds: float = 0.01) -> int:
    """Move anonymous memory of this process to large pages, for at most `seconds`.

    Returns:
        The number of bytes visited.
    """
    if sys.platform != "linux":
        return 0
    advise = ctypes.CDLL(None).madvise
    advise.argtypes = (ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int)
    total, deadline = 0, time.perf_counter() + seconds
    for begin, end in _anonymous():
        if advise(begin, end - begin, _ADVISE_HUGE) != 0:
            return total
        for address in range(begin, end, _SIZE):
            total += _SIZE
            if address in _moved:
                continue
            _moved.add(address)
            advise(address, _SIZE, _COLLAPSE)  # existing pages; refused for pages never touched
            if time.perf_counter() >= deadline:
                return total
    return total


def _anonymous() -> Iterator[tuple[int, int]]:
    """Return the aligned large pages inside private, writable mappings without a file; not threads' stacks, which are mostly
    empty.
    """
    stack = resource.getrlimit(resource.RLIMIT_STACK)[0]
    try:
        with open("/proc/self/maps", encoding="ascii", errors="replace") as file:
            lines = file.read().splitlines()
    except OSError:
        return
    for line in lines:
        bounds, rights, _, _, inode, *name = line.split(maxsplit=5)
        if rights != "rw-p" or inode != "0" or name not in ([], ["[heap]"]):
            continue
        first, last = (int(bound, 16) for bound in bounds.split("-"))
        if last - first == stack:
            continue
        begin, end = -(-first // _SIZE) * _SIZE, last // _SIZE * _SIZE
        if begin < end:
            yield begin, end
