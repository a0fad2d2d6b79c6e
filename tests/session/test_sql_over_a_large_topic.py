"""SQL over a topic of 600,000 records: no answer is made of a part of it in silence, and memory stays bounded."""

from __future__ import annotations

import threading
import uuid
from collections.abc import Iterator
from typing import Any

import psutil
import pytest
from confluent_kafka import Producer

import kstreams_repl as ks
from kstreams_repl.host.kafka.clients import ClientSettings
from kstreams_repl.host.kafka.reading import read_ranges
from kstreams_repl.repl.inspection import Limits, run_sql, sandbox
from kstreams_repl.repl.inspection.topics import FIRST_READ, PIECE, SAMPLE
from kstreams_repl.repl.session.session_directory import SessionDirectory
from kstreams_repl.repl.session.views.tables.sql_catalog import SessionTables
from kstreams_repl.system.errors import PartialResultWarning, SqlError

pytestmark = pytest.mark.kafka

RECORDS = 600_000
PARTITIONS = 4
PAD = "x" * 100


@pytest.fixture(scope="module")
def large(broker: Any, tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[ks.Session, str, list[str]]]:
    """A session, a topic, and the lines that the session reports."""
    lines: list[str] = []
    directory = SessionDirectory(tmp_path_factory.mktemp("large"))
    with ks.Session(ClientSettings(broker.bootstrap_servers), directory=directory, report=lines.append) as session:
        topic = f"large-{uuid.uuid4().hex[:8]}"
        session.create_topic(topic, partitions=PARTITIONS)
        producer = Producer({"bootstrap.servers": broker.bootstrap_servers, "linger.ms": 50, "queue.buffering.max.messages": 2 * RECORDS})
        for n in range(RECORDS):
            producer.produce(topic, b'{"n":%d,"pad":"%s"}' % (n, PAD.encode()), b"k%d" % (n % 1000), n % PARTITIONS)
        producer.flush()
        yield session, topic, lines


class Memory:
    """The largest resident size of this process while it is watched, in bytes above its beginning."""

    def __enter__(self) -> Memory:
        self._process = psutil.Process()
        self._begin = self.most = self._process.memory_info().rss
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._watch, name="memory", daemon=True)
        self._thread.start()
        return self

    def _watch(self) -> None:
        while not self._over.wait(0.01):
            self.most = max(self.most, self._process.memory_info().rss)

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._thread.join()

    @property
    def grown(self) -> int:
        return self.most - self._begin


