"""A deployed application and its query server, a process of its own: reads, read your own writes, SQL, changes, metadata, its end."""

from __future__ import annotations

import json
import os
import signal
import stat
import time
import uuid
from pathlib import Path
from typing import Any

import httpx
import pytest

import kstreams_repl as ks
from kstreams_repl.host.kafka.clients import ClientSettings
from kstreams_repl.repl.session.session_directory import SessionDirectory
from kstreams_repl.system.processes import ProcessMark
from kstreams_repl.system.types import TopicPartition
from tests.spark.hosting import settle

pytestmark = [pytest.mark.spark, pytest.mark.kafka, pytest.mark.timeout(300)]


@pytest.mark.slow
def test_a_deployed_application_is_served(broker: Any, tmp_path: Path) -> None:
    name, topic = f"app-{uuid.uuid4().hex[:8]}", f"in-{uuid.uuid4().hex[:8]}"
    with ks.Session(ClientSettings(broker.bootstrap_servers), directory=SessionDirectory(tmp_path)) as session:
        session.topic_configs["retention.ms"] = "-1"
        session.produce(topic, [(f"k{n % 50}", "word", 1000 + n) for n in range(500)])
        builder = ks.StreamsBuilder()
        words = builder.stream(topic, key_serde="string", value_serde="string")
        words.group_by_key(key_serde="string", value_serde="string").count(store="counts")
        app = session.deploy(builder, name, config={"processing.guarantee": "exactly_once_v2", "commit.interval.ms": 50})
        assert app.wait(120)
        server = app.serve()
        assert app.serve() == server and server.running
        tokens = json.loads(Path(server.token_path).read_text())
        assert stat.S_IMODE(Path(server.token_path).stat().st_mode) == 0o600 and tokens["look"] not in repr(server)
        with httpx.Client(base_url=server.url, headers={"Authorization": f"Bearer {tokens['look']}"}, trust_env=False, timeout=30) as web:
            for key in range(50):
                assert web.get(f"/state/stores/counts/k{key}").json()["value"] == 10
            everything = {f"k{n}": 10 for n in range(50)}
            assert {row["key"]: row["value"] for row in web.get("/state/range/counts").json()["rows"]} == everything
            # discovery
            settle(lambda: app.metadata_for_all_clients()[0].host_info == server.host_info, "the journal to name the server")
            where = app.query_metadata_for_key("counts", "k1")
            assert where.active_host == server.host_info and web.get("/state/instance/counts/k1").json() == where.plain()
            lags = app.all_local_store_partition_lags()["counts"]
            assert set(lags) == set(range(4)) and {lag.offset_lag for lag in lags.values()} == {0}, "a marker after the last row is no row"
            # SQL over one cut, in the sandbox
            assert web.get("/sql", params={"q": "SELECT count(*) AS n, sum(value) AS s FROM counts"}).json()["rows"] == [[50, 500]]
            for query in (
                f"SELECT * FROM read_csv('{server.token_path}')", f'SELECT * FROM "{topic}"', "COPY (SELECT 1) TO '/tmp/x'",
                "SELECT 1; SELECT 2",
                "INSTALL httpfs", "SET enable_external_access=true", "ATTACH '/tmp/x.db'", f"SELECT * FROM '{server.token_path}'",
            ):  # fmt: skip
                refused = web.get("/sql", params={"q": query})
                assert refused.status_code == 400 and refused.json()["error"] == "SqlError" and tokens["look"] not in refused.text, query
            # read your own writes, and changes as they commit
            with web.stream("GET", "/subscribe/counts") as events:
                lines = events.iter_lines()
                rows = _until(lines, "snapshot")
                assert {json.loads(row)["key"]: json.loads(row)["value"] for kind, row, _ in rows if kind == "row"} == {
                    f"k{n}": 10 for n in range(50)
                }
                session.produce(topic, [("k1", "word", 9000), ("new", "word", 9001)])
                changes = _until(lines, "change", 2)
                found = {json.loads(data)["key"]: json.loads(data)["value"] for kind, data, _ in changes if kind == "change"}
                assert found == {"k1": 11, "new": 1}
                last = changes[-1][2]
            partition = web.get("/state/stores/counts/k1").json()["partitions"][0]
            session.produce(topic, [("k1", "word", 9002)])
            at = TopicPartition(topic, partition)
            written = session.admin.end_offsets([at], isolation="read_uncommitted")[at] - 1
            bound = {"position": json.dumps({topic: {str(partition): written}}), "wait": "10"}
            assert web.get("/state/stores/counts/k1", params=bound).json()["value"] == 12
            with web.stream("GET", "/subscribe/counts", params={"from": last}) as events:  # goes on where it ended
                resumed = [json.loads(data) for _, data, _ in _until(events.iter_lines(), "change")]
                assert [(change["key"], change["value"]) for change in resumed] == [("k1", 12)]
            page = web.get("/health").json()
            assert page["running"] and page["application"] == name and page["serves_version"] == page["runs_version"] == 1
            page = web.get("/metrics").text
            assert "kstreams_query_requests_total" in page
            name_of = "kafka_streams_stream_thread_metrics_process_total"
            processed = [line for line in app.metrics.prometheus().splitlines() if line.startswith(name_of)]
            assert processed and set(processed) <= set(page.splitlines())
            with web.stream("GET", "/page/changes") as events:
                state = json.loads(next(line for line in events.iter_lines() if line.startswith("data: "))[6:])
                assert state["status"] == "running" and "<svg" in state["svg"]
            app.pause()
            assert web.get("/state/stores/counts/k1").json()["value"] == 12  # at rest: the last commit
            app.resume()
        process: ProcessMark = server._record.process
        assert process.is_alive
    assert process.wait(10)  # it ends with its session


