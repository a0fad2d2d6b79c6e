"""A table fed into a topic: each row once, whatever ends in between."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import uuid
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import kstreams_repl as ks
from kstreams_repl.engine.topology.table_files import FORMATS
from kstreams_repl.system.errors import KStreamsError, TableChangedError
from tests.unit.table_files.rig import Sink, table

pytestmark = [pytest.mark.kafka, pytest.mark.slow, pytest.mark.timeout(300)]
ROOT = Path(__file__).parents[2]
FEED = """
import json, sys
import kstreams_repl as ks
given = json.loads(sys.argv[1])
with ks.connect(given["broker"], directory=given["directory"], prestart=False, report=lambda line: None) as session:
    session.produce_table(given["path"], given["topic"], key="n", timestamp="n", commit_rows=7)
"""


@pytest.fixture
def session(broker: Any, tmp_path: Path) -> Iterator[Any]:
    with ks.connect(broker.bootstrap_servers, directory=tmp_path / "state", prestart=False, report=lambda line: None) as session:
        yield session


@pytest.fixture
def topic() -> str:
    return f"fed-{uuid.uuid4().hex[:8]}"


def written(session: Any, topic: str) -> Counter[int]:
    return Counter(record.value["n"] for record in session.read(topic, n=None))


def test_rows_become_records_and_a_second_call_writes_nothing(session: Any, tmp_path: Path, topic: str) -> None:
    path = tmp_path / "rows.parquet"
    pq.write_table(pa.table({"n": list(range(100)), "text": [f"t{n}" for n in range(100)], "at": [1_000 + n for n in range(100)]}), path)
    assert session.produce_table(path, topic, key="text", timestamp="at", partitions=2, commit_rows=30) == 100
    [record] = [record for record in session.read(topic, n=None) if record.key == "t5"]
    assert record.value == {"n": 5, "text": "t5", "at": 1_005} and record.timestamp == 1_005
    assert session.produce_table(path, topic, key="text", timestamp="at") == 0
    assert written(session, topic) == Counter(range(100))
    pq.write_table(pa.table({"n": [1]}), path)
    with pytest.raises(TableChangedError, match="has changed since 100 of its 100 rows") as raised:
        session.produce_table(path, topic)
    assert raised.value.written == 100
    assert session.produce_table(path, topic, restart=True) == 1
    assert written(session, topic)[1] == 2


def test_what_cannot_be_fed_leaves_no_topic(session: Any, tmp_path: Path, topic: str) -> None:
    with pytest.raises(KStreamsError, match="no Parquet file"):
        session.produce_table(tmp_path / "nothing", topic)
    with pytest.raises(KStreamsError, match="commit_rows must be >= 1"):
        session.produce_table(tmp_path, topic, commit_rows=0)
    assert topic not in session.admin.topics()


@pytest.mark.parametrize("format", FORMATS)
def test_kills_between_and_inside_transactions_lose_and_repeat_no_row(session: Any, tmp_path: Path, topic: str, format: str) -> None:
    """Delta and Iceberg tables grow meanwhile: the feed stays at the version with which it began."""
    sink = Sink(table(tmp_path / "table", format, target_file_bytes=1))
    for first in range(0, 60, 20):
        sink.write(*range(first, first + 20))
        sink.tables.finish()
    given = {"broker": session.client.settings.bootstrap_servers, "directory": str(tmp_path / "fed"), "path": str(tmp_path / "table")}
    deaths = 0
    for failpoint in ("P1=kill", "P2=kill", "P1=kill@2", "P2=kill@2", "P1=kill", "P2=kill", ""):
        done = subprocess.run(
            [sys.executable, "-c", FEED, json.dumps(given | {"topic": topic})],
            cwd=ROOT,
            env=os.environ | {"PYTHONPATH": str(ROOT), "KSTREAMS_FAILPOINTS": failpoint},
            capture_output=True,
            text=True,
        )
        assert done.returncode == (-9 if failpoint else 0), done.stderr
        deaths += done.returncode == -9
        if format != "parquet" and deaths > 1:  # the first commit pins the version; the first process died before it
            sink.write(1_000 + deaths)
            sink.tables.finish()
    assert deaths == 6 and written(session, topic) == Counter(range(60))
