"""The parts of a session that need no broker."""

from __future__ import annotations

import os
import signal
import threading
import time
from datetime import UTC, date, datetime
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import numpy
import pandas
import pytest

import kstreams_repl as ks
from kstreams_repl import serdes
from kstreams_repl.host.spark.instance_reports import ApplicationReport, InstanceReport
from kstreams_repl.repl.inspection import open_sandbox
from kstreams_repl.repl.session.application.core import ApplicationCore
from kstreams_repl.repl.session.application.edits.topology_resolution import topology_of
from kstreams_repl.repl.session.application.life.control_thread import Work
from kstreams_repl.repl.session.application.life.wait import CaughtUp, wait_until
from kstreams_repl.repl.session.session_directory import SessionDirectory
from kstreams_repl.repl.session.source.error_source import with_source
from kstreams_repl.repl.session.topics.produce import milliseconds, parts_of, serde_for
from kstreams_repl.repl.session.topics.records import ReadRecord, Records
from kstreams_repl.repl.session.topics.topic_serdes import TopicSerdes
from kstreams_repl.repl.session.views.tables.sql_catalog import as_frame
from kstreams_repl.repl.session.views.values.sample_run import sends_changes
from kstreams_repl.system.errors import ConfigError, KStreamsError, StreamsProcessingError, TopologyError


def test_records_come_from_values_pairs_and_triples() -> None:
    assert list(parts_of(["a"])) == [(None, "a", None, None)]
    assert list(parts_of([("k", "v"), ("k", "v", 5), ("k", "v", 5, [("h", b"1")])])) == [
        ("k", "v", None, None), ("k", "v", 5, None), ("k", "v", 5, [("h", b"1")]),
    ]  # fmt: skip


def test_a_single_dict_is_one_record() -> None:
    assert list(parts_of({"a": 1}, key="a")) == [(1, {"a": 1}, None, None)]


def test_a_dataframe_becomes_objects_without_nan() -> None:
    frame = pandas.DataFrame({"id": [1, 2], "x": [0.5, None], "at": pandas.to_datetime(["2013-01-01", None])})
    rows = list(parts_of(frame, key="id"))
    assert rows[0][:2] == (1, {"id": 1, "x": 0.5, "at": "2013-01-01T00:00:00.000000"})
    assert rows[1][1] == {"id": 2, "x": None, "at": None}


def test_a_missing_field_is_named() -> None:
    with pytest.raises(KStreamsError, match="expected a field 'carrier'"):
        list(parts_of([{"a": 1}], key="carrier"))
    with pytest.raises(KStreamsError, match="did you mean 'shop'"):
        list(parts_of([{"shop": "Oslo"}], key="Shop"))


@pytest.mark.parametrize(
    "moment", [1_000, "1970-01-01T00:00:01", "1970-01-01T01:00:01+01:00", datetime(1970, 1, 1, 0, 0, 1, tzinfo=UTC)]
)
def test_times_are_milliseconds(moment: object) -> None:
    assert milliseconds(moment) == 1_000


def test_what_is_no_time_is_said() -> None:
    with pytest.raises(KStreamsError, match="cannot parse .* as a time"):
        milliseconds("yesterday")


@pytest.mark.parametrize(
    ("value", "name"),
    [("a", "string"), (b"a", "bytes"), (1, "long"), (1.0, "double"), ({"a": 1}, "json"), ([1], "json"), (True, "json")],
)
def test_the_serde_follows_the_value(value: object, name: str) -> None:
    assert serde_for(value).name == name


def test_a_temporary_directory_is_made_late_and_goes() -> None:
    directory = SessionDirectory("temporary")
    path = directory.path
    assert path.is_dir() and directory.broker is None
    directory.close()
    assert not path.exists()


