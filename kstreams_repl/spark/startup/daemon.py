"""Spark's Python daemon, which imports the worker's modules before it forks, so that a new worker is ready in milliseconds.

Set as ``spark.python.daemon.module``. It only imports, and no import may leave a thread running: a lock that such a thread holds while the
process forks stays locked in the new worker for ever. Spark then gives up on the daemon after ten seconds and stops all its workers.
"""

from __future__ import annotations

import gc
import importlib
import os
import sys

from kstreams_repl.spark.startup.fork_server import serve, stand_in

WITHOUT_THREADS = {
    "OPENBLAS_NUM_THREADS": "1",  # of numpy; a worker has one slot of the machine anyway
    "JE_ARROW_MALLOC_CONF": "background_thread:false",
}
"""Environment variables that keep libraries from starting threads when they are imported; the user's own values win."""

PRELOADED = (
    "pyarrow",
    "orjson",
    "pyspark.sql",
    "pyspark.sql.pandas.serializers",
    "pyspark.worker",
    "kstreams_repl.spark.epochs.worker",
    "kstreams_repl.instance.initialization.task_initialization",
    "kstreams_repl.stores.engine.lmdb",
    "kstreams_repl.stores.changelog_restore",
    "kstreams_repl.kafka.journal",
    "kstreams_repl.dsl",
    "kstreams_repl.serdes",
)


def import_modules() -> None:
    """Import what workers need, with no thread but this one afterwards."""
    for name, value in WITHOUT_THREADS.items():
        os.environ.setdefault(name, value)
    for name in PRELOADED:
        importlib.import_module(name)
    gc.collect()
    gc.freeze()  # the collector of a fork would write to each of these objects, and so copy the pages that it shares


def main() -> None:
    if sys.argv[1:]:  # Spark names the workers' module
        stand_in()
        import_modules()
    else:
        serve(import_modules)
    from pyspark import daemon  # not before: a process that only stands in for a daemon does without

    daemon.manager()  # type: ignore[no-untyped-call,unused-ignore]


if __name__ == "__main__":
    main()
