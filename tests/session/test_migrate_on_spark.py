"""Rows of a kept store through a function, on a real broker and real Spark: each once, with the version that reads them, or not at all."""

from __future__ import annotations

import time
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import kstreams_repl as ks
from kstreams_repl.host.journal.journal import JournalControl
from kstreams_repl.host.kafka.clients import ClientSettings
from kstreams_repl.repl.session.session_directory import SessionDirectory
from kstreams_repl.system.errors import KStreamsError, TopologyError
from tests.spark.hosting import spark

__all__ = ["spark"]
pytestmark = [pytest.mark.kafka, pytest.mark.spark, pytest.mark.slow, pytest.mark.timeout(600)]
CONFIG = {
    "processing.guarantee": "exactly_once_v2", "commit.interval.ms": 50, "auto.offset.reset": "earliest", "num.stream.threads": 2,
}  # fmt: skip


@pytest.fixture
def session(broker: Any, spark: Any, tmp_path: Path) -> Iterator[ks.Session]:
    with ks.Session(ClientSettings(broker.bootstrap_servers), spark=spark, directory=SessionDirectory(tmp_path)) as session:
        session.topic_configs["retention.ms"] = "-1"
        yield session


def numbers(topic: str) -> ks.StreamsBuilder:
    """How many, as a long."""
    builder = ks.StreamsBuilder()
    grouped = builder.stream(topic, key_serde="string", value_serde="string").group_by_key()
    grouped.count(store="counts", name="counts")
    grouped.count(store="kept", name="kept")
    return builder


def objects(topic: str) -> ks.StreamsBuilder:
    """How many, in an object."""
    builder = ks.StreamsBuilder()
    grouped = builder.stream(topic, key_serde="string", value_serde="string").group_by_key()
    grouped.aggregate(
        lambda: {"n": 0, "from": "new"},
        lambda key, value, total: {**total, "n": total["n"] + 1},
        store="counts", name="counts", value_serde="json",
    )  # fmt: skip
    grouped.count(store="kept", name="kept")
    return builder


def rows(app: ks.Application, store: str) -> dict[str, Any]:
    found = {f"k{n}": app.store(store).get(f"k{n}") for n in range(50)}
    return {key: value for key, value in found.items() if value is not None}


def started(session: ks.Session) -> tuple[ks.Application, str]:
    name = f"app-{uuid.uuid4().hex[:8]}"
    topic = f"{name}-in"
    session.produce(topic, [(f"k{n % 50}", "word", 1000 + n) for n in range(500)])
    app = session.deploy(numbers(topic), name, config=CONFIG)
    assert app.wait(120)
    return app, topic


def test_rows_are_converted_once_and_counted_on(session: ks.Session) -> None:
    app, topic = started(session)
    with pytest.raises(TopologyError, match="value serde") as refused:
        app.edit(objects(topic))
    assert "migrate={'counts'" in str(refused.value.hint)
    plan = app.edit(objects(topic), migrate={"counts": lambda key, value: {"n": value, "from": key}}, dry_run=True)
    assert "migrated" in repr(plan) and "those of counts are converted" in repr(plan)
    app.edit(objects(topic), migrate={"counts": lambda key, value: {"n": value, "from": key} if key != "k49" else None})
    assert app.status == "running"
    assert rows(app, "counts") == {f"k{n}": {"n": 10, "from": f"k{n}"} for n in range(49)}  # never those of before
    session.produce(topic, [(f"k{n}", "word", 5000) for n in range(50)])
    assert app.wait(120)
    assert rows(app, "counts") == {f"k{n}": {"n": 11, "from": f"k{n}"} for n in range(49)} | {"k49": {"n": 1, "from": "new"}}
    assert rows(app, "kept") == {f"k{n}": 11 for n in range(50)}
    with pytest.raises(TopologyError, match="has converted the rows"):
        app.rollback()
    app.rollback(migrate={"counts": lambda key, value: value["n"]})
    assert rows(app, "counts") == {f"k{n}": 11 for n in range(49)} | {"k49": 1}
    session.produce(topic, [("k0", "word", 6000)])
    assert app.wait(120)
    assert rows(app, "counts") == {f"k{n}": 11 for n in range(49)} | {"k49": 1, "k0": 12}


