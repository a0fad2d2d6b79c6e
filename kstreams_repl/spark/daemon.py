"""Spark's Python daemon with the worker's modules loaded before it forks, so that a new worker is ready in milliseconds.

Set as ``spark.python.daemon.module``. Loading only: nothing here opens a connection or starts a thread, which would not
survive a fork.
"""

from __future__ import annotations

import importlib

PRELOADED = (
    "pyarrow",
    "orjson",
    "pyspark.sql",
    "pyspark.sql.pandas.serializers",
    "pyspark.worker",
    "kstreams_repl.spark.worker",
    "kstreams_repl.instance.take_over",
    "kstreams_repl.stores.engine.lmdb",
    "kstreams_repl.stores.restore",
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
