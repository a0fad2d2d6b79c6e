"""Spark's Python daemon, which imports the worker's modules before it forks, so that a new worker is ready in milliseconds.

Set as ``spark.python.daemon.module``. It only imports, and no import may leave a thread running: a lock that such a thread holds while the
process forks stays locked in the new worker for ever. Spark then gives up on the daemon after ten seconds and stops all its workers.
"""

from __future__ import annotations

import gc
import importlib
import os
import signal
import sys

from kstreams_repl.host.spark.slots.worker_pools import BACKGROUND, BACKGROUND_NICE, POOL_VARIABLE
from kstreams_repl.host.spark.startup.fork_server import serve, stand_in

WITHOUT_THREADS = {
    "OPENBLAS_NUM_THREADS": "1",  # of numpy; a worker has one slot of the machine anyway
    "JE_ARROW_MALLOC_CONF": "background_thread:false",
}
"""Environment variables that keep libraries from starting threads when they are imported; the user's own values win."""

_PR_SET_PDEATHSIG = 1
"""Of Linux's prctl: the signal that a process gets when its parent ends."""
PRELOADED = (
    "pyarrow",
    "msgspec",
    "orjson",
    "pyspark.sql",
    "pyspark.sql.pandas.serializers",
    "pyspark.worker",
    "kstreams_repl.host.spark.epochs.worker",
    "kstreams_repl.host.instance.initialization.task_initialization",
    "kstreams_repl.engine.stores.engine.lmdb",
    "kstreams_repl.engine.stores.log.changelog_restore",
    "kstreams_repl.host.journal.journal",
    "kstreams_repl.engine.dsl",
    "kstreams_repl.engine.serdes",
)


def import_modules() -> None:
    """Import what workers need, with no thread but this one afterwards."""
    for name, value in WITHOUT_THREADS.items():
        os.environ.setdefault(name, value)
    for name in PRELOADED:
        importlib.import_module(name)
    gc.collect()
    gc.freeze()  # the collector of a fork would write to each of these objects, and so copy the pages that it shares


def end_workers_with_this_process() -> None:
    """Have each process that this one forks end when this one does.

    A worker ignores Spark's request to end, as the daemon does, until its first lines have run; one that was just forked stayed behind, and
    waited for a task as long as Spark ran.
    """
    import ctypes  # not above, for a process that only stands in for a daemon

    daemon, is_worker = os.getpid(), False

    def begin() -> None:
        nonlocal is_worker
        if is_worker:  # a fork of the user's code
            return
        is_worker = True
        signal.signal(signal.SIGHUP, signal.SIG_DFL)
        if sys.platform == "linux":
            ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
            if os.getppid() != daemon:  # it has ended already
                os._exit(1)

    os.register_at_fork(after_in_child=begin)


def main() -> None:
    if sys.argv[1:]:  # Spark names the workers' module
        stand_in()
        import_modules()
    else:
        serve(import_modules)
    from pyspark import daemon  # not before: a process that only stands in for a daemon does without

    end_workers_with_this_process()
    if os.environ.get(POOL_VARIABLE, "").startswith(BACKGROUND):
        os.nice(BACKGROUND_NICE)
    daemon.manager()  # type: ignore[no-untyped-call,unused-ignore]


if __name__ == "__main__":
    main()
