"""Deploying over what an earlier run left, and from a time on; the small cluster stands for broker and Spark."""

from __future__ import annotations

import re
import struct
from pathlib import Path
from time import time as now
from types import SimpleNamespace
from typing import Any

import pytest

import kstreams_repl as ks
from kstreams_repl.host.journal.journal_records import Claim, DesiredState, InstanceHeartbeat, encode
from kstreams_repl.host.kafka.admin import NewTopicSpec
from kstreams_repl.repl.session.application.checks.compatibility import last_writer
from kstreams_repl.repl.session.application.edits.versions import Version
from kstreams_repl.repl.session.application.starting import journal_lookup
from kstreams_repl.system.errors import (
    ApplicationFailedError,
    BrokerUnavailableError,
    DeployError,
    InvalidNameError,
    KStreamsError,
    SessionFileError,
    TopologyError,
    UnknownTopicError,
)
from kstreams_repl.system.types import TopicPartition
from tests.unit.repl.session.small_cluster import PARTITIONS, SmallCluster, SmallDeployment, SmallSession, partition_of

CONFIG = {"statestore.cache.max.bytes": 0}


@pytest.fixture
def cluster() -> SmallCluster:
    cluster = SmallCluster()
    cluster.create_topics([NewTopicSpec(name, PARTITIONS) for name in ("in", "latest", "out")])
    return cluster


@pytest.fixture
def session(cluster: SmallCluster, tmp_path: Path) -> SmallSession:
    return SmallSession(cluster, tmp_path)


def put(cluster: SmallCluster, topic: str, *times: int) -> None:
    for time in times:
        for key in (b"a", b"b"):
            cluster.logs[TopicPartition(topic, partition_of(key))].append((key, struct.pack(">q", 1), time))


def summing(value_serde: str = "long", store: str = "totals") -> ks.StreamsBuilder:
    builder = ks.StreamsBuilder()
    grouped = builder.stream("in", key_serde="string", value_serde="long").group_by_key(key_serde="string", value_serde="long")
    grouped.count(store=store, value_serde=value_serde)
    return builder


def run_once(session: SmallSession) -> Any:
    app = session.deploy(summing(), "app", config=CONFIG)
    app._core.finish_start()
    return app


@pytest.mark.parametrize("state", ["paused", "stopped"])
def test_a_topology_that_would_read_rows_wrongly_is_refused_with_the_ways_out(
    session: SmallSession, cluster: SmallCluster, state: str
) -> None:
    put(cluster, "in", 1, 2)
    app = run_once(session)
    getattr(app, "pause" if state == "paused" else "stop")()
    with pytest.raises(TopologyError, match="app was deployed before, and its store 'totals' cannot be kept") as refused:
        session.deploy(summing("integer"), "app", config=CONFIG)
    for way in ("reset_state=['totals']", "another name", "session.cleanup('app')"):
        assert way in str(refused.value.hint)
    with pytest.raises(TopologyError, match="cannot be kept"):
        session.plan(summing("integer"), "app", config=CONFIG)
    assert app.status == state and session.applications["app"] is app and len(app.versions) == 1
    app.resume()
    assert dict(app.sql("totals").df()[["key", "value"]].itertuples(index=False, name=None)) == {"a": 2, "b": 2}