def test_the_project_directory_is_the_users_only(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    directory = SessionDirectory(None)
    assert directory.path == tmp_path / ".kstreams"
    assert directory.path.stat().st_mode & 0o777 == 0o700
    directory.close()
    assert directory.path.exists()


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write everywhere")
def test_where_nothing_can_be_written_the_directory_is_temporary(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    tmp_path.chmod(0o500)
    monkeypatch.chdir(tmp_path)
    assert SessionDirectory(None).temporary


def test_serdes_are_learned_from_a_topology_and_bytes_teach_nothing() -> None:
    builder = ks.StreamsBuilder()
    builder.stream("in", key_serde="string", value_serde="json").repartition(name="r").to("out", value_serde="long")
    known = TopicSerdes()
    known.remember("in", serdes.bytes_, serdes.bytes_)
    assert known.of("in") == (None, None)
    known.learn(builder.build(), "app")
    assert known.of("in") == (serdes.string, serdes.json)
    assert known.of("out")[1] is serdes.long
    assert known.of("app-r-repartition")[0] is serdes.string


def test_a_topology_is_found_behind_a_stream() -> None:
    builder = ks.StreamsBuilder()
    stream = builder.stream("words").filter(lambda key, word: True, name="f")
    assert "f" in topology_of(stream).nodes
    assert "f" in topology_of(builder).nodes
    with pytest.raises(TopologyError, match="expected a builder, stream, table, topology or application, got a int"):
        topology_of(5)


def test_tables_send_changes_and_streams_do_not() -> None:
    builder = ks.StreamsBuilder()
    counts = builder.stream("words").group_by_key().count(store="c").filter(lambda key, n: n > 1, name="many")
    counts.to_stream(name="back").filter(lambda key, n: True, name="plain").to("out")
    topology = builder.build()
    sends = {name: sends_changes(node) for name, node in topology.nodes.items()}
    assert sends["many"] and not sends["back"] and not sends["plain"]
    assert not sends["KSTREAM-SOURCE-0000000000"]
    assert sends["KSTREAM-AGGREGATE-0000000001"]


def test_records_show_themselves_as_a_table() -> None:
    records = Records([ReadRecord("k", {"a": 1}, 0, "t", 1, 7)], note="1 of 5 records", title="t")
    assert "1970-01-01 00:00:00.000" in repr(records)
    assert "<table" in records._repr_mimebundle_()["text/html"]
    assert list(records.df()["offset"]) == [7]
    assert repr(Records([], note="0 records on t")) == "0 records on t"


def test_a_workers_error_gets_the_text_of_the_users_line(tmp_path: Path) -> None:
    file = tmp_path / "cell.py"
    file.write_text("first = 1\nsecond = 1 / 0\n")
    error = StreamsProcessingError(
        f"ZeroDivisionError: division by zero\n  {file}:2\n  in node x", node="x", user_line=[str(file), 2, ""]
    )
    shown = with_source(error)
    assert f"{file}:2: second = 1 / 0" in shown.message
    assert shown.fields["user_line"] == (str(file), 2, "second = 1 / 0")


def test_a_wrong_setting_is_told_at_connect() -> None:
    with pytest.raises(ConfigError, match="unknown configuration key"):
        ks.connect(directory="temporary", config={"procesing.guarantee": "exactly_once_v2"})


def test_a_commit_interval_that_outlives_its_transaction_is_refused() -> None:
    """The broker would abort each transaction before it is committed, and the same input would be processed for ever."""
    slow = {"commit.interval.ms": 30_000}
    with pytest.raises(ConfigError, match="must be below transaction.timeout.ms = 10000"):
        ks.StreamsConfig(slow | {"processing.guarantee": "exactly_once_v2"})
    ks.StreamsConfig(slow | {"processing.guarantee": "exactly_once_v2", "transaction.timeout.ms": 60_000})
    ks.StreamsConfig(slow)


def test_an_unreachable_broker_is_told_at_connect() -> None:
    with pytest.raises(ks.errors.BrokerUnavailableError) as caught:
        ks.connect("127.0.0.1:1", directory="temporary")
    assert "embedded broker" in (caught.value.hint or "")


def test_secrets_do_not_show() -> None:
    from kstreams_repl.host.kafka.clients import ClientSettings

    session = ks.Session(ClientSettings("127.0.0.1:1", {"sasl.password": "hunter2"}))
    assert "hunter2" not in repr(session) + repr(session.settings)


def test_connecting_again_with_the_same_arguments_gives_the_same_session() -> None:
    first = ks.connect(directory="temporary")
    assert ks.connect(directory="temporary") is first
    first.close()
    second = ks.connect(directory="temporary")
    assert second is not first
    second.close()
    assert repr(second) == "Session(closed)"
    with pytest.raises(KStreamsError, match="closed"):
        second.topics()


def test_a_failure_that_comes_while_waiting_looks_is_raised_not_taken_for_rest() -> None:
    looks = iter(["running", "failed", "failed", "failed"])

    class Failing(ApplicationCore):
        def __init__(self) -> None:
            self.client, self.name = cast(Any, SimpleNamespace(report=print)), "failing"
            self.topology = cast(Any, None)
            self.instances = lambda: 1  # type: ignore[method-assign]

        @property
        def status(self) -> str:
            return next(looks)

        @property
        def error(self) -> KStreamsError:
            return StreamsProcessingError("it raised", node="broken")

    with pytest.raises(StreamsProcessingError, match="it raised"):
        ks.Application(Failing()).wait(0.1, until=lambda app: False)


def test_an_application_has_not_caught_up_while_one_of_its_instances_restores_or_has_not_spoken() -> None:
    far = int(time.time() * 1000) + 60_000
    reports: dict[int, InstanceReport] = {}
    app: Any = SimpleNamespace(
        status="running",
        reports=ApplicationReport(1, reports),
    )
    caught_up = CaughtUp(lambda: 2, lambda: 0)
    assert not caught_up(app)
    reports[0] = InstanceReport(0, "running", 1, far)
    assert not caught_up(app)
    reports[1] = InstanceReport(1, "restoring", 1, far)
    assert not caught_up(app)
    reports[1] = InstanceReport(1, "running", 1, far)
    assert caught_up(app)


@pytest.mark.parametrize(("seconds", "said"), [(1.0, ["count is running: 3,099 records remain after 1 s; call wait again"]), (0.0, [])])
def test_a_wait_that_ends_too_early_says_how_many_records_remain(seconds: float, said: list[str]) -> None:
    """A cell goes on after it; the tables below were empty, and nothing said why. A look (`wait(0)`) is silent."""
    reported: list[str] = []
    client = SimpleNamespace(report=reported.append)
    app: Any = SimpleNamespace(name="count", status="running", client=client, counts=SimpleNamespace(lag=3_099))
    assert not wait_until(app, seconds, CaughtUp(lambda: 1, lambda: 3_099))
    assert reported == said


def test_a_dataframe_keeps_the_zone_of_its_dates() -> None:
    """09:00 in New York was sent as 09:00 UTC."""
    at = pandas.Series(pandas.to_datetime(["2013-01-01 09:00", None])).dt.tz_localize("America/New_York")
    rows = list(parts_of(pandas.DataFrame({"x": [1, 2], "at": at}).head(1), timestamp="at"))
    assert rows[0][2] == int(datetime(2013, 1, 1, 14, tzinfo=UTC).timestamp() * 1000)
    assert rows[0][1]["at"] == "2013-01-01T09:00:00.000000-05:00"
    assert [row[1]["at"] for row in parts_of(pandas.DataFrame({"at": at}))][1] is None


@pytest.mark.parametrize("moment", [date(2013, 1, 1), numpy.datetime64("2013-01-01", "ns"), numpy.datetime64("2013-01-01")])
def test_dates_of_all_kinds_are_milliseconds(moment: object) -> None:
    assert milliseconds(moment) == 1_356_998_400_000


@pytest.mark.parametrize("moment", [pandas.NaT, numpy.datetime64("NaT"), [1], {}, float("nan"), float("inf")])
def test_what_holds_no_time_is_said(moment: object) -> None:
    with pytest.raises(KStreamsError, match="cannot parse .* as a time"):
        milliseconds(moment)


def test_large_integers_of_records_keep_their_digits_in_a_dataframe() -> None:
    large = 1234567890123456789
    frame = Records([ReadRecord(large, None, 1), ReadRecord(None, large, 2), ReadRecord(1, 1, 3)]).df()
    assert list(frame["key"]) == [large, None, 1] and list(frame["value"]) == [None, large, 1]
    assert str(Records([ReadRecord(None, 0.5, 1), ReadRecord(None, None, 2)]).df()["value"].dtype) == "float64"


@pytest.mark.usefixtures("sigint")
def test_an_interrupted_wait_leaves_the_work_begun_not_done() -> None:
    """An application that was interrupted while it started was taken for paused: waiting for it ended at once."""
    go_on = threading.Event()
    work = Work(threading.Lock(), go_on.wait, name="work")
    interrupt = threading.Timer(0.1, lambda: signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGINT))
    with pytest.raises(KeyboardInterrupt):
        interrupt.start()
        work.wait()
    interrupt.join()
    assert not work.done
    go_on.set()
    work.wait()
    assert work.done and work.error is None


def test_records_of_all_kinds_are_a_table_in_sql() -> None:
    """DuckDB finds no type for a dataframe's column of mixed objects."""
    large = 1234567890123456789
    first = ReadRecord("a", {"x": 1}, 1, headers=[("h", b"1"), ("none", None)])  # type: ignore[list-item]
    records = Records([first, ReadRecord(b"b", "\ud800", 10**17), ReadRecord(None, large, 3)])
    frame = as_frame(records, "records")
    with open_sandbox() as database:
        database.register("records", frame)
        rows = database.execute("SELECT key, value, headers FROM records").fetchall()
    headers = [{"name": "h", "value": "1"}, {"name": "none", "value": None}]
    assert rows == [("a", "{'x': 1}", headers), ("b'b'", "\\ud800", []), (None, str(large), [])]
    assert as_frame(Records([]), "records").num_rows == 0


class Served:
    """Stands where an embedded broker of a session stands, and counts its starts."""

    started = has_ended = stays = False
    stopped = starts = 0

    def start(self) -> Any:
        self.starts += 1
        return SimpleNamespace(bootstrap_servers="nowhere:1", directory=Path("/nowhere"))

    def stop(self) -> None:
        self.stopped += 1
        if self.stopped == 1:
            raise KeyboardInterrupt


def a_session_of_its_own() -> tuple[Any, Served]:
    session: Any = ks.Session(None, directory=SessionDirectory("temporary"))
    broker = session.client.broker = Served()
    session.directory.home = lambda: broker.start().directory
    return session, broker


def test_a_close_that_was_interrupted_does_the_rest_when_it_is_called_again() -> None:
    """It did nothing: broker and directory were left to the end of the process."""
    session, broker = a_session_of_its_own()
    with pytest.raises(KeyboardInterrupt):
        session.close()
    assert not session.closed
    session.close()
    assert session.closed and broker.stopped == 2


def test_nothing_is_started_by_a_session_that_is_closed(monkeypatch: pytest.MonkeyPatch) -> None:
    """A deploy, a plan and a cleanup started a broker to ask where their directory is, `spark` a JVM; nobody ended them."""
    monkeypatch.setattr("kstreams_repl.host.spark.startup.spark_session.get_session", lambda master: pytest.fail("Spark"))
    session, broker = a_session_of_its_own()
    broker.stopped = 1
    session.close()
    builder = ks.StreamsBuilder()
    builder.stream("in")
    for call in (
        lambda: session.deploy(builder, "app"),
        lambda: session.plan(builder, "app"),
        lambda: session.attach("app"),
        lambda: session.cleanup("app"),
        lambda: session.files,
        lambda: session.spark,
        lambda: session.topics(),
    ):
        with pytest.raises(KStreamsError, match="this session is closed") as refused:
            call()
        assert refused.value.hint
    assert (session.applications, session.detached, broker.starts) == ({}, {}, 0)
