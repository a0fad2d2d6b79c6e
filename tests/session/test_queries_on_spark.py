"""Queries from another process on the host, while real instances on Spark commit, and over a kill -9 of a worker.

The topic has one partition and one key: an answer that reflects the offset p is p + 1, or it is none of a commit.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
import uuid
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

import kstreams_repl as ks
from kstreams_repl import errors
from kstreams_repl.kafka.clients import ClientSettings
from kstreams_repl.session.session_directory import SessionDirectory

pytestmark = [pytest.mark.kafka, pytest.mark.spark, pytest.mark.slow, pytest.mark.timeout(300)]
READER = """
import json, sys, time
import kstreams_repl as ks
from kstreams_repl.queries.local_stores import LocalStores
from kstreams_repl.queries.queryable_state import QueryableState
config, topic, seconds = json.loads(sys.argv[1]), sys.argv[2], float(sys.argv[3])
builder = ks.StreamsBuilder()
builder.stream(topic, key_serde="string", value_serde="string").group_by_key().count(store="counts")
state = QueryableState(LocalStores(builder.build(), ks.StreamsConfig(config)))
strict = ks.StateQueryRequest.in_store("counts").with_query(ks.KeyQuery.with_key("k")).with_partitions([0])
end = time.monotonic() + seconds
number = 0
while time.monotonic() < end:
    number += 1
    request = strict.require_active() if number % 2 else strict
    try:
        answer = state.query(request).partition_results[0]
        told = str(answer.failure_reason) if answer.is_failure else [answer.result, answer.position.partition_positions(topic).get(0, -1)]
    except ks.KStreamsError as error:
        told = type(error).__name__
    print(json.dumps(told), flush=True)
    time.sleep(0.001)
"""


def test_answers_of_another_process_are_commits_also_over_a_kill(broker: Any, tmp_path: Path) -> None:
    name = f"app-{uuid.uuid4().hex[:8]}"
    topic = f"{name}-in"
    with ks.Session(ClientSettings(broker.bootstrap_servers), directory=SessionDirectory(tmp_path)) as session:
        session.create_topic(topic, partitions=1)
        builder = ks.StreamsBuilder()
        builder.stream(topic, key_serde="string", value_serde="string").group_by_key().count(store="counts")
        app = session.deploy(builder, name, config={"processing.guarantee": "exactly_once_v2", "commit.interval.ms": 50})
        session.produce(topic, [("k", "v")] * 100)
        assert app.wait(120)
        own = {key: app.config[key] for key in ("application.id", "bootstrap.servers", "state.dir", "default.key.serde")}
        given = {key: value for key, value in own.items() if value is not None}
        command = [sys.executable, "-c", READER, json.dumps(given), topic, "30"]
        reader = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        for _ in range(20):
            session.produce(topic, [("k", "v")] * 100)
            time.sleep(0.2)
        os.kill(next(iter(app.reports.instances.values())).pid, signal.SIGKILL)
        for _ in range(20):
            session.produce(topic, [("k", "v")] * 100)
            time.sleep(0.2)
        assert app.wait(120)
        total = 4100
        bound = ks.PositionBound.at(ks.Position({topic: {0: total - 1}}))
        request = ks.StateQueryRequest.in_store("counts").with_query(ks.KeyQuery.with_key("k"))
        last = app.query(request.with_position_bound(bound), timeout=10).only_partition_result
        assert last is not None and last.result == total
        assert app.store("counts").get("k") == total
        assert app.store("counts", ks.QueryableStoreTypes.key_value_store()).get("k") == total
        with app.store("counts", ks.QueryableStoreTypes.timestamped_key_value_store()).all() as rows:
            assert [key for key, _ in rows] == ["k"]
        answers = [json.loads(line) for line in reader.communicate(timeout=60)[0].splitlines()]
        assert reader.returncode == 0
    kinds = Counter(answer if isinstance(answer, str) else "answer" for answer in answers)
    print(kinds)
    failures = set(kinds) - {"answer", "NOT_ACTIVE", "NOT_PRESENT"}
    assert all(getattr(errors, one).retriable for one in failures), kinds
    assert kinds["NOT_ACTIVE"] > 0, kinds  # until Spark has replaced the worker; only half of the requests require an active task
    counted = [answer for answer in answers if not isinstance(answer, str)]
    wrong = [(count, at) for count, at in counted if at >= 0 and count != at + 1]
    assert not wrong, wrong[:5]
    assert len(counted) > 1_000 and len({count for count, _ in counted}) > 10
    assert counted[-1] == [total, total - 1]