def test_aggregates_are_over_all_records_on_every_way_out(
    large: tuple[ks.Session, str, list[str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    session, topic, lines = large
    monkeypatch.setattr("kstreams_repl.repl.inspection.topics.FIRST_REPORT_SECONDS", 0.0)
    with Memory() as memory:
        result = session.sql(f'SELECT count(*) AS records, max(n) AS last, sum(n) AS total FROM "{topic}"')
    right = (RECORDS, RECORDS - 1, RECORDS * (RECORDS - 1) // 2)
    assert result.fetchall() == [right]
    assert tuple(int(value) for value in result.df().iloc[0]) == right
    assert tuple(int(value) for value in result.arrow().to_pylist()[0].values()) == right
    assert result.cuts == () and f"all {RECORDS:,} offsets" in repr(result)
    assert memory.grown < 400 * 2**20, f"grown by {memory.grown / 2**20:.0f} MB"
    assert lines[0].startswith(f"reading {topic}: ") and f"of {RECORDS:,} offsets" in lines[0]
    assert lines[-1].startswith(f"read {RECORDS:,} records of {topic}")


def test_an_answer_that_is_cut_warns_on_every_way_out(large: tuple[ks.Session, str, list[str]]) -> None:
    session, topic, _ = large
    result = session.sql(f'SELECT count(*) AS n FROM "{topic}"', topic_limit=1000)
    said = f"topic {topic}: only the last 1,000 of {RECORDS:,} records were read; topic_limit=None reads all"
    for way_out in (result.df, result.arrow, result.fetchall, lambda: list(result), lambda: result.relation):
        for _ in range(2):  # the second time, too
            with pytest.warns(PartialResultWarning) as caught:
                way_out()
            assert [str(one.message) for one in caught] == [said]
            assert caught[0].filename == __file__
    assert said in repr(result) and said in result._repr_mimebundle_()["text/html"]


@pytest.mark.slow
def test_a_limit_reads_no_more_than_it_needs_and_the_same_rows_each_time(large: tuple[ks.Session, str, list[str]]) -> None:
    session, topic, _ = large
    result = session.sql(f'SELECT key, n, partition FROM "{topic}" LIMIT 3')
    assert result.fetchall() == [("k0", 0, 0), ("k4", 4, 0), ("k8", 8, 0)]
    assert "enough for the LIMIT" in repr(result)
    assert session.sql(f'SELECT n FROM "{topic}" WHERE n = {RECORDS - 1} LIMIT 3').fetchall() == [(RECORDS - 1,)]


@pytest.mark.slow
def test_all_rows_come_in_the_order_of_partitions_and_offsets(large: tuple[ks.Session, str, list[str]]) -> None:
    session, topic, _ = large
    rows = session.sql(f'SELECT partition, "offset" FROM "{topic}"')
    assert repr(rows).splitlines()[-2] == f"100 of {RECORDS:,} rows; .df() gives all"
    found = rows.arrow()
    assert found.num_rows == RECORDS > PIECE
    assert found.equals(found.sort_by([("partition", "ascending"), ("offset", "ascending")]))


@pytest.mark.slow
def test_what_does_not_fit_into_memory_lies_on_disk(
    large: tuple[ks.Session, str, list[str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    session, topic, _ = large
    real = sandbox.open_sandbox
    monkeypatch.setattr("kstreams_repl.repl.inspection.query.open_sandbox", lambda: real(memory_limit="60MB", threads=1))
    tables = SessionTables(session.client, {}, {}, {})
    result = run_sql(f'SELECT count(*), sum(n), max(length(pad)) FROM "{topic}"', tables, limits=Limits())
    assert [tuple(map(int, row)) for row in result.fetchall()] == [(RECORDS, RECORDS * (RECORDS - 1) // 2, len(PAD))]


@pytest.fixture
def records_read(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The number of records in each batch read for queries."""
    read: list[int] = []

    def counting(*given: Any) -> Iterator[Any]:
        for at, batch in read_ranges(*given):
            read.append(len(batch))
            yield at, batch

    monkeypatch.setattr("kstreams_repl.repl.inspection.topics.read_ranges", counting)
    return read


@pytest.mark.slow
def test_conditions_on_offsets_and_times_are_pushed_into_the_read(
    large: tuple[ks.Session, str, list[str]], records_read: list[int]
) -> None:
    session, topic, _ = large
    few = range(4 * 149_000 + 1, RECORDS, 4)
    result = session.sql(f'SELECT count(*), sum(n) FROM "{topic}" WHERE partition = 1 AND "offset" >= 149000')
    assert result.fetchall() == [(len(few), sum(few))] and "1,000 of 600,000 offsets read, all that meet the WHERE" in repr(result)
    assert sum(records_read) <= 2_000 + SAMPLE
    late = session.sql(f'SELECT timestamp FROM "{topic}" WHERE partition = 2 AND "offset" = 149500').fetchall()[0][0]
    records_read.clear()
    pushed = session.sql(f"SELECT count(*), sum(n), min(timestamp) FROM \"{topic}\" WHERE timestamp >= '{late}'").fetchall()
    assert sum(records_read) < RECORDS / 2
    whole = session.sql(f"SELECT count(*), sum(n), min(timestamp) FROM \"{topic}\" WHERE timestamp + INTERVAL 0 DAY >= '{late}'").fetchall()
    assert pushed == whole and pushed[0][0] > 0
    found = session.sql(f"SELECT n FROM \"{topic}\" WHERE timestamp > now() + INTERVAL 1 DAY")
    assert found.columns == ["n"] and found.fetchall() == []


def test_a_limit_with_a_condition_stops_early(large: tuple[ks.Session, str, list[str]], records_read: list[int]) -> None:
    session, topic, _ = large
    assert session.sql(f'SELECT n FROM "{topic}" WHERE n % 100 = 8 LIMIT 20').fetchall() == [(8 + 100 * i,) for i in range(20)]
    assert sum(records_read) == FIRST_READ


def test_a_mistyped_column_is_refused_before_the_topic_is_read(large: tuple[ks.Session, str, list[str]], records_read: list[int]) -> None:
    session, topic, _ = large
    with pytest.raises(SqlError, match="padd") as caught:
        session.sql(f'SELECT max(padd) FROM "{topic}"')
    assert (caught.value.hint or "").startswith("did you mean 'pad'?") and sum(records_read) == SAMPLE
