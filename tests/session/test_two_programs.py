"""R37: another program deploys under the id of a running application: refused, or taken over if it says so, and the first one says it."""

from __future__ import annotations

import time
import uuid
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

import kstreams_repl as ks
from kstreams_repl.host.kafka.clients import ClientSettings
from kstreams_repl.repl.session.session_directory import SessionDirectory
from kstreams_repl.system.errors import AlreadyOwnedError, TaskMigratedError
from tests.spark.hosting import spark

__all__ = ["spark"]
pytestmark = [pytest.mark.kafka, pytest.mark.spark, pytest.mark.timeout(300)]
QUICK = {"commit.interval.ms": 50, "processing.guarantee": "exactly_once_v2"}


@pytest.fixture
def program(broker: Any, spark: Any, tmp_path: Path) -> Iterator[Callable[[str], ks.Session]]:
    """Sessions of programs with directories of their own: they share nothing but the broker."""
    with ExitStack() as sessions:

        def connect(directory: str) -> ks.Session:
            session = ks.Session(
                ClientSettings(broker.bootstrap_servers), spark=spark, directory=SessionDirectory(tmp_path / directory), config=QUICK
            )
            session.topic_configs["retention.ms"] = "-1"
            return sessions.enter_context(session)

        yield connect


def counting(topic: str, *, only: str = "") -> ks.StreamsBuilder:
    builder = ks.StreamsBuilder()
    words = builder.stream(topic, key_serde="string", value_serde="string")
    if only:
        words = words.filter(lambda key, value: key == only, name="only")
    words.group_by_key(key_serde="string", value_serde="string").count(store="n")
    return builder


def failed(app: ks.Application, seconds: float) -> Any:
    deadline = time.monotonic() + seconds
    while app.status != "failed":
        assert time.monotonic() < deadline, app
        time.sleep(0.05)
    return app.error


@pytest.mark.slow
def test_another_topology_under_the_id_of_a_running_application_is_refused_and_the_former_owner_of_one_taken_over_says_so(
    program: Callable[[str], ks.Session],
) -> None:
    name = f"two-{uuid.uuid4().hex[:8]}"
    topic = f"{name}-in"
    first, second = program("first"), program("second")
    first.produce(topic, [("a", "x"), ("b", "x")], partitions=2)
    app = first.deploy(counting(topic), name)
    assert app.wait(120)

    with pytest.raises(AlreadyOwnedError) as refused:
        second.deploy(counting(topic, only="a"), name)
    said = str(refused.value)
    assert f"another program runs {name} (version 1, since 20" in said and "this topology is another one: 'Processor: only" in said
    assert "deploy under another name" in said and "take_over=True" in said
    assert not second.applications and app.status == "running"
    first.produce(topic, [("a", "y")])
    assert app.wait(60) and app.store("n").get("a") == 2

    # on explicit word, with no record on its way: the first one says it within seconds, and does not wait for what others process
    intruder = second.deploy(counting(topic, only="a"), name, take_over=True)
    assert intruder.wait(120)
    with pytest.raises(TaskMigratedError, match=f"another program took over {name}"):
        app.wait(60)
    error = failed(app, 10)
    assert isinstance(error, TaskMigratedError) and "no data are lost" not in str(error)
    assert "session.attach" in str(error.hint) and "(its generation 2, version 1)" in error.message

    # it takes back what is its own, from the commit of the other one, and now that one says so
    app = first.attach(name, counting(topic))
    app.resume()
    error = failed(intruder, 10)
    assert "(its generation 3, " in error.message
    first.produce(topic, [("a", "z"), ("b", "z")])
    assert app.wait(60)
    assert (app.store("n").get("a"), app.store("n").get("b")) == (3, 2)
