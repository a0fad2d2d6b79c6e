"""Counts of nodes, lag and state of an application as its user sees them, on a real broker and real Spark."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest

import kstreams_repl as ks
from kernel_ext.live.node_details import rows_behind
from kstreams_repl.host.kafka.admin import NewTopicSpec
from kstreams_repl.host.kafka.clients import ClientSettings
from kstreams_repl.repl.session.session_directory import SessionDirectory
from tests.spark.hosting import kill_worker

pytestmark = [pytest.mark.kafka, pytest.mark.spark, pytest.mark.timeout(300)]

ROOT = Path(__file__).resolve().parents[2]
TEXT = {"key_serde": "string", "value_serde": "string"}


@pytest.fixture
def session(broker: Any, tmp_path: Path) -> Iterator[ks.Session]:
    with ks.Session(ClientSettings(broker.bootstrap_servers), directory=SessionDirectory(tmp_path)) as session:
        session.topic_configs["retention.ms"] = "-1"
        yield session


def rich(name: str, keep: Any = lambda key, value: value != "even") -> ks.StreamsBuilder:
    builder = ks.StreamsBuilder()
    customers = builder.table(f"{name}-customers", name="customers", **TEXT)
    orders = builder.stream(f"{name}-orders", name="orders", **TEXT).filter(keep, name="kept")
    orders.join(customers, lambda order, customer: customer, name="rich").to(f"{name}-out", name="write", **TEXT)
    orders.select_key(lambda key, value: value, name="by-value").group_by_key(**TEXT).count(store="counts", name="count")
    return builder


def counted(app: ks.Application) -> dict[str, tuple[int, int]]:
    return {node: (rate.records, rate.given) for node, rate in app.counts.nodes.items()}


def in_this_version(app: ks.Application, *nodes: str) -> list[tuple[int, int]]:
    found = app.counts.this_version
    return [] if found is None else [(found.nodes[node].records, found.nodes[node].given) for node in nodes]


def lines(app: ks.Application, node: str) -> tuple[str, ...]:
    return app.picture().marks[f"node:{node}"].lines


def told(app: ks.Application) -> tuple[int, int] | None:
    counts = app.counts
    return None if counts.records is None or counts.lag is None else (counts.records, counts.lag)


def known(found: Any) -> Any:
    """Return the first answer: after a command the counts are read again, on a thread, and are unknown until then."""
    deadline = time.monotonic() + 30
    while not (seen := found()) and time.monotonic() < deadline:
        time.sleep(0.1)
    return seen


def eventually(found: Any, expected: Any) -> None:
    deadline = time.monotonic() + 30
    while (seen := found()) != expected and time.monotonic() < deadline:
        time.sleep(0.1)
    assert seen == expected


@pytest.mark.slow
@pytest.mark.parametrize("guarantee", ["exactly_once_v2", "at_least_once"])
def test_every_node_shows_its_own_counts_over_pause_edit_and_another_kernel(
    session: ks.Session, broker: Any, tmp_path: Path, guarantee: str
) -> None:
    name = f"app-{uuid.uuid4().hex[:8]}"
    session.produce(f"{name}-customers", [(f"k{number}", "c", 1) for number in range(20)], value_serde="string")
    orders = [(f"k{number % 40}", "even" if number % 2 == 0 else "odd", 1000 + number) for number in range(2000)]
    session.produce(f"{name}-orders", orders, value_serde="string")
    session.admin.create_topics([NewTopicSpec(f"{name}-out", 4)])
    config = {"processing.guarantee": guarantee, "commit.interval.ms": 100, "num.stream.threads": 2}
    app = session.deploy(rich(name), name, config=config)
    assert app.wait(120)
    whole = {"customers": (20, 0), "orders": (2000, 2000), "kept": (2000, 1000), "rich": (1000, 500), "write": (500, 500)}

    def mine(nodes: dict[str, Any]) -> dict[str, Any]:
        return {node: nodes.get(node) for node in whole}

    eventually(lambda: mine(counted(app)), whole)
    assert counted(app)["by-value"] == (1000, 1000) and counted(app)["count"][0] == 1000
    eventually(lambda: (app.counts.records, app.counts.lag), (2020, 0))
    eventually(lambda: "2,020 records, lag 0" in repr(app), True)
    assert lines(app, "customers")[0] == "20 records" and lines(app, "rich")[0] == "1,000 in, 500 out"
    (table,) = app.topology.nodes["customers"].parents
    # paused with new records: the numbers stay and the lag is told, of the source that has it
    app.pause()
    session.produce(f"{name}-orders", orders[:1000], value_serde="string")
    eventually(lambda: app.counts.lag, 1000)
    assert mine(counted(app)) == whole
    assert "lag 1,000" in repr(app)
    assert lines(app, "orders") == ("2,000 records", "lag 1,000") and lines(app, table) == ("20 records", "lag 0")
    app.resume()
    assert app.wait(120)
    eventually(lambda: counted(app)["orders"], (3000, 3000))
    # an edit: what ran before is not forgotten
    app.edit(rich(name, keep=lambda key, value: False))
    assert app.status == "running"
    assert known(lambda: counted(app).get("orders")) == (3000, 3000)
    session.produce(f"{name}-orders", orders[:500], value_serde="string")
    assert app.wait(120)
    eventually(lambda: counted(app)["kept"], (3500, 1500))
    assert counted(app)["customers"] == (20, 0)
    # what is counted of this version alone; a node that lets nothing through now is seen though it did before
    eventually(lambda: in_this_version(app, "orders", "kept", "by-value"), [(500, 500), (500, 0), (0, 0)])
    eventually(lambda: "3,520 records (500 since version 2), lag 0" in repr(app), True)
    mark = app.picture().marks["node:kept"]
    assert mark.state == "silent" and "since version 2: 500 in, 0 out" in mark.lines
    drawer = str(rows_behind(app, "node:kept"))
    assert all(text in drawer for text in ("since version 2", ">500<", "since it was created", ">3500<", ">1500<")), drawer
    app.pause()
    app.resume()
    assert known(lambda: in_this_version(app, "orders", "kept")) == [(500, 500), (500, 0)]
    app.stop()
    assert known(lambda: told(app)) == (3520, 0) and app.status == "stopped"
    assert "3,520 records (500 since version 2), lag 0" in repr(app)
    app.rollback()
    app.resume()
    session.produce(f"{name}-orders", orders[:100], value_serde="string")
    assert app.wait(120)
    eventually(lambda: in_this_version(app, "orders", "kept"), [(100, 100), (100, 50)])
    assert counted(app)["kept"] == (3600, 1550)
    eventually(lambda: "3,620 records (100 since version 3), lag 0" in repr(app), True)
    app.stop()
    # a deploy with an end, over the same records: it has a report then, and only then
    builder = ks.StreamsBuilder()
    builder.stream(f"{name}-orders", **TEXT).filter(lambda key, value: value != "even", name="kept").to(f"{name}-out", **TEXT)
    bounded = session.deploy(builder, f"{name}-bounded", config={**config, "autostop.at": "eol"})
    assert bounded.status == "stopped" or bounded.batch_report is None
    assert bounded.wait(120, until=lambda app: app.status == "stopped")
    report = bounded.batch_report
    assert report is not None and (report.run, report.state, report.records_in, report.records_out) == (1, "finished", 3600, 1800)
    assert sum(part.end - part.start for part in report.partitions) == 3600 and "3,600 records in" in repr(report)
    # another kernel
    with ks.Session(ClientSettings(broker.bootstrap_servers), directory=SessionDirectory(tmp_path / "other")) as other:
        found = other.attach(name, rich(name, keep=lambda key, value: False))
        assert known(lambda: counted(found).get("orders")) == (3600, 3600) and counted(found)["kept"] == (3600, 1550)
        assert known(lambda: told(found)) == (3620, 0) and "3,620 records, lag 0" in repr(found)


KERNEL = """
import sys, time
import kstreams_repl as ks

