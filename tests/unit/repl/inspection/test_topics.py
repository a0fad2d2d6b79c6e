"""What is pushed down into the read of a topic changes how much is read, not the answer."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import orjson
import pytest

from kstreams_repl.host.kafka.reading import OffsetRange
from kstreams_repl.repl.inspection import Limits, SqlResult, TopicScan, query, run_sql, topics
from kstreams_repl.system.errors import SqlError
from kstreams_repl.system.types import RecordBatch, TopicPartition

PARTITIONS, EACH = 3, 2_000


@pytest.fixture(autouse=True)
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(query, "FIRST_READ", 600)
    monkeypatch.setattr(topics, "FIRST_READ", 600)
    monkeypatch.setattr(topics, "SAMPLE", 60)


class Topic:
    """A topic in memory, three partitions of 2,000 offsets; every tenth offset is a transaction marker. It counts the records read."""

    settings = None

    def __init__(self, **rare: Any) -> None:
        self.read = 0
        self._rare = rare

    def ranges_of(self, admin: Any, topic: str, **bounds: Any) -> tuple[OffsetRange, ...]:
        return tuple(OffsetRange(TopicPartition("t", number), 0, EACH) for number in range(PARTITIONS))

    def offsets_for_time(self, times: Mapping[TopicPartition, int]) -> dict[TopicPartition, int | None]:
        return {at: next((n for n in range(EACH) if n % 10 != 9 and self.time(n) >= time), None) for at, time in times.items()}

    def read_ranges(self, settings: Any, ranges: Iterable[OffsetRange]) -> Iterator[tuple[TopicPartition, RecordBatch]]:
        for item in ranges:
            offsets = [offset for offset in range(item.start, item.end) if offset % 10 != 9]
            self.read += len(offsets)
            keys: list[bytes | None] = [b"k%d" % (offset % 100) for offset in offsets]
            values: list[bytes | None] = [self.value(item.partition.partition, offset) for offset in offsets]
            if offsets:
                yield item.partition, RecordBatch(keys, values, list(map(self.time, offsets)), offsets, None)

    @staticmethod
    def time(offset: int) -> int:
        """Return a record's time: an hour ahead of the one before, except for records that are a day late."""
        return 1_356_998_400_000 + offset * 3_600_000 - (86_400_000 if offset % 7 == 0 else 0)

    def value(self, partition: int, offset: int) -> bytes:
        more = {"only_here": offset} if partition == 1 else {}
        rare = self._rare if (partition, offset) == (2, EACH // 2) else {}
        return orjson.dumps({"n": offset, "amount": offset / 2, **more, **rare})

    # the source of a query

    def table(self, schema: str, name: str, limits: Limits) -> Any:
        if name != "t":
            return None
        return TopicScan(
            self, "t", limit=limits.topic_limit, columns=limits.columns, bounds=limits.bounds, first=limits.first  # type: ignore[arg-type]
        )

    def names(self) -> Iterable[str]:
        return ("t",)

    def expect(self, tables: Any) -> None:
        """Do nothing: there is one table."""


def ask(monkeypatch: pytest.MonkeyPatch, text: str, *, pushed: bool = True, limit: int | None = None, **rare: Any) -> tuple[SqlResult, int]:
    """Return the result of a query, and how many records were read for it."""
    topic = Topic(**rare)
    with monkeypatch.context() as patched:
        patched.setattr(topics, "ranges_of", topic.ranges_of)
        patched.setattr(topics, "read_ranges", topic.read_ranges)
        if not pushed:
            patched.setattr(query, "bounds_of", lambda *given: {})
            patched.setattr(query, "rows_needed", lambda parsed: None)
            patched.setattr(query, "FIRST_READ", 10**9)
        return run_sql(text, topic, limits=Limits(limit)), topic.read


@pytest.mark.parametrize(
    ("text", "most"),
    [
        ('SELECT count(*), sum(n) FROM t WHERE partition = 1 AND "offset" >= 1900', 150),
        ('SELECT * FROM t WHERE partition = 1 AND "offset" BETWEEN 100 AND 200', 150),
        ('SELECT partition, "offset", timestamp, n FROM t WHERE timestamp >= \'2013-03-20\' ORDER BY ALL', 500),
        ("SELECT count(*), min(timestamp) FROM t WHERE timestamp > DATE '2013-03-20' AND timestamp < TIMESTAMP '2013-03-22'", 500),
        ("SELECT count(*), min(timestamp) FROM t WHERE timestamp >= TIMESTAMPTZ '2013-03-20 00:00:00+02'", 500),
        ("SELECT count(*), max(n) FROM t WHERE timestamp >= make_timestamp_ms(1363737600000)", 500),
        ("SELECT count(*), max(n) FROM t WHERE timestamp >= now() - INTERVAL 1 HOUR", 80),
        ("SELECT n, key FROM t WHERE partition = 7", 80),
        ('SELECT * FROM t WHERE "offset" = 9', 80),
        ('SELECT max("offset") FROM t WHERE "offset" IN (5, 11) AND partition <> 1', 80),
        ("SELECT sum(only_here) FROM t WHERE partition = 0", 2_000),
        ('SELECT x.n, y.n FROM t AS x LEFT JOIN (SELECT 300 AS n) AS y ON x.n = y.n WHERE x."offset" BETWEEN 299 AND 301 ORDER BY ALL', 80),
        ('SELECT count(*) FROM t WHERE "offset" < 0', 80),
    ],
)
def test_conditions_leave_records_unread_and_the_answer_as_it_was(text: str, most: int, monkeypatch: pytest.MonkeyPatch) -> None:
    found, read = ask(monkeypatch, text)
    whole, all_of_them = ask(monkeypatch, text, pushed=False)
    assert all_of_them == PARTITIONS * EACH * 9 // 10 and read <= most
    assert (found.columns, found.types, found.fetchall()) == (whole.columns, whole.types, whole.fetchall())


@pytest.mark.parametrize(
    "text",
    [
        'SELECT count(*), sum(n) FROM t WHERE partition = 1 OR "offset" >= 1900',
        'SELECT count(*) FROM t WHERE NOT "offset" >= 1900',
        'SELECT a.partition, count(*) FROM t AS a JOIN t AS b ON a.n = b.n WHERE a.partition = 1 AND b."offset" < 5 GROUP BY 1',
        "SELECT min(n) FROM t WHERE timestamp < '2013-01-02'",
        "SELECT sum(only_here) FROM t",
    ],
)
def test_what_is_not_understood_reads_all_records(text: str, monkeypatch: pytest.MonkeyPatch) -> None:
    found, read = ask(monkeypatch, text)
    whole, all_of_them = ask(monkeypatch, text, pushed=False)
    assert read >= all_of_them and found.fetchall() == whole.fetchall()


def test_records_that_only_name_the_columns_are_not_counted_as_read_for_the_condition(monkeypatch: pytest.MonkeyPatch) -> None:
    found, read = ask(monkeypatch, 'SELECT count(*) FROM t WHERE partition = 1 AND "offset" >= 1900')
    assert found.fetchall() == [(90,)] and read > 90
    assert "100 of 6,000 offsets read, 90 records, all that meet the WHERE" in repr(found)


def test_a_field_that_only_other_rows_have_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    found, _ = ask(monkeypatch, 'SELECT n, exotic FROM t WHERE "offset" BETWEEN 3 AND 4 AND partition = 0', exotic=5)
    assert found.fetchall() == [(3, None), (4, None)]
    assert ask(monkeypatch, "SELECT exotic FROM t WHERE exotic > 1 LIMIT 3", exotic=5)[0].fetchall() == [(5,)]


@pytest.mark.parametrize(("rows", "most"), [(20, 600), (1, 600)])
def test_a_limit_with_a_condition_stops_when_it_has_its_rows(rows: int, most: int, monkeypatch: pytest.MonkeyPatch) -> None:
    found, read = ask(monkeypatch, f"SELECT n FROM t WHERE n % 5 = 2 LIMIT {rows}")
    assert [n % 5 for (n,) in found.fetchall()] == [2] * rows and read <= most
    assert "enough for the LIMIT" in repr(found)


def test_a_limit_whose_rows_are_rare_reads_on(monkeypatch: pytest.MonkeyPatch) -> None:
    found, _ = ask(monkeypatch, "SELECT n FROM t WHERE n > 1995 LIMIT 8")
    assert sorted(n for (n,) in found.fetchall()) == sorted([*range(1_996, 1_999)] * 3)[:8]
    last, _ = ask(monkeypatch, "SELECT n FROM t WHERE n > 1995 LIMIT 100 OFFSET 2")
    assert last.count() == 7


def test_a_limit_on_records_comes_before_the_condition(monkeypatch: pytest.MonkeyPatch) -> None:
    text = 'SELECT count(*) FROM t WHERE "offset" < 1990'
    counts = [ask(monkeypatch, text, limit=90, pushed=pushed)[0].table().rows for pushed in (True, False)]
    assert counts == [((54,),), ((54,),)]


def test_a_mistyped_column_is_an_error_before_the_topic_is_read(monkeypatch: pytest.MonkeyPatch) -> None:
    for text in ("SELECT avg(amuont) FROM t", "SELECT t.amuont FROM t", "SELECT value.amuont FROM t", "SELECT n FROM t WHERE Amonut > 3"):
        topic = Topic()
        monkeypatch.setattr(topics, "ranges_of", topic.ranges_of)
        monkeypatch.setattr(topics, "read_ranges", topic.read_ranges)
        with pytest.raises(SqlError, match="(?i)am[uon]+t") as caught:
            run_sql(text, topic)
        assert "did you mean 'amount'?" in (caught.value.hint or "")
        assert topic.read <= topics.SAMPLE


def test_a_rare_field_that_resembles_another_can_be_read_as_json(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(SqlError) as caught:
        ask(monkeypatch, "SELECT amounts FROM t WHERE amounts > 1", amounts=5)
    assert "to_json(value)->>'amounts' reads a field that few have" in (caught.value.hint or "")
    found, _ = ask(monkeypatch, "SELECT to_json(value)->>'amounts' FROM t WHERE to_json(value)->>'amounts' > '1'", amounts=5)
    assert found.fetchall() == [("5",)]


def test_only_the_columns_of_the_query_are_decoded(monkeypatch: pytest.MonkeyPatch) -> None:
    decoded: list[int] = []
    real = topics.decode
    monkeypatch.setattr(topics, "decode", lambda serde, cells: decoded.append(len(cells)) or real(serde, cells))
    ask(monkeypatch, 'SELECT count(*), max("offset") FROM t')
    assert decoded == []
    ask(monkeypatch, "SELECT count(DISTINCT key) FROM t")
    assert sum(decoded) == PARTITIONS * EACH * 9 // 10
