"""Deploying from a date, and over what an earlier kernel left, on a real broker and real Spark."""

from __future__ import annotations

import uuid
from pathlib import Path
from typing import Any

import pytest

import kstreams_repl as ks
from kstreams_repl.host.kafka.clients import ClientSettings
from kstreams_repl.repl.session.session_directory import SessionDirectory
from kstreams_repl.system.errors import TopologyError

pytestmark = [pytest.mark.kafka, pytest.mark.spark, pytest.mark.slow, pytest.mark.timeout(300)]
CONFIG = {"processing.guarantee": "exactly_once_v2", "commit.interval.ms": 50}
SCRIPT = """
import kstreams_repl as ks
builder = ks.StreamsBuilder()
grouped = builder.stream(topic, key_serde="string", value_serde="string").group_by_key()
grouped.count(store="counts", value_serde="long")
app = session.deploy(builder, name, config=config, start="2013-03-01")
"""


def open_session(broker: Any, directory: Path) -> ks.Session:
    session = ks.Session(ClientSettings(broker.bootstrap_servers), directory=SessionDirectory(directory))
    session.topic_configs["retention.ms"] = "-1"
    return session


def rows(app: ks.Application) -> dict[str, int]:
    return dict(app.sql("counts").df()[["key", "value"]].itertuples(index=False, name=None))


def test_a_date_to_begin_at_and_a_misfit_of_a_later_kernel(broker: Any, tmp_path: Path) -> None:
    name = f"app-{uuid.uuid4().hex[:8]}"
    topic = f"{name}-in"
    file = tmp_path / "script.py"
    file.write_text(SCRIPT)
    space: dict[str, Any] = {"__name__": "script", "topic": topic, "name": name, "config": CONFIG}
    with open_session(broker, tmp_path) as session:
        days = [f"2013-0{month}-15T00:00:00" for month in (1, 2, 3, 4)]
        session.produce(topic, [{"day": day} for day in days for _ in range(3)], key="day", timestamp="day", value_serde="json")
        exec(compile(SCRIPT, str(file), "exec"), {**space, "session": session})
        app = session.applications[name]
        assert app.wait(120)
        assert rows(app) == {days[2]: 3, days[3]: 3}
    with open_session(broker, tmp_path) as session:
        with pytest.raises(TopologyError, match="was deployed before, and its store 'counts' cannot be kept") as refused:
            exec(compile(SCRIPT.replace('"long"', '"integer"'), "other", "exec"), {**space, "session": session})
        assert f"session.attach('{name}').edit(builder, reset_state=['counts'])" in str(refused.value.hint)
        exec(compile(SCRIPT, str(file), "exec"), {**space, "session": session})
        session.produce(topic, [(days[3], "text, as the topology reads it")])
        app = session.applications[name]
        assert app.wait(120)
        assert rows(app) == {days[2]: 3, days[3]: 4}, "offsets and rows went on"