def test_a_server_starts_with_the_instances_and_ends_with_the_application(broker: Any, tmp_path: Path) -> None:
    name, topic = f"app-{uuid.uuid4().hex[:8]}", f"in-{uuid.uuid4().hex[:8]}"
    with ks.Session(ClientSettings(broker.bootstrap_servers), directory=SessionDirectory(tmp_path)) as session:
        session.produce(topic, [("a", "word")])
        builder = ks.StreamsBuilder()
        words = builder.stream(topic, key_serde="string", value_serde="string")
        words.group_by_key(key_serde="string", value_serde="string").count(store="counts")
        app = session.deploy(builder, name, config={"application.server": "127.0.0.1:0"})
        assert app.wait(120)
        settle(lambda: app.query_metadata_for_key("counts", "a").is_available, "a server to report")
        host = app.query_metadata_for_key("counts", "a").active_host
        token = json.loads(Path(app.query_token_path).read_text())["look"]
        headers = {"Authorization": f"Bearer {token}"}
        assert httpx.get(f"{host.url}/state/stores/counts/a", headers=headers, trust_env=False, timeout=30).json()["value"] == 1
        server = app.serve()
        assert server.host_info == host  # no second one
        os.kill(server._record.pid, signal.SIGKILL)
        settle(lambda: (now := app.query_metadata_for_key("counts", "a")).is_available and now.active_host != host, "a new server")
        host = app.query_metadata_for_key("counts", "a").active_host
        assert httpx.get(f"{host.url}/state/stores/counts/a", headers=headers, trust_env=False, timeout=30).json()["value"] == 1
        app.stop()
        settle(lambda: not app.metadata_for_all_clients()[0].host_info.port > 0, "the server to end", 20)
        with pytest.raises(httpx.ConnectError):
            httpx.get(f"{host.url}/health", headers=headers, trust_env=False)


def _until(lines: Any, wanted: str, count: int = 1) -> list[tuple[str, str, str]]:
    """The events up to the count-th of a kind: (kind, data, id)."""
    found: list[tuple[str, str, str]] = []
    event: dict[str, str] = {}
    deadline = time.monotonic() + 30
    for line in lines:
        assert time.monotonic() < deadline, found
        if line:
            name, _, value = line.partition(": ")
            event[name] = value
            continue
        if "event" in event:
            found.append((event["event"], event["data"], event.get("id", "")))
            if sum(kind == wanted for kind, _, _ in found) >= count:
                return found
        event = {}
    raise AssertionError(f"the stream ended: {found}")