def test_another_store_and_the_same_topology_go_on(
    session: SmallSession, cluster: SmallCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(journal_lookup, "journal_of", lambda session, name: cluster.journal)
    run_once(session).stop()
    session.deploy(summing(store="others"), "app", config=CONFIG)._core.finish_start()
    session.applications["app"].stop()
    session.deploy(summing(store="others"), "app", config=CONFIG)._core.finish_start()
    session.applications["app"].stop()
    with pytest.raises(TopologyError, match="an earlier version left rows"):
        session.deploy(summing("integer"), "app", config=CONFIG)


MODULE = """
import kstreams_repl as ks
builder = ks.StreamsBuilder()
grouped = builder.stream("in", key_serde="string", value_serde="long").group_by_key(key_serde="string", value_serde="long")
grouped.count(store="totals", value_serde="long")
session.deploy(builder, "app", config={"statestore.cache.max.bytes": 0})._core.finish_start()
"""


def in_another_kernel(cluster: SmallCluster, folder: Path, monkeypatch: pytest.MonkeyPatch) -> SmallSession:
    """The application ran in a process that is gone: its file and its journal are there."""
    file = folder / "script.py"
    file.write_text(MODULE)
    first = SmallSession(cluster, folder / "kept")
    exec(compile(MODULE, str(file), "exec"), {"__name__": "script", "session": first})
    first.applications["app"].stop()
    cluster.create_topics([NewTopicSpec("app-journal", 1)])
    monkeypatch.setattr(journal_lookup, "journal_of", lambda session, name: cluster.journal)
    return SmallSession(cluster, folder / "kept")


def test_a_new_kernel_compares_with_the_version_that_the_journal_confirms(
    cluster: SmallCluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    session = in_another_kernel(cluster, tmp_path, monkeypatch)
    with pytest.raises(TopologyError, match="cannot be kept") as refused:
        session.deploy(summing("integer"), "app", config=CONFIG)
    assert "session.attach('app').edit(builder, reset_state=['totals'])" in str(refused.value.hint)
    assert not session.applications
    session.deploy(summing(), "app", config=CONFIG)._core.finish_start()
    session.applications["app"].stop()


def test_a_text_that_the_journal_does_not_confirm_is_not_executed_and_this_is_said(
    cluster: SmallCluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    session = in_another_kernel(cluster, tmp_path, monkeypatch)
    file = session.files.path("app")
    file.write_text(file.read_text().replace("value_serde", "value_serdes"))
    said: list[str] = []
    session.client.report = said.append
    session.deploy(summing("integer"), "app", config=CONFIG)._core.finish_start()
    session.applications["app"].stop()
    assert len(said) == 1 and "is not compared with its earlier version" in said[0] and "journal" in said[0]


def test_partitions_begin_at_the_first_record_of_a_time(session: SmallSession, cluster: SmallCluster) -> None:
    put(cluster, "in", 1000, 2000, 3000, 4000)
    rows = session.plan(summing(), "app", config=CONFIG, start=2500).rows
    assert [row[1:3] for row in rows if row[0] == "partition"] == [(f"in-{n}", offset) for n, offset in expected(cluster, "in", 2500)]
    app = session.deploy(summing(), "app", config=CONFIG, start="1970-01-01T00:00:02.500")
    app._core.finish_start()
    assert dict(app.sql("totals").df()[["key", "value"]].itertuples(index=False, name=None)) == {"a": 2, "b": 2}
    app.stop()
    put(cluster, "in", 5000)
    again = session.deploy(summing(), "app", config=CONFIG, start=0)
    again._core.finish_start()
    assert again.store("totals").get("a") == 3, "a committed offset goes before a time"
    again.stop()


def expected(cluster: SmallCluster, topic: str, at_ms: int) -> list[tuple[int, int]]:
    found = []
    for number in range(PARTITIONS):
        log = cluster.logs[TopicPartition(topic, number)]
        found.append((number, next((o for o, record in enumerate(log) if record[2] >= at_ms), len(log))))
    return found


def test_a_source_with_a_reset_of_its_own_keeps_it(session: SmallSession, cluster: SmallCluster) -> None:
    put(cluster, "in", 1000)
    put(cluster, "latest", 1000)
    builder = summing()
    builder.stream("latest", offset_reset="latest").to("out")
    partitions = [row[1] for row in session.plan(builder, "app", config=CONFIG, start=1).rows if row[0] == "partition"]
    assert partitions == [f"in-{number}" for number in range(PARTITIONS)]


def test_a_start_that_is_neither_a_policy_nor_a_time_is_rejected(session: SmallSession) -> None:
    with pytest.raises(KStreamsError, match="start must be 'earliest', 'latest' or a time, got 'yesterday'"):
        session.deploy(summing(), "app", start="yesterday")


def by_default() -> ks.StreamsBuilder:
    builder = ks.StreamsBuilder()
    builder.stream("in", value_serde="long").group_by_key().count(store="totals")
    return builder


@pytest.mark.parametrize("another_kernel", [False, True])
def test_another_default_serde_is_another_serde_of_the_stores_that_have_none(
    session: SmallSession, cluster: SmallCluster, another_kernel: bool, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """It is a setting, no part of the topology: every key was another one from then on, and all counts began anew."""
    put(cluster, "in", 1, 2)
    app = session.deploy(by_default(), "app", config={**CONFIG, "default.key.serde": "string"})
    app._core.finish_start()
    app.stop()
    if another_kernel:
        cluster.create_topics([NewTopicSpec("app-journal", 1)])
        monkeypatch.setattr(journal_lookup, "journal_of", lambda session, name: cluster.journal)
        session = SmallSession(cluster, tmp_path)
    with pytest.raises(TopologyError, match="its key serde was string, would be bytes"):
        session.deploy(by_default(), "app", config=CONFIG)
    session.deploy(by_default(), "app", config={**CONFIG, "default.key.serde": "string"})._core.finish_start()
    session.applications["app"].stop()


def test_attaching_with_a_topology_that_would_read_rows_wrongly_is_refused(
    cluster: SmallCluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It was not compared with anything: `resume` went on over rows of another serde."""
    session = in_another_kernel(cluster, tmp_path, monkeypatch)
    with pytest.raises(TopologyError, match="its value serde was long, would be integer") as refused:
        session.attach("app", summing("integer"))
    assert "session.attach('app').edit(builder, reset_state=['totals'])" in str(refused.value.hint)
    assert not session.applications
    app = session.attach("app", summing())
    app.resume()
    app.stop()


def test_attaching_with_a_topology_keeps_the_settings_that_it_was_deployed_with(
    cluster: SmallCluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They were the defaults again: another guarantee, other default serdes, another reset of offsets."""
    session = in_another_kernel(cluster, tmp_path, monkeypatch)
    assert session.attach("app", summing()).config["statestore.cache.max.bytes"] == 0
    again = SmallSession(cluster, tmp_path / "kept")
    app = again.attach("app", summing(), config={"statestore.cache.max.bytes": 7})
    assert app.config["statestore.cache.max.bytes"] == 7


def test_attaching_with_a_topology_wants_the_settings_that_could_not_be_written_down(
    cluster: SmallCluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    module = MODULE.replace('max.bytes": 0', 'max.bytes": 0, "default.timestamp.extractor": lambda record, before: 1')
    monkeypatch.setitem(globals(), "MODULE", module)
    session = in_another_kernel(cluster, tmp_path, monkeypatch)
    with pytest.raises(SessionFileError, match="default.timestamp.extractor of 'app' had values that a session file cannot hold"):
        session.attach("app", summing())
    session.config["default.timestamp.extractor"] = lambda record, before: 1  # the session's own do
    assert session.attach("app", summing()).config["default.timestamp.extractor"]


def test_an_application_on_a_cluster_is_shown_as_running_under_the_kernel_that_drives_it(
    cluster: SmallCluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It was shown as stopped."""
    session = in_another_kernel(cluster, tmp_path, monkeypatch)
    journal = cluster.journal
    assert journal is not None and journal.desired is not None
    generation = journal.desired.generation
    assert not journal.has_claims and session.attach("app", summing()).standing == "stopped"
    journal.apply(*encode(Claim(generation, 0, 0, "far:7", "run", place="executor-1")), 100)
    app = SmallSession(cluster, tmp_path / "other").attach("app", summing())
    monkeypatch.setattr(app._core, "follow", lambda: SimpleNamespace(state=journal))
    assert app.standing == "stopped", "no instance has reported"
    journal.apply(*encode(DesiredState(generation, "running", 1, 1)), 101)
    journal.apply(*encode(InstanceHeartbeat(generation, 0, "far:7", "running", int(now() * 1000), host="executor-far-0")), 102)
    assert app.standing == "running under another kernel" and app.standing in repr(app)
    assert app.status == "stopped", "under this one"

    def silent() -> Any:
        raise BrokerUnavailableError("no answer")

    monkeypatch.setattr(cluster, "topics", silent)
    assert app.standing == "stopped"


def test_a_deploy_that_is_refused_leaves_no_version(session: SmallSession, cluster: SmallCluster) -> None:
    """It was in the history, and a rollback went to what had never run."""
    wrong = ks.StreamsBuilder()
    wrong.stream("inn", key_serde="string").group_by_key().count(store="totals")
    with pytest.raises(UnknownTopicError):
        session.deploy(wrong, "app", config=CONFIG)
    assert not session.applications
    app = run_once(session)
    assert [version.number for version in app.versions] == [1]
    with pytest.raises(KStreamsError, match="first version"):
        app.rollback()
    app.stop()


def test_a_new_store_does_not_need_the_texts_of_earlier_versions(cluster: SmallCluster, tmp_path: Path) -> None:
    """After a kernel restart one that is for reading only made every edit and deploy with a new store a SessionFileError."""

    def for_reading_only() -> Any:
        raise SessionFileError("the text of version 1 of 'app' lacks x")

    versions = [Version(1, 0.0, "", False, for_reading_only), Version(2, 0.0, "", True, summing().build())]
    assert last_writer(versions, "app", "new", {"in": 2}) is None
    assert last_writer(versions, "app", "totals", {"app-totals-changelog": 2}) is versions[1].topology


def test_attaching_with_another_topology_to_what_the_session_has_tells_what_would_change(session: SmallSession) -> None:
    """The topology was dropped without a word."""
    app = run_once(session)
    app.stop()
    assert session.attach("app", summing(store="others")) is app and "totals" in app.topology.stores
    changes = app.changes()
    assert changes is not None and "others" in str(changes)
    assert session.attach("app") is app and app.changes() is not None


def test_the_object_of_before_does_nothing_to_what_was_deployed_anew(session: SmallSession, cluster: SmallCluster) -> None:
    """Its resume put the old topology in the place of the new one, and its edit wrote over the new one's versions."""
    old = run_once(session)
    old.stop()
    new = session.deploy(summing(store="others"), "app", config=CONFIG)
    new._core.finish_start()
    for call in (old.resume, lambda: old.edit(summing(store="third"))):
        with pytest.raises(DeployError, match="deployed or attached again") as refused:
            call()
        assert refused.value.hint == "use session.applications['app']"
    assert [version.number for version in session.files.read("app").versions] == [1, 2]
    old.stop().pause()
    assert new.status == "running"
    session.close()


def test_what_goes_on_after_a_cleanup_ends_with_the_session(session: SmallSession, cluster: SmallCluster) -> None:
    """The session did not know of it, and left it running."""
    app = run_once(session)
    app.stop()
    session.cleanup("app")
    app.resume()
    assert session.applications == {"app": app}
    session.close()
    assert app.status == "stopped"


def test_a_record_that_comes_while_the_beginning_is_looked_up_is_read(
    session: SmallSession, cluster: SmallCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nothing was of that time yet, then it came, then the end was asked for: it was skipped."""
    looked_up = cluster.offsets_for_time

    def and_then_one_comes(times: dict[TopicPartition, int]) -> Any:
        found = looked_up(times)
        put(cluster, "in", 5000)
        return found

    put(cluster, "in", 1000)
    monkeypatch.setattr(cluster, "offsets_for_time", and_then_one_comes)
    app = session.deploy(summing(), "app", config=CONFIG, start=2000)
    app._core.finish_start()
    assert len(cluster.values("app-totals-changelog")) == 2, "both keys, once"
    app.stop()


@pytest.mark.parametrize("name", ["temp", "topics", "stores", "my.app"])
def test_an_application_may_have_any_name_and_its_stores_show(session: SmallSession, cluster: SmallCluster, name: str) -> None:
    """`temp.totals` was ambiguous for DuckDB, `topics.totals` a topic."""
    put(cluster, "in", 1000)
    app = session.deploy(summing(), name, config=CONFIG)
    app._core.finish_start()
    assert sorted(app.store("totals").rows("key, value").fetchall()) == [("a", 1), ("b", 1)]
    assert len(app.sql("totals").fetchall()) == 2
    app.stop()


def writing(*sinks: str, source: str = "in") -> ks.StreamsBuilder:
    builder = ks.StreamsBuilder()
    stream = builder.stream(source)
    for sink in sinks:
        stream.to(sink)
    return builder


def test_all_missing_topics_are_told_at_once(session: SmallSession) -> None:
    with pytest.raises(UnknownTopicError, match="writes 'a', 'b', 'c': 3 topics") as caught:
        session.deploy(writing("a", "b", "c", "out"), "app")
    assert caught.value.topics == ("a", "b", "c") and "create_topics=True" in caught.value.hint
    with pytest.raises(UnknownTopicError, match="reads 'innn' and writes 'b': 2 topics") as caught:
        session.deploy(writing("b", source="innn"), "app")
    assert caught.value.hint == "did you mean 'in'? or create them first: session.create_topic('innn'), session.create_topic('b')"
    assert not session.applications


def test_a_deploy_makes_the_topics_that_it_only_writes(session: SmallSession, cluster: SmallCluster) -> None:
    session.deploy(writing("a", "b"), "app", create_topics=True)
    assert cluster.topics()["a"] == cluster.topics()["b"] == 4
    session.deploy(writing("c"), "other", create_topics={"c": 7, "in": 99})
    assert cluster.topics()["c"] == 7 and cluster.topics()["in"] == PARTITIONS
    session.deploy(writing("c", source="new"), "third", create_topics={"new": 3})
    assert cluster.topics()["new"] == 3


def test_the_topic_of_the_dead_letters_is_asked_for_and_made_as_those_of_the_sinks(session: SmallSession, cluster: SmallCluster) -> None:
    """It was missed at the first bad record, which stopped the application that was to go on without it."""
    config = {"errors.dead.letter.queue.topic.name": "dead", "processing.exception.handler": "continue"}
    with pytest.raises(UnknownTopicError, match="writes topic 'dead', which is not on the broker") as caught:
        session.deploy(writing("out"), "app", config=config)
    assert "create_topics=True" in caught.value.hint
    session.deploy(writing("out"), "app", config=config, create_topics=True)
    assert cluster.topics()["dead"] == 4
    session.deploy(writing("out"), "other", config={**config, "errors.dead.letter.queue.topic.name": "dead-2"}, create_topics={"dead-2": 1})
    assert cluster.topics()["dead-2"] == 1


def test_a_topic_that_is_read_is_not_made_unless_it_is_named_and_then_nothing_is(session: SmallSession, cluster: SmallCluster) -> None:
    with pytest.raises(UnknownTopicError, match="reads 'inn' and writes 'a'"):
        session.deploy(writing("a", source="inn"), "app", create_topics=True)
    with pytest.raises(TopologyError, match="create_topics names 'aa'") as caught:
        session.deploy(writing("a"), "app", create_topics={"aa": 1})
    assert caught.value.hint == "did you mean 'a'?"
    with pytest.raises(KStreamsError, match="create_topics must be True or {topic: partitions}, got a str"):
        session.deploy(writing("a"), "app", create_topics="a")  # type: ignore[arg-type]
    assert not {"a", "aa", "inn"} & cluster.topics().keys()


def test_names_that_leave_no_room_for_what_is_added_are_refused(session: SmallSession, cluster: SmallCluster) -> None:
    """A topic's name may be as long as Kafka allows; the application's needs room for its journal and its files."""
    longest = "t" * 249
    cluster.create_topics([NewTopicSpec(longest, PARTITIONS)])
    with pytest.raises(InvalidNameError, match="has 249 characters: no room") as caught:
        session.deploy(writing("out", source=longest), longest)
    assert "241" in caught.value.hint
    assert session.deploy(writing("out", source=longest), "n" * 241).status != "failed"
    builder = ks.StreamsBuilder()
    builder.table(longest, store="s" * 240)
    builder.stream("in").group_by_key().count(store="c" * 240)
    with pytest.raises(InvalidNameError, match="own topic short-sss.* 256 characters"):
        session.deploy(builder, "short")


class OfSomeLibrary(BaseException):
    """Not even an `Exception`."""


class Py4JNetworkError(Exception):
    """As py4j raises it when the JVM has ended."""


@pytest.mark.parametrize(
    ("raised", "hint"),
    [
        (RuntimeError("odd"), "resume() tries again"),
        (RuntimeError(""), "resume() tries again"),
        (SystemExit(3), "resume() tries again"),
        (OfSomeLibrary("odd\nand more"), "resume() tries again"),
        (Py4JNetworkError("Answer from Java side is empty"), "Spark's JVM does not answer or has ended"),
        (ConnectionRefusedError(111, "Connection refused"), "Spark's JVM does not answer or has ended"),
        (Exception("java.lang.NoClassDefFoundError: org/apache/x/Y$Z\n\tat …"), "Spark lacks the class org.apache.x.Y$Z"),
    ],
    ids=lambda value: type(value).__name__ if isinstance(value, BaseException) else "",
)
def test_an_application_that_could_not_be_started_has_an_error_with_cause_and_hint_whatever_was_raised(
    session: SmallSession, monkeypatch: pytest.MonkeyPatch, raised: BaseException, hint: str
) -> None:
    """It was failed with the error None: "app failed", and nothing else."""

    def start(deployment: Any) -> None:
        raise raised

    monkeypatch.setattr(SmallDeployment, "start", start)
    app = session.deploy(summing(), "app", config=CONFIG)
    with pytest.raises(ApplicationFailedError) as waited:
        app.wait(30)
    assert app.status == "failed" and app.error is not None
    assert app.error.__cause__ is raised and hint in str(app.error.hint)
    assert app.error.message.startswith(f"app failed: {type(raised).__name__}: ") and "\n" not in app.error.message
    assert waited.value.message == app.error.message
    assert app.error.message in repr(app)
    monkeypatch.undo()
    assert app.resume().status == "running"
    app.stop()


@pytest.mark.parametrize("reads", ["its name", "a pattern", "another topic"])
def test_a_dead_letter_topic_that_the_application_itself_reads_is_reported(
    session: SmallSession, cluster: SmallCluster, reads: str
) -> None:
    """One bad record became 5,564 in ten seconds, without a word at the deploy."""
    cluster.create_topics([NewTopicSpec("in-dead", PARTITIONS)])
    builder = summing()
    if reads != "another topic":
        builder.stream("in-dead" if reads == "its name" else re.compile("in-.*")).foreach(print)
    said: list[str] = []
    session.client.report = said.append
    app = session.deploy(builder, "app", config={**CONFIG, "errors.dead.letter.queue.topic.name": "in-dead"})
    app._core.finish_start()
    app.stop()
    assert [line.startswith("warning: app reads its own dead-letter topic in-dead") for line in said] == [True] * (reads != "another topic")


def test_an_edit_warns_of_what_it_adds_as_a_deploy_does(session: SmallSession, cluster: SmallCluster) -> None:
    """Only a deploy said it: an edit that reads the dead letters was applied without a word."""
    cluster.create_topics([NewTopicSpec("in-dead", PARTITIONS)])
    builder = summing()
    app = session.deploy(builder, "app", config={**CONFIG, "errors.dead.letter.queue.topic.name": "in-dead"})
    app._core.finish_start()
    said: list[str] = []
    session.client.report = said.append
    letters = builder.stream("in-dead", key_serde="string", value_serde="string", name="letters")
    app.edit(builder, dry_run=True)
    assert said == []
    app.apply(app.edit(builder, dry_run=True))
    assert [line.partition(":")[2][:43] for line in said] == [" app reads its own dead-letter topic in-dead"[:43]], said
    letters.select_key(lambda key, value: value, name="by-value").foreach(print)
    app.edit(builder)
    assert len(said) == 1, "what ran before is not said again"
    app.stop()


@pytest.mark.parametrize(
    ("config", "line"), [({}, ["app: 2 instances (num.stream.threads: 2 processors, 2 partitions)"]), ({"num.stream.threads": 1}, [])]
)
def test_a_deploy_says_how_many_instances_follow_from_the_machine(
    session: SmallSession, monkeypatch: pytest.MonkeyPatch, config: dict[str, object], line: list[str]
) -> None:
    monkeypatch.setattr("kstreams_repl.host.spark.planning.instance_count.processors", lambda: 2)
    said: list[str] = []
    session.client.report = said.append
    app = session.deploy(summing(), "app", config={**CONFIG, **config})
    app._core.finish_start()
    app.stop()
    assert said == line
