"""Bounded runs of topologies that change between two runs, and of nodes that have no stop offset, on a real broker and Spark."""

from __future__ import annotations

import uuid
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import kstreams_repl as ks
from kstreams_repl.host.kafka.clients import ClientSettings
from kstreams_repl.repl.session.session_directory import SessionDirectory
from kstreams_repl.system.errors import TopologyError
from tests.spark.hosting import spark

__all__ = ["spark"]
pytestmark = [pytest.mark.kafka, pytest.mark.spark, pytest.mark.slow, pytest.mark.timeout(300)]
TEXT = {"key_serde": "string", "value_serde": "string"}
EXACT = {"processing_guarantee": "exactly_once_v2", "num_stream_threads": 2, "statestore_cache_max_bytes": 0}


@pytest.fixture
def session(broker: Any, spark: Any, tmp_path: Path) -> Iterator[ks.Session]:
    with ks.Session(ClientSettings(broker.bootstrap_servers), spark=spark, directory=SessionDirectory(tmp_path)) as session:
        session.topic_configs["retention.ms"] = "-1"
        yield session


def last_values(session: ks.Session, topic: str, value_serde: str) -> dict[str, Any]:
    return {record.key: record.value for record in session.read(topic, None, key_serde="string", value_serde=value_serde)}


def test_what_an_edit_keeps_goes_on_in_the_next_run_and_what_it_would_misread_is_refused(session: ks.Session) -> None:
    name = f"edited-{uuid.uuid4().hex[:6]}"
    session.create_topic(f"{name}-in", partitions=3)
    session.create_topic(f"{name}-out", partitions=2)

    def version(keep: Callable[[str, str], bool] | None = None, counts: str = "long") -> ks.StreamsBuilder:
        builder = ks.StreamsBuilder()
        words = builder.stream(f"{name}-in", **TEXT)
        if keep is not None:
            words = words.filter(keep, name="kept")
        grouped = words.group_by(lambda key, word: word[0], name="by-letter", **TEXT)
        grouped.count(store="letters", value_serde=counts).to_stream().to(f"{name}-out", key_serde="string", value_serde=counts)
        return builder

    words = [f"{letter}{number}" for number in range(50) for letter in "abc"]
    session.produce(f"{name}-in", [(word, word) for word in words])
    first = session.run_batch(version(), name, **EXACT).batch_report
    assert first is not None and (first.run, first.records_in) == (1, 150)

    session.produce(f"{name}-in", [(word, word) for word in words])
    with pytest.raises(TopologyError, match="its store 'letters' cannot be kept"):
        session.run_batch(version(counts="integer"), name, **EXACT)
    assert last_values(session, f"{name}-out", "long") == {"a": 50, "b": 50, "c": 50}, "a refused run reads nothing"

    second = session.run_batch(version(lambda key, word: word[0] != "c"), name, **EXACT).batch_report
    assert second is not None and (second.run, second.records_in) == (2, 150)
    assert last_values(session, f"{name}-out", "long") == {"a": 100, "b": 100, "c": 50}, "the store of the first version went on"


def test_a_global_table_and_a_wall_clock_punctuator_do_not_keep_a_run_open(session: ks.Session) -> None:
    """The punctuator writes at every tick, into a repartition topic too; the table has no stop offset."""
    name = f"ticking-{uuid.uuid4().hex[:6]}"
    for topic, partitions in (("in", 2), ("side", 1), ("out", 2)):
        session.create_topic(f"{name}-{topic}", partitions=partitions)

    class Ticking(ks.Processor):
        def init(self, context: Any) -> None:
            super().init(context)
            context.schedule(20, ks.PunctuationType.WALL_CLOCK_TIME, self.tick)

        def process(self, record: Any) -> None:
            self.context.forward(record)

        def tick(self, now: int) -> None:
            self.context.forward(ks.Record("tick", "x", now))

    builder = ks.StreamsBuilder()
    side = builder.global_table(f"{name}-side", store="side", **TEXT)
    joined = builder.stream(f"{name}-in", **TEXT).join(side, lambda value, row: f"{value}-{row}", key=lambda key, value: key)
    again = joined.process(Ticking, name="ticking").repartition(name="again", **TEXT)
    again.filter(lambda key, value: key != "tick").to(f"{name}-out", **TEXT)

    session.produce(f"{name}-side", [(letter, letter.upper()) for letter in "abc"])
    pairs = [("abc"[number % 3], str(number)) for number in range(60)]
    session.produce(f"{name}-in", pairs)
    report = session.run_batch(builder, name, **EXACT).batch_report
    assert report is not None and (report.run, report.records_in, report.state) == (1, 60, "finished")
    rows = [record.value for record in session.read(f"{name}-out", None, **TEXT)]
    assert Counter(rows) == Counter(f"{value}-{key.upper()}" for key, value in pairs)
