"""A topic's records as files, which Spark's own queries read in place of the topic."""

from __future__ import annotations

import json
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from kstreams_repl.host.kafka.reading import ranges_of, read_ranges
from workshop.bench.rig.testbed import Testbed
from workshop.bench.rig.workloads import Row

FORMATS = ("json", "parquet")
SCHEMA = "key string, value string, timestamp long"
_FILE_RECORDS = 250_000


def write_files(testbed: Testbed, topic: str, folder: Path, kind: str) -> Path:
    """Write all records of a topic to files of a new folder, with the columns of `SCHEMA`; return the folder."""
    folder.mkdir(parents=True)
    held: list[Row] = []

    def flush() -> None:
        name = folder / f"{len(list(folder.iterdir())):05d}.{kind}"
        rows = [(key.decode(), value.decode(), at) for key, value, at in held]
        names = ("key", "value", "timestamp")
        if kind == "json":
            name.write_text("".join(json.dumps(dict(zip(names, row, strict=True))) + "\n" for row in rows))
        else:
            pq.write_table(pa.table(dict(zip(names, map(list, zip(*rows, strict=True)), strict=True))), name)
        held.clear()

    for _, batch in read_ranges(testbed.settings, ranges_of(testbed.admin, topic, settled=True)):
        held.extend(zip(batch.keys, batch.values, batch.timestamps, strict=True))  # type: ignore[arg-type]
        if len(held) >= _FILE_RECORDS:
            flush()
    if held:
        flush()
    return folder
