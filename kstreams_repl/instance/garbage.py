"""The cycle collector in a process that runs tasks.

Caches and queues hold many small containers that live for seconds and contain no cycles. Python's defaults look through all
of them again and
again: counting 100 k keys spent more than half of its time there. So the collector runs rarely, and leaves out what was there
before the first record.
"""

from __future__ import annotations

import gc

_YOUNG = 500_000


def free_closed() -> None:
    """Free what closed instances leave behind. Their clients are parts of cycles and keep connections and threads until they are
    collected, which in a worker that has nothing to do would be never.
    """
    gc.collect()


def relax_collector() -> None:
    """Collect after 500,000 new containers instead of 700, and never look at what exists now. Process-wide; repeating it is
    harmless.
    """
    gc.collect()
    gc.freeze()
    gc.set_threshold(_YOUNG, 20, 50)