def test_what_happens_in_the_middle_is_old_or_new(session: ks.Session, monkeypatch: pytest.MonkeyPatch) -> None:
    app, topic = started(session)
    before = rows(app, "counts")
    # the function fails: nothing was begun
    with pytest.raises(TopologyError, match="the row of key 'k7' raised ValueError: no"):
        app.edit(objects(topic), migrate={"counts": fails_at_seven})
    assert (app.status, rows(app, "counts"), [v.number for v in app.versions]) == ("running", before, [1])
    # the driver dies when all is written and nothing committed: its transaction is given up by whoever comes next
    write = JournalControl._produce

    def dies(self: JournalControl, *about: Any) -> None:
        write(self, *about)
        if about[2] == b"k9":
            self._producer.flush(10)
            raise KStreamsError("died")

    monkeypatch.setattr(JournalControl, "_produce", dies)
    with pytest.raises(KStreamsError, match="died"):
        app.edit(objects(topic), migrate={"counts": lambda key, value: {"n": value}})
    monkeypatch.undo()
    session.produce(topic, [("k0", "word", 5000)])
    assert app.wait(120)
    assert (app.status, rows(app, "counts")) == ("running", before | {"k0": 11})
    # it dies when all is committed and nothing started: the journal says which version it is
    monkeypatch.setattr(
        "kstreams_repl.host.spark.deployment.Deployment.start", lambda self: (_ for _ in ()).throw(KStreamsError("died"))
    )
    with pytest.raises(KStreamsError, match="died"):
        app.edit(objects(topic), migrate={"counts": lambda key, value: {"n": value}})
    monkeypatch.undo()
    assert [v.number for v in app.versions] == [1, 2]
    session._applications.clear()
    again = session.attach(app.name)
    assert str(again.topology.describe()) == str(objects(topic).build().describe())
    session.produce(topic, [("k0", "word", 6000)])
    again.resume()
    assert again.wait(120)
    assert rows(again, "counts") == {key: {"n": n} for key, n in (before | {"k0": 12}).items()}


def keyed(topic: str, *, new: bool) -> ks.StreamsBuilder:
    """A count by key, by window and by session; in the new version under JSON keys (where JSON has a text's bytes but for its quotes: a
    number), and with objects as values.
    """
    builder = ks.StreamsBuilder()
    key_serde, value_serde = ("json", "json") if new else ("string", "long")
    stream: Any = builder.stream(topic, key_serde=key_serde, value_serde="string")
    grouped = stream.group_by_key(key_serde=key_serde, value_serde="string")
    by_text = builder.stream(f"{topic}-2", key_serde="string", value_serde="string").group_by_key(
        key_serde="string", value_serde="string"
    )

    def count(to: Any, store: str, *merger: Any) -> None:
        adder = (lambda key, value, total: {"n": total["n"] + 1}) if new else (lambda key, value, total: total + 1)
        to.aggregate(lambda: {"n": 0} if new else 0, adder, *merger, store=store, name=store, value_serde=value_serde)

    count(grouped, "by-key")
    count(by_text.windowed_by(ks.TimeWindows.of_size(1000, grace=600_000)), "by-window")
    merged = (lambda key, a, b: {"n": a["n"] + b["n"]}) if new else (lambda key, a, b: a + b)
    count(by_text.windowed_by(ks.SessionWindows.of_inactivity_gap(200, grace=600_000)), "by-session", merged)
    return builder


def test_keys_windows_and_sessions_are_converted_and_counted_on(session: ks.Session) -> None:
    name = f"app-{uuid.uuid4().hex[:8]}"
    topic = f"{name}-in"
    begin = int(time.time()) * 1000  # changelogs of windows lose what is old on the clock
    records = [(str(n % 50), "word", begin + n) for n in range(500)]
    for source in (topic, f"{topic}-2"):
        session.produce(source, records, partitions=4)
    app = session.deploy(keyed(topic, new=False), name, config=CONFIG)
    assert app.wait(120)
    new = keyed(topic, new=True)
    with pytest.raises(TopologyError, match="its key serde was string, would be json") as refused:
        app.edit(new)
    assert "migrate_rows={'by-key'" in str(refused.value.hint)
    values = {"by-window": lambda key, value: {"n": value}, "by-session": lambda key, value: {"n": value, "from": key.start}}
    with pytest.raises(TopologyError, match="would move from partition") as refused:
        app.edit(new, migrate=values, migrate_rows={"by-key": lambda key, value: (f"k{key}", {"n": value})})
    assert "give it a new name" in str(refused.value.hint)
    assert (app.status, len(app.versions)) == ("running", 1)
    app.edit(new, migrate=values, migrate_rows={"by-key": lambda key, value: (int(key), {"n": value}) if key != "49" else None})
    for source in (topic, f"{topic}-2"):
        session.produce(source, [(key, word, at + 20) for key, word, at in records[-50:]], key_serde="string")
    assert app.wait(120)
    found = session.sql(f'SELECT key, value.n FROM "{name}"."by-key" ORDER BY key').fetchall()
    assert [(int(key), n) for key, n in found] == [(n, 11) for n in range(49)] + [(49, 1)]
    windows = session.sql(f'SELECT key, window_start, value.n FROM "{name}"."by-window"').fetchall()
    assert len(windows) == 50 and {n for _, _, n in windows} == {11}
    sessions = session.sql(f'SELECT key, value.n FROM "{name}"."by-session"').fetchall()
    assert len(sessions) == 50 and {n for _, n in sessions} == {11}
    with pytest.raises(TopologyError, match="has converted the rows"):
        app.rollback()
    back = {"by-window": lambda key, value: value["n"], "by-session": lambda key, value: value["n"]}
    app.rollback(migrate=back, migrate_rows={"by-key": lambda key, value: (str(key), value["n"])})
    assert app.wait(120)
    assert app.store("by-key").get("7") == 11
    app.stop()


def fails_at_seven(key: str, value: int) -> Any:
    if key == "k7":
        raise ValueError("no")
    return {"n": value}
