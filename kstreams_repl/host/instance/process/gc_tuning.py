"""Python's garbage collector in a process that runs tasks.

Caches and queues hold many small containers that live for seconds and contain no cycles. With Python's defaults the collector
scans all of them repeatedly: counting 100 k keys spent more than half of its time there. So the collector runs rarely, and
ignores objects that existed before the first record.
"""

from __future__ import annotations

import gc

_YOUNG = 500_000
_relaxed = False


def free_closed() -> None:
    """Free the memory of closed instances. Their clients are parts of cycles and keep connections and threads until they are
    collected, which an idle worker would never do.
    """
    gc.collect()


def relax_collector() -> None:
    """Collect after 500,000 new containers instead of 700, and never scan the objects that exist now. Process-wide; only the first call
    has an effect: an instance that exists at a second one, with its clients, would never be freed.
    """
    global _relaxed
    if _relaxed:
        return
    _relaxed = True
    gc.collect()
    gc.freeze()
    gc.set_threshold(_YOUNG, 20, 50)
