"""Records that wait for another try in a deployed application, on a real broker and real Spark: seen, edited, tried, dropped."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import kstreams_repl as ks
from kstreams_repl.host.kafka.clients import ClientSettings
from kstreams_repl.repl.session.session_directory import SessionDirectory
from kstreams_repl.system.errors import KStreamsError
from tests.spark.hosting import settle

pytestmark = [pytest.mark.kafka, pytest.mark.spark, pytest.mark.timeout(300)]
RECORDS = 40


@pytest.fixture
def session(broker: Any, tmp_path: Path) -> Iterator[ks.Session]:
    with ks.Session(ClientSettings(broker.bootstrap_servers), directory=SessionDirectory(tmp_path)) as session:
        session.topic_configs["retention.ms"] = "-1"
        yield session


async def strict(text: str) -> int:
    return int(text)


async def lenient(text: str) -> int:
    return int(text.removeprefix("n"))


def built(name: str, function: Any) -> ks.StreamsBuilder:
    builder = ks.StreamsBuilder()
    texts = builder.stream(f"{name}-in", key_serde="string", value_serde="string")
    numbers = texts.map_values_async(function, name="parse", on_error="retry", attempts=9, retry_backoff="1h", durable=True)
    numbers.to(f"{name}-out", key_serde="string", value_serde="long")
    return builder


@pytest.mark.slow
def test_failed_records_are_seen_tried_after_an_edit_and_dropped(session: ks.Session) -> None:
    name = f"retries-{uuid.uuid4().hex[:8]}"
    session.create_topic(f"{name}-in", partitions=2)
    session.create_topic(f"{name}-out", partitions=2)
    config = {"processing.guarantee": "exactly_once_v2", "commit.interval.ms": 50, "num.stream.threads": 2}
    app = session.deploy(built(name, strict), name, config=config)
    rows = [(f"k{number}", ("x" if number % 20 == 7 else "n" if number % 4 == 0 else "") + str(number)) for number in range(RECORDS)]
    session.produce(f"{name}-in", rows)
    failing = [value for _, value in rows if not value.isdigit()]
    settle(lambda: len(app.retries("parse")) == len(failing), "the failed records", story=lambda: app)
    waiting = app.retries("parse")
    assert sorted(record.value for record in waiting.records) == sorted(failing)
    assert {record.tries for record in waiting.records} == {1}
    assert all(record.cause.startswith("ValueError: invalid literal") for record in waiting.records)
    rows_of = app.sql('SELECT count(*), min(tries), max(topic) FROM "parse-pending" WHERE cause IS NOT NULL')
    assert rows_of.fetchall() == [(len(failing), 1, f"{name}-in")]
    # nothing has changed: each is tried once more
    assert waiting.retry_now(timeout=60) == ks.reports.RetryReport(len(failing), len(failing), 0, len(failing), 0)
    app.edit(built(name, lenient))
    settle(lambda: app.status == "running", "the edited application", story=lambda: app)
    report = app.retries("parse").retry_now(timeout=60)
    hopeless = [value for value in failing if value.startswith("x")]
    assert report == ks.reports.RetryReport(len(failing), len(hopeless), len(failing) - len(hopeless), len(hopeless), 0)
    chosen = app.retries("parse").where(lambda record: record.value == hopeless[0])
    assert chosen.drop(timeout=60) == ks.reports.RetryReport(len(hopeless), len(hopeless) - 1, 1, 0, 0)
    app.pause()
    with pytest.raises(KStreamsError, match="only a running application tries or drops"):
        app.retries("parse").drop()
    assert len(app.retries("parse")) == len(hopeless) - 1
    app.stop()
    read = session.read(f"{name}-out", value_serde="long", n=RECORDS)
    assert sorted(record.value for record in read) == [number for number in range(RECORDS) if number % 20 != 7]
