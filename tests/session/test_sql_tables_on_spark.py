"""A table by `sql` with GROUP BY in a session, on a real broker and real Spark: queried, tapped, edited and rolled back as every table."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import kstreams_repl as ks
from kstreams_repl.kafka.clients import ClientSettings
from kstreams_repl.session.session_directory import SessionDirectory

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
    seen = app.tail("users")
    session.produce(topic, [("k", {"user": 2, "amount": at}, 2001 + at) for at in range(50)])
    record = next(seen)
    assert (record.key, record.value["high"] <= 49) == (2, True)
    seen.close()  # type: ignore[attr-defined]
    app.rollback()
    session.produce(topic, [("k", {"user": 1, "amount": 1}, 3000)])
    assert app.wait(60)
    assert app.store("totals").get(1) == {"n": 102, "total": sum(range(1, 300, 3)) + 8}
