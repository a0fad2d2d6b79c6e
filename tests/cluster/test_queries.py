"""Queries of an application on two hosts, each with its query server: every key through either one, and what a caller sees when one of
them is killed, with and without standby copies.
"""

from __future__ import annotations

import json
import os
import signal
import time
import uuid
from collections import Counter
from collections.abc import Iterator
from contextlib import suppress
from itertools import pairwise
from pathlib import Path
from typing import Any

import httpx
import pytest

import kstreams_repl as ks
from kstreams_repl import errors
from kstreams_repl.host.instance.metadata import HostInfo
from kstreams_repl.host.spark.query_server_process import ServerRecord
from kstreams_repl.host.spark.startup.spark_session import stop_session
from kstreams_repl.host.spark.startup.standalone_cluster import StandaloneCluster
from kstreams_repl.repl.session.views.stores.store_view import StoreView
from tests.spark.hosting import settle

pytestmark = [pytest.mark.spark, pytest.mark.kafka, pytest.mark.slow, pytest.mark.timeout(600)]
KEYS = 100
EACH = 20
ROWS = 400_000
"""Rows of the store, so that there is something to restore."""


def topology(topic: str) -> ks.StreamsBuilder:
    builder = ks.StreamsBuilder()
    words = builder.stream(topic, key_serde="string", value_serde="string")
    words.group_by_key(key_serde="string", value_serde="string").count(store="counts")
    return builder


class Cluster:
    """A session with an application on both workers of a cluster."""

    def __init__(self, broker: Any, cluster: StandaloneCluster, directory: Path, **settings: Any) -> None:
        stop_session()
        self.cluster = cluster
        self.name = f"app-{uuid.uuid4().hex[:8]}"
        self.topic = f"{self.name}-in"
        self.session = ks.connect(broker.bootstrap_servers, spark=cluster.master, directory=directory / "session")
        self.session.topic_configs["retention.ms"] = "-1"
        self.session.create_topic(self.topic, partitions=4)
        self.settings = settings
        self.web: Any = None

    def start(self) -> Cluster:
        self.session.produce(self.topic, [(f"row{number}", "word") for number in range(ROWS)])
        self.write(EACH)
        config = {
            "processing.guarantee": "exactly_once_v2", "commit.interval.ms": 50, "num.stream.threads": 2,
            "application.server": "127.0.0.1:0", "state.dir": None, **self.settings,
        }  # fmt: skip
        self.app = self.session.deploy(topology(self.topic), self.name, config=config)
        assert self.app.wait(180)
        settle(lambda: len(self.servers()) == 2, "two query servers", story=self.logs)
        unknown = ks.queries.StreamsMetadata.UNKNOWN
        settle(lambda: len({host.host_info for host in self.app.metadata_for_all_clients()} - {unknown}) == 2, "both")
        token = json.loads(Path(self.app.query_token_path).read_text())["look"]
        self.web = httpx.Client(headers={"Authorization": f"Bearer {token}"}, trust_env=False, timeout=20)
        return self

    def logs(self) -> str:
        """What the servers have printed."""
        return "\n".join(f"{path}: {path.read_text()}" for n in (0, 1) for path in self.cluster.state(n).glob("*/servers/*.*"))

    def copies_lag(self) -> int:
        """Lag of all standby copies; -1 while there are fewer than tasks."""
        copies = {task: lag for report in self.app.reports.instances.values() for task, lag in report.standbys.items()}
        return sum(copies.values()) if len(copies) == 4 else -1

    def write(self, each: int) -> None:
        self.session.produce(self.topic, [(f"k{key}", "word") for _ in range(each) for key in range(KEYS)])

    def servers(self) -> dict[int, ServerRecord]:
        """The record of the server of each worker."""
        found = {}
        for worker in (0, 1):
            for path in self.cluster.state(worker).glob(f"{self.name}/servers/*.json"):
                record = ServerRecord(**json.loads(path.read_text()))
                if record.process.is_alive:
                    found[worker] = record
        return found

    def get(self, host: HostInfo, key: str, **options: Any) -> httpx.Response:
        return self.web.get(f"{host.url}/state/stores/counts/{key}", params=options)

    def hops(self, host: HostInfo) -> float:
        """What a server's metrics say of the requests that it sent on."""
        (found,) = (line for line in self.web.get(f"{host.url}/metrics").text.splitlines() if line.startswith("kstreams_query_hops_total "))
        return float(found.split()[1])

    def kill(self, worker: int) -> None:
        """kill -9 of a host: the Spark worker, its executor, its Python workers and its query server."""
        server = self.servers()[worker].pid
        self.cluster.kill(worker)
        with suppress(ProcessLookupError):  # it ends by itself when it sees that its worker has
            os.kill(server, signal.SIGKILL)

    def close(self) -> None:
        if self.web is not None:
            self.web.close()
        self.session.close()
        stop_session()


