"""R32: every place that shows records, lag or records that wait says what a plain consumer counts at that moment.

One application under exactly once goes through calls in flight, retries, transactions that commit and abort, a pause, a restart, an
attach and the end of the session. At each step all places are compared with the counts of a consumer of confluent_kafka's own.
"""

from __future__ import annotations

import asyncio
import json
import re
import time
import uuid
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import httpx
import pytest
from confluent_kafka import Consumer, KafkaError, Producer
from confluent_kafka import TopicPartition as Partition

import kstreams_repl as ks
from kernel_ext.live.live_picture import LivePicture
from kernel_ext.live.side_panel import _application_row, _topics
from kstreams_repl.host.kafka.clients import ClientSettings
from kstreams_repl.repl.session.session_directory import SessionDirectory
from kstreams_repl.system.types import TopicPartition

pytestmark = [pytest.mark.kafka, pytest.mark.spark, pytest.mark.timeout(420)]
TEXT = {"key_serde": "string", "value_serde": "string"}
PARTITIONS = 2


def readable(bootstrap: str, topic: str, start: Mapping[int, int] | None = None) -> int:
    """Return how many records a plain `read_committed` consumer reads to the end of a topic."""
    consumer = Consumer({
        "bootstrap.servers": bootstrap, "group.id": f"oracle-{uuid.uuid4().hex}", "isolation.level": "read_committed",
        "enable.partition.eof": True, "auto.offset.reset": "earliest", "enable.auto.commit": False,
    })  # fmt: skip
    try:
        left = set(range(PARTITIONS))
        consumer.assign([Partition(topic, number, (start or {}).get(number, 0)) for number in left])
        found, deadline = 0, time.monotonic() + 60
        while left:
            assert time.monotonic() < deadline, "the consumer met no end"
            message = consumer.poll(1.0)
            if message is None:
                continue
            if message.error() is None:
                found += 1
                continue
            assert message.error().code() == KafkaError._PARTITION_EOF, message.error()
            left.discard(message.partition())
        return found
    finally:
        consumer.close()


def write(bootstrap: str, topic: str, values: list[str], *, commit: bool) -> None:
    producer = Producer({"bootstrap.servers": bootstrap, "transactional.id": f"writer-{uuid.uuid4().hex}"})
    producer.init_transactions(60)
    producer.begin_transaction()
    for number, value in enumerate(values):
        producer.produce(topic, value, f"k{number}", partition=number % PARTITIONS)
    producer.flush(30)
    producer.commit_transaction(60) if commit else producer.abort_transaction(60)


def topology(name: str, gate: str) -> ks.StreamsBuilder:
    async def ask(value: str) -> str:
        while not Path(gate).exists():
            await asyncio.sleep(0.02)
        return str(int(value))

    builder = ks.StreamsBuilder()
    asked = builder.stream(f"{name}-in", name="read", **TEXT).map_values_async(
        ask, name="ask", timeout="1h", on_error="retry", retry_backoff="1h", in_flight=20
    )
    asked.to(f"{name}-out", name="write", **TEXT)
    return builder


def number(text: str) -> int:
    return -1 if text == "unknown" else int(text.replace(",", ""))  # right after a start, until the first report: equals no count


def places(app: ks.Application) -> dict[str, tuple[int | None, int | None, int | None]]:
    """Return records, lag and waiting records in each place; None: the place does not show it."""
    counts = app.counts
    told = re.search(r"([\d,]+) records?, lag ([\d,]*\d)(?:, ([\d,]+) waiting)?", repr(app))
    found: dict[str, tuple[int | None, int | None, int | None]] = {"counts": (counts.records, counts.lag, counts.waiting)}
    found["text"] = (-1, -1, -1) if told is None else (number(told[1]), number(told[2]), number(told[3] or "0"))
    (row,) = (row for row in app.client_session.applications.table().rows if row[0] == app.name)  # type: ignore[attr-defined]
    found["session.applications"] = (row[2], row[4], None)
    panel = _application_row(app)
    found["side panel"] = (panel["records"], panel["lag"], None)
    lines = app.picture().marks["node:read"].lines
    found["node"] = (number(lines[0].split()[0]), next(number(line.split()[1]) for line in lines if line.startswith("lag ")), None)
    live = LivePicture(app, lambda changed: None)
    live.refresh()
    found["header"] = (None, live.state["history"][-1][2], None)
    found["remaining()"] = (None, app.remaining() - counts.waiting, None)
    return found


def expect(app: ks.Application, records: int, lag: int, waiting: int, *, more: Callable[[], Any] = lambda: None) -> None:
    """Compare all places; numbers of a running application arrive with its next report."""
    deadline, wrong = time.monotonic() + 30, {}
    while time.monotonic() < deadline:
        wrong = {
            place: shown
            for place, shown in places(app).items()
            if any(value not in (None, right) for value, right in zip(shown, (records, lag, waiting), strict=True))
        }
        if not wrong:
            break
        time.sleep(0.1)
    assert not wrong, (records, lag, waiting)
    more()


