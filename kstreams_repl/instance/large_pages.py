"""Large pages for what a running task keeps in memory.

State is read at random: per record an index, a row, its values, each on a page of its own. With pages of 4 KiB the processor
looks up most of their addresses in memory first, twice over in a virtual machine; with pages of 2 MiB its tables hold them all.
Counting on 100,000 keys got a fifth faster. Linux gives such pages to who asks (`transparent_hugepage` says ``madvise`` or
``always``), and Python does not ask. So a worker does, for its heap, again as it grows. A hint: where it is refused nothing
changes. Moving 2 MiB takes up to 4 ms, so it is done little by little.
"""

from __future__ import annotations

import ctypes
import resource
import sys
import time
from collections.abc import Iterator

EVERY_RECORDS = 20_000
"""A worker asks again after so many records: one that has little to do need not."""
SETTLED_RECORDS = 300_000
"""Before so many records a worker does not ask at all: a short run would pay for the move and never have the use."""
_SIZE = 1 << 21
_ADVISE_HUGE, _COLLAPSE = 14, 25  # MADV_HUGEPAGE; MADV_COLLAPSE, since Linux 6.1


def use_large_pages(seconds: float = 0.01) -> int:
    """Move anonymous memory of this process to large pages, for so long; what is there already costs microseconds.

    Returns:
        How many bytes it came past.
    """
    if sys.platform != "linux":
        return 0
    advise = ctypes.CDLL(None).madvise
    advise.argtypes = (ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int)
    total, deadline = 0, time.perf_counter() + seconds
    for begin, end in _anonymous():
        if advise(begin, end - begin, _ADVISE_HUGE) != 0:
            return total
        for at in range(begin, end, _SIZE):
            advise(at, _SIZE, _COLLAPSE)  # what is there now; refused for pages never touched
            total += _SIZE
            if time.perf_counter() >= deadline:
                return total
    return total


def _anonymous() -> Iterator[tuple[int, int]]:
    """Whole large pages inside the private, writable mappings without a file; not stacks of threads, which are mostly empty."""
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
