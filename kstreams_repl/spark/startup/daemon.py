"""Spark's Python daemon, which imports the worker's modules before it forks, so that a new worker is ready in milliseconds.

Set as ``spark.python.daemon.module``. It only imports: connections and threads would not survive a fork.
"""

from __future__ import annotations

import importlib

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


def main() -> None:
    from pyspark import daemon

    for name in PRELOADED:
        importlib.import_module(name)
    daemon.manager()  # type: ignore[no-untyped-call,unused-ignore]


if __name__ == "__main__":
    main()