@pytest.mark.slow
def test_every_place_shows_what_a_plain_consumer_counts(broker: Any, tmp_path: Path) -> None:
    name, gate, bootstrap = f"app-{uuid.uuid4().hex[:8]}", tmp_path / "gate", broker.bootstrap_servers
    source, sink = f"{name}-in", f"{name}-out"
    config = {"processing.guarantee": "exactly_once_v2", "commit.interval.ms": 50}
    with ks.Session(ClientSettings(bootstrap), directory=SessionDirectory(tmp_path / "session")) as session:
        session.topic_configs["retention.ms"] = "-1"
        for topic in (source, sink):
            session.create_topic(topic, partitions=PARTITIONS)

        def lag() -> int:
            at = [TopicPartition(source, part) for part in range(PARTITIONS)]
            committed = session.admin.committed_offsets(name, at)
            return readable(bootstrap, source, {one.partition: offset.offset for one, offset in committed.items()})

        def topics() -> None:
            rows = {row[0]: row[2] for row in session.topics().rows}
            panel = {row["name"]: row["records"] for row in _topics(session)}
            for topic in (source, sink):
                right = readable(bootstrap, topic)
                assert (rows[topic], panel[topic]) == (right, right), topic
            assert f"of {readable(bootstrap, source):,} records" in session.read(source, 1).table().note

        # 1. Calls in flight: their offsets are committed, and nothing is done.
        write(bootstrap, source, [str(value) for value in range(40)], commit=True)
        write(bootstrap, source, ["0"] * 25, commit=False)
        write(bootstrap, source, ["x", "y", "z"], commit=True)
        app = session.deploy(topology(name, str(gate)), name, config=config)
        app.client_session = session  # type: ignore[attr-defined]
        assert app.wait(120, until=lambda app: app.counts.waiting == 43)
        assert not app.wait(0.5) and app.remaining() == 43
        expect(app, 43, 0, 43, more=topics)
        assert "nothing passes" not in repr(app)
        # 2. Retries: three calls fail, and wait for an hour.
        gate.touch()
        assert app.wait(120, until=lambda app: app.counts.waiting == 3)
        assert not app.wait(0.5)
        expect(app, 43, 0, 3, more=topics)
        app.retries("ask").drop(timeout=60)
        assert app.wait(120) and readable(bootstrap, sink) == 40
        expect(app, 43, 0, 0, more=topics)
        # 3. Aborted records and markers after the last record: at rest the group commits the position beyond them.
        write(bootstrap, source, ["0"] * 30, commit=False)
        settled = session.admin.settled_end_offsets([TopicPartition(source, part) for part in range(PARTITIONS)])
        ends = session.admin.end_offsets(list(settled), isolation="read_uncommitted")  # with the markers, which come after the abort
        assert app.wait(120)
        expect(app, 43, 0, 0, more=topics)
        assert app.wait(60, until=lambda app: {
            at: found.offset for at, found in session.admin.committed_offsets(name, list(ends)).items()
        } == ends)  # fmt: skip
        # 4. Paused: the lag is what the consumer reads from the committed offsets.
        app.pause()
        write(bootstrap, source, [str(value) for value in range(7)], commit=True)
        write(bootstrap, source, ["0"] * 20, commit=False)
        session.admin.settled_end_offsets(list(ends))
        assert lag() == 7
        expect(app, 43, 7, 0, more=topics)
        # 5. Resumed, restarted.
        app.resume()
        assert app.wait(120)
        expect(app, 50, 0, 0, more=topics)
        app.stop()
        expect(app, 50, 0, 0, more=topics)
        assert lag() == 0
        # 6. Served: the page of the query server and the metrics have the notebook's numbers.
        app.resume()
        assert app.wait(120)
        expect(app, 50, 0, 0)
        server = app.serve()
        token = json.loads(Path(server.token_path).read_text())["look"]
        with httpx.Client(base_url=server.url, headers={"Authorization": f"Bearer {token}"}, trust_env=False, timeout=30) as web:
            with web.stream("GET", "/page/changes") as events:
                line = next(line for line in events.iter_lines() if line.startswith("data: "))
        state = json.loads(line.removeprefix("data: "))
        assert "50 records, lag 0" in state["note"] and ["number", "50 records"] in state["marks"]["node:read"], state
        assert app.wait(30, until=lambda app: app.metrics.total("repl-lag") == 0)
    # 7. The session is closed.
    assert (app.counts.records, app.counts.lag, app.counts.waiting) == (50, 0, 0) and "50 records, lag 0" in repr(app)
    # 8. Another kernel attaches it.
    with ks.Session(ClientSettings(bootstrap), directory=SessionDirectory(tmp_path / "other")) as other:
        found = other.attach(name, topology(name, str(gate)))
        found.client_session = other  # type: ignore[attr-defined]
        write(bootstrap, source, ["1"], commit=True)
        other.admin.settled_end_offsets(list(ends))
        expect(found, 50, 1, 0)
