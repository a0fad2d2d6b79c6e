"""A table by `sql` with GROUP BY in a session, on a real broker and real Spark: queried, tapped, edited and rolled back as every table."""

from __future__ import annotations

import threading
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import kstreams_repl as ks
from kstreams_repl.host.kafka.clients import ClientSettings
from kstreams_repl.repl.session.session_directory import SessionDirectory

pytestmark = [pytest.mark.kafka, pytest.mark.spark, pytest.mark.slow, pytest.mark.timeout(300)]

CONFIG = {"processing.guarantee": "exactly_once_v2", "commit.interval.ms": 50}


@pytest.fixture
def session(broker: Any, tmp_path: Path) -> Iterator[ks.Session]:
    with ks.Session(ClientSettings(broker.bootstrap_servers), directory=SessionDirectory(tmp_path)) as session:
        session.topic_configs["retention.ms"] = "-1"
        yield session


def queried(topic: str, selected: str) -> ks.StreamsBuilder:
    builder = ks.StreamsBuilder()
    orders = builder.stream(topic, key_serde="string", value_serde="json")
    orders.sql(f"SELECT {selected} FROM this GROUP BY user", columns={"user": int, "amount": int}, store="totals", name="users")
    return builder


def feed(session: ks.Session, topic: str, fed: threading.Event) -> None:
    while not fed.wait(0.1):
        session.produce(topic, [("k", {"user": 2, "amount": 299}, 2001)])


def test_a_table_by_sql_is_queried_tapped_edited_and_rolled_back(session: ks.Session) -> None:
    name = f"app-{uuid.uuid4().hex[:8]}"
    topic = f"{name}-in"
    session.produce(topic, [(f"k{at}", {"user": at % 3, "amount": at}, 1000 + at) for at in range(300)])
    app = session.deploy(queried(topic, "count(*) AS n, sum(amount) AS total"), name, config=CONFIG)
    assert app.wait(120)

    def rows(columns: str) -> list[tuple[Any, ...]]:
        return app.sql(f"SELECT key, {columns} FROM totals ORDER BY key").fetchall()

    assert rows("value.n, value.total") == [(user, 100, sum(range(user, 300, 3))) for user in range(3)]
    assert app.store("totals").get(1) == {"n": 100, "total": sum(range(1, 300, 3))}
    plan = app.edit(queried(topic, "count(*) AS n, sum(amount) AS total, max(amount) AS high"), dry_run=True)
    assert "kept" in repr(plan)
    app.apply(plan)
    session.produce(topic, [("k", {"user": 1, "amount": 7}, 2000)])
    assert app.wait(60)
    assert app.store("totals").get(1) == {"n": 101, "total": sum(range(1, 300, 3)) + 7, "high": 7}
    fed = threading.Event()
    feeder = threading.Thread(target=feed, args=(session, topic, fed))
    feeder.start()
    try:
        seen = app.tap("users", 3, timeout=30)
    finally:
        fed.set()
        feeder.join()
    assert [(record.key, record.value["high"]) for record in seen] == [(2, 299)] * 3
    app.rollback()
    session.produce(topic, [("k", {"user": 1, "amount": 1}, 3000)])
    assert app.wait(60)
    assert app.store("totals").get(1) == {"n": 102, "total": sum(range(1, 300, 3)) + 8}
