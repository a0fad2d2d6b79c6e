"""An application on executors with disks of their own, as a notebook sees it: values at nodes, SQL, an edit, an executor that is killed."""

from __future__ import annotations

import time
import uuid
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

import kstreams_repl as ks
from kstreams_repl.host.instance.control.journal_follower import Follower
from kstreams_repl.host.spark.startup.spark_session import stop_session
from kstreams_repl.host.spark.startup.standalone_cluster import StandaloneCluster
from kstreams_repl.repl.session.views.values.live_taps import LiveTap
from tests.session.test_taps import Feeder
from tests.spark.hosting import settle

pytestmark = [pytest.mark.spark, pytest.mark.kafka, pytest.mark.slow, pytest.mark.timeout(600)]


def topology(name: str, label: str) -> ks.StreamsBuilder:
    builder = ks.StreamsBuilder()
    stream = builder.stream(f"{name}-in", key_serde="string", value_serde="string")
    shaped = stream.map_values(lambda text: {"n": int(text[1:]), "label": label}, name="shaped")
    table = shaped.group_by_key(key_serde="string", value_serde="json").count(store="counts")
    table.to_stream(name="counted").to(f"{name}-out", key_serde="string", value_serde="long")
    return builder


def test_values_sql_an_edit_and_a_killed_executor_are_the_same_as_locally(broker: Any, cluster: StandaloneCluster, tmp_path: Path) -> None:
    stop_session()
    name = f"tap-{uuid.uuid4().hex[:8]}"
    with ks.connect(broker.bootstrap_servers, spark=cluster.master, directory=tmp_path / "session") as session:
        session.topic_configs["retention.ms"] = "-1"
        session.spark.range(2).count()  # waits for the executors, however long they take to start
        for topic in ("in", "out"):
            session.create_topic(f"{name}-{topic}", partitions=2)
        config = {"processing.guarantee": "exactly_once_v2", "commit.interval.ms": 50, "num.stream.threads": 2, "repl.epoch.ms": 2000}
        app = session.deploy(topology(name, "first"), name, config=config)
        feeder = Feeder(session, f"{name}-in")
        follower = Follower(session.settings, name)
        try:
            settle(lambda: app.reports.records > 0, "records", story=lambda: app)
            both = lambda: len({report.place for report in app.reports.instances.values()} - {None}) == 2  # noqa: E731
            settle(both, "both executors", story=lambda: app)
            began = time.monotonic()
            seen = app.tap("shaped", 20, timeout=30)
            print(f"\npeek: {time.monotonic() - began:.2f} s")
            assert len(seen) == 20 and "live from" in repr(seen)
            assert all(record.key == f"k{record.value['n'] % 7}" and record.value["label"] == "first" for record in seen)
            counted = app.tap("counted", 5, timeout=30)
            assert len(counted) == 5 and all(isinstance(record.value, int) for record in counted)
            tail = app.tail("shaped")
            assert next(tail).key.startswith("k")
            settle(lambda: len(follower.state.taps) == 1, "the request")
            tail.close()  # type: ignore[attr-defined]
            settle(lambda: not follower.state.taps, "the end of the request")
            # one whose client is gone: nobody renews it, and an instance removes it
            lost = LiveTap(app._core, "shaped")
            lost.__enter__()
            settle(lambda: len(follower.state.taps) == 1, "the request")
            settle(lambda: not follower.state.taps, "the end of its lease", seconds=30)

            app.edit(topology(name, "second"))
            settle(lambda: app.status == "running" and len(app.reports.instances) == 2, "the edited application", story=lambda: app)
            with LiveTap(app._core, "shaped") as tap:
                settle(lambda: {record.value["label"] for record in tap.new()} == {"second"}, "values of the edited function")
                cluster.kill_executor(1)
                before = tap.count
                places: set[int] = set()

                def both_partitions() -> bool:
                    places.update(record.partition for record in tap.new())
                    return tap.count > before + 500 and places == {0, 1}

                time.sleep(1)
                places.clear()
                settle(both_partitions, "values after an executor was lost", seconds=120, story=lambda: app)
            assert not list((tmp_path / "session").rglob("taps/*"))
        finally:
            feeder.stop()
            follower.close()
        assert app.wait(120)
        expected = Counter(key for key, _ in feeder.written)
        assert dict(session.sql("SELECT key, value FROM counts").fetchall()) == expected
        ((rows,),) = session.sql(f'SELECT count(*) FROM "{name}-in"', topic_limit=10_000_000).fetchall()
        assert rows == len(feeder.written)
        finals: dict[Any, Any] = {}
        for record in session.read(f"{name}-out", None):
            finals[record.key] = max(record.value, finals.get(record.key, 0))
        assert finals == expected
        app.stop()


def test_another_kernel_taps_what_this_one_drives(broker: Any, cluster: StandaloneCluster, tmp_path: Path) -> None:
    """A kernel that has attached the application, with a directory of its own: it reads the journal, and takes nothing over."""
    stop_session()
    name = f"tap-{uuid.uuid4().hex[:8]}"
    with (
        ks.connect(broker.bootstrap_servers, spark=cluster.master, directory=tmp_path / "session") as session,
        ks.connect(broker.bootstrap_servers, directory=tmp_path / "other") as other,
    ):
        session.topic_configs["retention.ms"] = "-1"
        session.spark.range(2).count()  # waits for the executors, however long they take to start
        for topic in ("in", "out"):
            session.create_topic(f"{name}-{topic}", partitions=2)
        config = {"processing.guarantee": "exactly_once_v2", "commit.interval.ms": 50, "num.stream.threads": 2, "repl.epoch.ms": 2000}
        app = session.deploy(topology(name, "first"), name, config=config)
        feeder = Feeder(session, f"{name}-in")
        follower = Follower(session.settings, name)
        try:
            settle(lambda: app.reports.records > 0, "records", story=lambda: app)
            attached = other.attach(name, topology(name, "first"))
            seen = attached.tap("shaped", 20, timeout=30)
            assert attached.standing == "running under another kernel" and attached.standing in repr(attached)
            assert len(seen) == 20 and "live from" in repr(seen), seen
            assert all(record.key == f"k{record.value['n'] % 7}" and record.value["label"] == "first" for record in seen)
            tail = attached.tail("shaped")
            assert next(tail).value["label"] == "first"
            app.edit(topology(name, "second"))
            settle(lambda: next(tail).value["label"] == "second", "values of the edited function")
            tail.close()  # type: ignore[attr-defined]
            settle(lambda: not follower.state.taps, "the end of the request")
            assert app.status == "running" and follower.state.generation == app.generation
        finally:
            feeder.stop()
            follower.close()
        assert app.wait(120)
        assert dict(session.sql("SELECT key, value FROM counts").fetchall()) == Counter(key for key, _ in feeder.written)
        app.stop()
        seen = attached.tap("shaped", 5, timeout=30)
        assert len(seen) == 5 and "live from" not in repr(seen), "a sample, as it does not run any more"
        assert attached.standing == "stopped"
