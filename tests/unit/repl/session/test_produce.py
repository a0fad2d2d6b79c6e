"""Producing where the broker goes away or a record cannot be written; a client that remembers stands for Kafka's."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from kstreams_repl import serdes
from kstreams_repl.host.kafka.clients import ClientSettings
from kstreams_repl.repl.inspection import run_sql
from kstreams_repl.repl.session.topics import produce
from kstreams_repl.repl.session.topics.produce import TopicProducer, UntimedRecords, parts_of
from kstreams_repl.repl.session.topics.records import ReadRecord, Records
from kstreams_repl.system.errors import ProductionError, SerializationError


class Client:
    """A producer whose broker takes `taken` records and no more, and which has room for `room`."""

    def __init__(self, taken: int = 0, room: int = 10) -> None:
        self.taken, self.room = taken, room
        self.queue: list[Any] = []
        self.calls: list[Any] = []

    def produce(self, topic: str, **record: Any) -> None:
        if len(self.queue) >= self.room:
            raise BufferError("Local: Queue full")
        self.queue.append(record)

    def poll(self, seconds: float) -> int:
        return 0

    def flush(self, seconds: float) -> int:
        self.calls.append("flush")
        del self.queue[: self.taken]
        return len(self.queue)

    def __len__(self) -> int:
        return len(self.queue)

    def purge(self) -> None:
        self.calls.append(("purge", len(self.queue)))

    def close(self, seconds: float = -1) -> None:
        self.calls.append(("close", seconds))


@pytest.fixture
def sending(monkeypatch: pytest.MonkeyPatch) -> Any:
    """Makes (a topic's producer, its client)."""
    monkeypatch.setattr(produce, "_FLUSH_SECONDS", 0.0)

    def make(client: Client, **more: Any) -> TopicProducer:
        monkeypatch.setattr(produce, "make_producer", lambda settings, **given: client)
        return TopicProducer(ClientSettings("nowhere:9092"), "words", more.get("key"), more.get("value"))

    return make


def test_records_that_a_broker_which_is_away_does_not_take_are_given_up_and_told(sending: Any) -> None:
    """To close the client waited for them: the error came after five minutes, and no interrupt ended that."""
    client = Client()
    with pytest.raises(ProductionError, match="2 records for topic 'words' did not reach the broker at nowhere:9092") as told:
        sending(client).send_all(parts_of(["to", "be"]))
    assert told.value.hint and client.calls[-2:] == [("purge", 2), ("close", 0)]


def test_a_full_queue_of_a_broker_that_is_away_is_told(sending: Any) -> None:
    """It was waited for until the client's own time was over."""
    client = Client(room=1)
    with pytest.raises(ProductionError, match="1 records"):
        sending(client).send_all(parts_of(["to", "be"]))
    assert client.calls[-1] == ("close", 0)


def test_records_that_arrive_one_after_the_other_are_waited_for(sending: Any) -> None:
    """After half a minute they were told to be missing, however many came in the meantime."""
    assert sending(Client(taken=1)).send_all(parts_of(["to", "be", "or"])) == 3


def test_an_interrupted_produce_waits_for_nobody(sending: Any) -> None:
    client = Client()

    def records() -> Any:
        yield "to"
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        sending(client).send_all(parts_of(records()))
    assert client.calls == ["flush", ("purge", 1), ("close", 0)]


def test_what_could_not_be_written_chooses_no_serde(sending: Any) -> None:
    """The next text on that topic had JSON's quotes, for a set had come first, and was refused."""
    producer = sending(Client(taken=10))
    with pytest.raises(SerializationError):
        producer.send_all(parts_of([{"a": {1, 2}}]))
    assert (producer.key_serde, producer.value_serde) == (None, None)
    producer.send_all(parts_of([("a", "text"), (None, None)]))
    assert (producer.key_serde, producer.value_serde) == (serdes.string, serdes.string)


def test_records_that_were_read_and_results_of_queries_are_records() -> None:
    """Each was a JSON list of its fields or columns."""
    read = Records([ReadRecord("k", "v", 5, "words", 1, 7, [("h", b"x")])])
    assert list(parts_of(read)) == [("k", "v", 5, [("h", b"x")])]
    result = run_sql("SELECT 'UA' AS carrier, 3 AS delay, 'EWR' AS origin", SimpleNamespace(expect=lambda tables: None))
    assert list(parts_of(result, key="carrier")) == [("UA", {"carrier": "UA", "delay": 3, "origin": "EWR"}, None, None)]


def test_rows_of_any_dataframe_and_query_are_json() -> None:
    """A sum of integers, a DATE or a DECIMAL of a query, and every frame of polars were refused."""
    import polars

    query = "SELECT sum(x)::HUGEINT AS s, DATE '2013-01-01' AS d, 1.50::DECIMAL(9, 2) AS p, [0.1::DECIMAL(3, 2)] AS l, TIME '05:15:00' AS t"
    result = run_sql(f"{query} FROM (VALUES (1), (2)) AS v(x)", SimpleNamespace(expect=lambda tables: None, table=lambda *given: None))
    row = {"s": 3, "d": "2013-01-01", "p": 1.5, "l": [0.1], "t": "05:15:00"}
    frame = result.pl()
    for records in (result, result.arrow(), frame, frame.lazy(), result.relation, polars.DataFrame(result.arrow())):
        assert [value for _, value, _, _ in parts_of(records)] == [row], type(records)
    assert list(parts_of(frame, key="d", timestamp="d"))[0][:3:2] == ("2013-01-01", 1_356_998_400_000)
    assert serdes.json.serialize(next(parts_of(result.df()))[1]) is not None


def test_a_decimal_that_json_does_not_keep_is_refused() -> None:
    result = run_sql("SELECT 12345678901234567.89::DECIMAL(38, 2) AS p", SimpleNamespace(expect=lambda tables: None))
    with pytest.raises(SerializationError, match=r"12345678901234567\.89 has more digits"):
        list(parts_of(result))


@pytest.mark.parametrize(
    ("records", "field"),
    [
        ([{"event_time": 1_357_017_300_000}], "event_time"),
        ([{"n": 1, "ts": "2013-01-01T05:15:00"}, {"n": 2}], "ts"),
        ([("k", {"orderDate": "2013-01-01"})], "orderDate"),
        ([{"minutes": 5, "state": "up", "data": "x", "at": "home", "time": 30}], None),
        (["text"], None),
        ([("k", {"ts": 1_357_017_300_000}, 5)], None),
    ],
)
def test_records_that_get_the_present_time_are_told_if_they_have_another(records: Any, field: str | None) -> None:
    """A stream-table join over such a history is empty, and nothing said why."""
    parts = UntimedRecords(parts_of(records))
    assert len(list(parts)) == len(records)
    assert parts.field == field and (f"timestamp={field!r}" in parts.note("orders")) is (field is not None)