@pytest.fixture
def started(broker: Any, cluster: StandaloneCluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    monkeypatch.setenv("KSTREAMS_STATE", str(tmp_path / "driver"))  # the session's host; the workers have directories of their own
    made: list[Cluster] = []

    def start(**settings: Any) -> Cluster:
        made.append(Cluster(broker, cluster, tmp_path, **settings))
        return made[-1].start()

    yield start
    for one in made:
        one.close()


def typed_handle(app: ks.Application, keys: Any) -> Any:
    """A typed handle of the session, which has no partition on its host; handle and requests read those of both hosts."""
    handle = app.store("counts", ks.queries.QueryableStoreTypes.key_value_store())
    assert {handle.get(key) for key in keys} == {EACH} and handle.get_many(keys) == dict.fromkeys(keys, EACH)
    with handle.prefix_scan("k") as rows:
        assert dict(rows) == dict.fromkeys(keys, EACH)
    request = ks.queries.StateQueryRequest.in_store("counts").with_query(ks.queries.KeyQuery.with_key(next(iter(keys)))).require_active()
    with app.query(request) as answers:
        assert set(answers.partition_results) == set(range(4))
        assert {at for offsets in answers.position.offsets.values() for at in offsets} == set(range(4))
        assert answers.only_partition_result is not None and answers.only_partition_result.result == EACH
    return handle


@pytest.mark.parametrize("standbys", [0, 1])
def test_a_host_is_killed_and_every_key_is_answered_again(started: Any, monkeypatch: pytest.MonkeyPatch, standbys: int) -> None:
    on = started(**{"num.standby.replicas": standbys})
    hosts = {worker: record.address for worker, record in on.servers().items()}
    owners = {f"k{key}": on.app.query_metadata_for_key("counts", f"k{key}") for key in range(KEYS)}
    assert {owner.active_host for owner in owners.values()} == set(hosts.values())
    for host in hosts.values():
        answers = {key: on.get(host, key).json() for key in owners}
        assert {answer["value"] for answer in answers.values()} == {EACH}, answers
        assert not any(answer["stale"] for answer in answers.values())
        elsewhere = sum(owner.active_host != host for owner in owners.values())
        assert on.hops(host) >= elsewhere > 0  # each key of the other host's was asked for there
    with monkeypatch.context() as patched:
        patched.setattr(StoreView, "_from_changelog", lambda *_: pytest.fail("the changelog was read"))
        assert {on.app.store("counts").get(key) for key in owners} == {EACH} and on.app.store("counts").get("none") is None
    handle = typed_handle(on.app, owners)
    lost = next(key for key, owner in owners.items() if owner.active_host == hosts[1])
    if standbys:
        settle(lambda: on.copies_lag() == 0, "standby copies of all tasks")
    on.kill(1)
    killed = time.monotonic()
    seen: Counter[str] = Counter()
    stale_seen: Counter[str] = Counter()
    stale_lags: set[int] = set()
    stale_gaps = [killed]
    while time.monotonic() - killed < 60:
        answer = on.get(hosts[0], lost)
        seen[str(answer.status_code) if answer.status_code == 200 else answer.json()["error"]] += 1
        if answer.status_code != 200:
            assert answer.json()["retriable"] and getattr(errors, answer.json()["error"]).retriable, answer.text
        old = on.get(hosts[0], lost, stale="true")
        stale_seen["stale" if old.status_code == 200 and old.json()["stale"] else str(old.status_code)] += 1
        if old.status_code == 200:
            assert old.json()["value"] == EACH, old.text
            stale_gaps.append(time.monotonic())
            stale_lags.add(old.json()["lag"])
        if answer.status_code == 200:
            break
        time.sleep(0.01)
    without = time.monotonic() - killed
    assert answer.status_code == 200 and answer.json()["value"] == EACH, (seen, answer.text)
    longest = max(later - earlier for earlier, later in pairwise(stale_gaps))
    print(f"\n{ROWS:,} rows, {standbys} standby copies: no answer for {without:.2f} s, with stale=true for {longest:.2f} s")
    print(f"{dict(seen)}; with stale=true {dict(stale_seen)}, lag at most {max(stale_lags)}")
    if standbys:
        assert stale_seen["stale"] > 0
    else:
        assert stale_lags == {0}  # rows that are restored in full, at most a moment before the journal says that the task runs
    on.write(1)
    assert on.app.wait(180)
    assert {on.get(hosts[0], key).json()["value"] for key in owners} == {EACH + 1}
    assert {handle.get(key) for key in owners} == {EACH + 1}  # works again after the move
