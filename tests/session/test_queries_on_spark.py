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
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

import kstreams_repl as ks
from kstreams_repl import errors
from kstreams_repl.host.kafka.clients import ClientSettings
from kstreams_repl.repl.session.session_directory import SessionDirectory
from tests.spark.hosting import settle

pytestmark = [pytest.mark.kafka, pytest.mark.spark, pytest.mark.slow, pytest.mark.timeout(300)]
TOTAL = 4100
READER = """
import json, sys, time
from pathlib import Path
import kstreams_repl as ks
from kstreams_repl.serving.local.local_stores import LocalStores
from kstreams_repl.serving.local.queryable_state import QueryableState
config, topic, end = json.loads(sys.argv[1]), sys.argv[2], Path(sys.argv[3])
builder = ks.StreamsBuilder()
builder.stream(topic, key_serde="string", value_serde="string").group_by_key().count(store="counts")
state = QueryableState(LocalStores(builder.build(), ks.StreamsConfig(config)))
strict = ks.queries.StateQueryRequest.in_store("counts").with_query(ks.queries.KeyQuery.with_key("k")).with_partitions([0])
number = 0
while not end.exists():
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


@contextmanager
def reading(config: dict[str, Any], topic: str, directory: Path) -> Iterator[Callable[[], list[Any]]]:
    """A reader in a process of its own, from its first answer to the end of this block; yields its answers so far."""
    end, output = directory / "end", directory / "answers"

    def answers() -> list[Any]:
        whole, _, _ = output.read_text().rpartition("\n")
        return [json.loads(line) for line in whole.splitlines()]

    with output.open("w") as file:  # a pipe that is read at the end only would stop the reader when it is full
        reader = subprocess.Popen([sys.executable, "-c", READER, json.dumps(config), topic, str(end)], stdout=file)
    try:
        settle(lambda: bool(answers()), "the reader's first answer")
        yield answers
    finally:
        end.touch()
        assert reader.wait(60) == 0


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
        with reading(given, topic, tmp_path) as answers_of:
            for _ in range(20):
                session.produce(topic, [("k", "v")] * 100)
                time.sleep(0.2)
            os.kill(next(iter(app.reports.instances.values())).pid, signal.SIGKILL)
            for _ in range(20):
                session.produce(topic, [("k", "v")] * 100)
                time.sleep(0.2)
            assert app.wait(120)
            settle(lambda: answers_of()[-1] == [TOTAL, TOTAL - 1], "the reader to see the last record")
        answers = answers_of()
        bound = ks.queries.PositionBound.at(ks.queries.Position({topic: {0: TOTAL - 1}}))
        request = ks.queries.StateQueryRequest.in_store("counts").with_query(ks.queries.KeyQuery.with_key("k"))
        last = app.query(request.with_position_bound(bound), timeout=10).only_partition_result
        assert last is not None and last.result == TOTAL
        assert app.store("counts").get("k") == TOTAL
        assert app.store("counts", ks.queries.QueryableStoreTypes.key_value_store()).get("k") == TOTAL
        with app.store("counts", ks.queries.QueryableStoreTypes.timestamped_key_value_store()).all() as rows:
            assert [key for key, _ in rows] == ["k"]
    kinds = Counter(answer if isinstance(answer, str) else "answer" for answer in answers)
    print(kinds)
    failures = set(kinds) - {"answer", "NOT_ACTIVE", "NOT_PRESENT"}
    assert all(getattr(errors, one).retriable for one in failures), kinds
    assert kinds["NOT_ACTIVE"] > 0, kinds  # to the half that requires an active task, until Spark has replaced the worker
    counted = [answer for answer in answers if not isinstance(answer, str)]
    wrong = [(count, at) for count, at in counted if at >= 0 and count != at + 1]
    assert not wrong, wrong[:5]
    assert len(counted) > 1_000 and len({count for count, _ in counted}) > 10
