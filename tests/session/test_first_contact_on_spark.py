"""What a newcomer meets first, on a real broker and real Spark: one session, one Spark, several applications."""

from __future__ import annotations

import _thread
import sys
import threading
import time
import uuid
from pathlib import Path
from typing import Any

import pytest

import kstreams_repl as ks
from kstreams_repl.host.kafka.clients import ClientSettings
from kstreams_repl.repl.session.session_directory import SessionDirectory
from kstreams_repl.system.errors import StreamsProcessingError, UnknownTopicError, WaitInterrupted
from tests.session.test_on_a_broker import by_another_hash

pytestmark = [pytest.mark.kafka, pytest.mark.spark, pytest.mark.timeout(300)]
QUICK = {"commit.interval.ms": 50, "repl.partitions.check.ms": 500, "statestore.cache.max.bytes": 0}


def spending(orders: str, totals: str) -> ks.StreamsBuilder:
    """No serde anywhere."""
    builder = ks.StreamsBuilder()
    large = builder.stream(orders).filter(lambda key, order: order["price"] >= 10, name="large")
    large.to(totals)
    large.group_by_key().count(store="n")
    return builder


def leaving(orders: str) -> ks.StreamsBuilder:
    builder = ks.StreamsBuilder()
    builder.stream(orders).map_values(lambda order: sys.exit(3) if order["price"] == 14 else order, name="leaves").foreach(print)
    return builder


def ended(app: ks.Application, seconds: float = 60) -> None:
    deadline = time.monotonic() + seconds
    while app.status != "failed":
        assert time.monotonic() < deadline, app
        time.sleep(0.05)


@pytest.mark.slow  # the README's code and the notebooks are run in the fast tier
def test_from_dicts_to_an_application_that_outlives_its_topic(broker: Any, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    name = f"first-{uuid.uuid4().hex[:6]}"
    orders, totals = f"{name}-orders", f"{name}-large"
    told: list[str] = []
    settings = ClientSettings(broker.bootstrap_servers)
    with ks.Session(settings, directory=SessionDirectory(tmp_path), config=QUICK, report=told.append) as session:
        session.topic_configs["retention.ms"] = "-1"  # the records are of 1970
        session.produce(orders, [(f"c{i % 3}", {"price": i}, 1000 + i) for i in range(30)], partitions=1)

        # What was produced is how it is read: in a look, in a sample, deployed, in the stores, at the sink.
        assert session.values(spending(orders, totals), n=3).rows
        app = session.deploy(spending(orders, totals), name, create_topics=True)
        assert app.wait(120)
        assert sorted(app.sql("SELECT key, value FROM n ORDER BY key").fetchall()) == [("c0", 6), ("c1", 7), ("c2", 7)]
        assert session.read(totals, 1)[0].value == {"price": 29}
        assert f"{orders} is read as string keys and json values, as it was written" in told
        assert any("string keys and json values" in line for mark in app.picture().marks.values() for line in mark.lines)
        assert str(app.describe()) == str(spending(orders, totals).build().describe())

        # Ctrl-C ends the waiting and nothing else.
        timer = threading.Timer(0.5, _thread.interrupt_main)
        timer.start()
        with pytest.raises(WaitInterrupted, match=f"{name} continues: it is running"):
            app.wait(60, until=lambda app: False)
        assert app.status == "running"

        # A function that exits is told like one that raises.
        exits = session.deploy(leaving(orders), f"{name}-exits")
        ended(exits)
        error = exits.error
        assert isinstance(error, StreamsProcessingError) and "SystemExit: 3" in error.message, error
        assert (error.node, error.topic, error.partition, error.offset) == ("leaves", orders, 0, 14)
        assert error.user_line[0] == __file__

        # Keys that another producer placed by another hash than the join's are told at deploy.
        clients, visits = f"{name}-clients", f"{name}-visits"
        keys = [f"client-{n}" for n in range(50)]
        session.produce(visits, [(key, {"n": 1}) for key in keys], partitions=4)
        by_another_hash(session, clients, keys)
        builder = ks.StreamsBuilder()
        builder.stream(visits).join(builder.table(clients, key_serde="string"), lambda visit, client: visit).foreach(print)
        session.deploy(builder, f"{name}-join").stop()
        deadline = time.monotonic() + 20  # on a busy machine it is logged later
        while not any(f"of 50 keys of '{clients}'" in line for line in (*told, *caplog.messages)):
            assert time.monotonic() < deadline, told
            time.sleep(0.05)

        # A topic that is deleted is told by its name; when it is there again, the application goes on with its state.
        session.admin.delete_topics([orders])
        ended(app, 20)
        assert isinstance(app.error, UnknownTopicError) and app.error.topic == orders
        assert "was deleted while it was running" in app.error.message
        session.produce(orders, [("c0", {"price": 100}, 5000)], partitions=1)
        app.resume()
        assert app.wait(60)
        assert app.store("n").get("c0") == 7, "the state is kept, and the new topic is read from its beginning"
        app.stop()

    # Another kernel reads with the serdes of the version.
    with ks.Session(settings, directory=SessionDirectory(tmp_path), report=told.append) as session:
        looked = session.values(spending(orders, totals), n=1)
        assert looked.rows[0][1:] == (1, "c0", {"price": 100}), "recognised by a session that has not written them"
        for topology in (None, spending(orders, totals)):
            again = session.attach(name, topology)
            source = again.topology.nodes["KSTREAM-SOURCE-0000000000"]
            assert (source.key_serde.name, source.value_serde.name) == ("string", "json")
            session._applications.clear()