TEXT = {{"key_serde": "string", "value_serde": "string"}}
session = ks.connect({bootstrap!r}, directory={directory!r}, report=lambda line: None)

def passing(keep):
    builder = ks.StreamsBuilder()
    kept = builder.stream({name!r} + "-in", name="read", **TEXT).filter(keep, name="kept")
    kept.group_by_key(**TEXT).count(store="counts", name="count")
    return builder

app = session.deploy(passing(lambda key, value: value != "even"), {name!r}, config={config!r})
assert app.wait(120), app
session.produce({name!r} + "-in", [("k" + str(number % 40), "odd", number) for number in range(1000)], value_serde="string")
app.edit(passing(lambda key, value: value == "even"))
assert app.wait(120), app
print("running", flush=True)
time.sleep(600)
"""


@pytest.mark.slow  # the test above has another kernel, tests/faults/test_driver_killed.py and test_kill.py have the kills
@pytest.mark.parametrize("guarantee", ["exactly_once_v2", "at_least_once"])
def test_counts_are_those_of_the_records_after_kills_of_instances_and_of_the_kernel(
    session: ks.Session, broker: Any, tmp_path: Path, guarantee: str
) -> None:
    name = f"app-{uuid.uuid4().hex[:8]}"
    session.create_topic(f"{name}-in", partitions=4)
    orders = [(f"k{number % 40}", "even" if number % 2 == 0 else "odd", 1000 + number) for number in range(2000)]
    session.produce(f"{name}-in", orders, value_serde="string")
    config = {"processing.guarantee": guarantee, "commit.interval.ms": 100, "num.stream.threads": 2}
    script = KERNEL.format(bootstrap=broker.bootstrap_servers, directory=str(tmp_path), name=name, config=config)
    (tmp_path / "kernel.py").write_text(script)
    kernel = subprocess.Popen([sys.executable, str(tmp_path / "kernel.py")], cwd=ROOT, stdout=subprocess.PIPE, text=True, env=os.environ)
    assert kernel.stdout is not None and kernel.stdout.readline().strip() == "running"
    below = psutil.Process(kernel.pid).children(recursive=True)
    kernel.send_signal(signal.SIGKILL)
    kernel.wait()
    kernel.stdout.close()
    psutil.wait_procs(below, timeout=20)
    app = session.attach(name)
    assert counted(app)["read"] == (3000, 3000) and "version 2" in repr(app)
    edited = app.counts.this_version
    assert edited is not None
    assert counted(app)["kept"][1] == 1000 + (3000 - edited.records - 2000) and edited.records <= 1000  # the edit may come in between
    app.resume()
    for number in range(2):  # instances are killed while records come
        session.produce(f"{name}-in", orders[:1000], value_serde="string")
        assert app.wait(120, until=lambda app: len(app.reports.instances) == 2)
        kill_worker(app._core.deployment, slot=number)  # type: ignore[arg-type]
    assert app.wait(120)
    eventually(lambda: counted(app)["read"], (5000, 5000))
    mine = edited.records + 2000
    eventually(lambda: in_this_version(app, "read", "kept"), [(mine, mine), (mine, 1000)])
    app.stop()
    assert counted(app)["read"] == (5000, 5000) and in_this_version(app, "kept") == [(mine, 1000)]


@pytest.mark.slow
def test_a_failed_application_that_was_stopped_is_failed(session: ks.Session) -> None:
    name = f"app-{uuid.uuid4().hex[:8]}"
    builder = ks.StreamsBuilder()
    builder.stream(f"{name}-in", name="read", **TEXT).map_values(lambda value: 1 // 0, name="divide").foreach(print)
    session.produce(f"{name}-in", [("k", "v", 1)], value_serde="string")
    app = session.deploy(builder, name)
    with pytest.raises(ks.errors.KStreamsError):
        app.wait(120)
    app.stop()
    assert app.status == "failed" and app.error is not None and "failed" in repr(app)
    assert app.picture().marks["node:divide"].state == "failed" and "failed" in app.picture().title
    with pytest.raises(ks.errors.KStreamsError):
        app.wait(5)
    session._applications.clear()
    found = session.attach(name, builder)  # another kernel
    assert found.status == "failed" and found.error is not None and found.error.fields["node"] == "divide" and "failed" in repr(found)
