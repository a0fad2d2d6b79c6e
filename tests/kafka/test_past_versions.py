"""Records that were processed before an edit are explained, stepped and counted as the version that processed them did."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

import kstreams_repl as ks
from kstreams_repl.engine.config import StreamsConfig
from kstreams_repl.host.kafka.admin import Admin
from kstreams_repl.host.kafka.clients import ClientSettings, make_producer
from kstreams_repl.host.kafka.reading import ranges_of, read_ranges
from kstreams_repl.repl.session.application.edits.versions import VersionHistory
from kstreams_repl.repl.session.cluster_client import ClusterClient
from kstreams_repl.repl.session.session_file import SessionFiles
from kstreams_repl.repl.session.source.source_slice import Program
from kstreams_repl.repl.session.views.past.causes.why import why
from kstreams_repl.repl.session.views.past.debug.opening import debugger_of
from kstreams_repl.repl.session.views.past.past_state import Past
from kstreams_repl.repl.session.views.tables.sql_query import run_query
from kstreams_repl.system.errors import InvalidStateStoreError, SessionFileError
from kstreams_repl.system.types import TopicPartition
from tests.kafka.as_of_instance import config_of, start

pytestmark = [pytest.mark.kafka, pytest.mark.timeout(300)]

COUNT = 12


def topology(name: str, version: int) -> Any:
    """The second version marks its output otherwise, counts only every other record, has one more store, and reads one more topic."""
    builder = ks.StreamsBuilder()
    numbers: dict[str, Any] = {"key_serde": "string", "value_serde": "long"}
    stream = builder.stream(f"{name}-in", **numbers, name="in")
    stream.map_values(lambda value: value * (10 if version == 1 else 100), name="times").to(
        f"{name}-out", **numbers, name="to-out"
    )
    some = stream.filter(lambda key, value: version == 1 or value % 2 == 0, name="some")
    some.group_by_key().aggregate(
        lambda: 0, lambda key, value, total: total + value, store="sums", name="sum", value_serde="long"
    )
    if version == 2:
        stream.group_by_key().count(store="added", name="count")
    return builder.build()


@dataclass
class Application:
    """What the past of an application needs of it."""

    name: str
    topology: Any
    config: StreamsConfig
    client: ClusterClient
    history: VersionHistory
    as_of: str = ""
    until_ms: int | None = None
    registry: dict[str, Any] = field(default_factory=dict)

    @property
    def versions(self) -> list[Any]:
        return self.history.versions


@pytest.fixture(scope="module")
def ran(admin: Admin, settings: ClientSettings, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    """An application that was edited after half of its records."""
    name, root = "edited0", tmp_path_factory.mktemp("edited")
    for topic in ("in", "out"):
        admin.create_topic(f"{name}-{topic}", 1)
    config = config_of(name, settings.bootstrap_servers, root)
    history, number = VersionHistory(SessionFiles(root), name), 0
    for version in (1, 2):
        built = topology(name, version)
        history.keep(Program(f"# {version}", ("its functions",)), built, config)
        producer = make_producer(settings)
        for number in range(number + 1, number + 1 + COUNT):  # noqa: B020
            producer.produce(f"{name}-in", ks.serdes.long.serialize(number), f"k{number % 2}".encode(), timestamp=number)
        assert producer.flush(20) == 0
        producer.close()
        threads, stop = start(settings, config, built, version, version=version)
        wait(admin, name, threads)
        stop()
        threads[0].join(30)
    app: Any = Application(name, built, config, ClusterClient(settings), history)
    app.registry[name] = app
    yield app
    app.client.close()


def wait(admin: Admin, name: str, threads: list[threading.Thread]) -> None:
    at = TopicPartition(f"{name}-in", 0)
    while (found := admin.committed_offsets(name, [at], stable=False).get(at)) is None or found.offset < admin.end_offsets([at])[
        at
    ]:
        threads[0].join(0.02)
        assert threads[0].is_alive()


def offset_of(app: Any, number: int) -> int:
    return number - 1


def test_the_outputs_of_both_versions_are_explained(ran: Any, settings: ClientSettings, admin: Admin) -> None:
    topic, seen = f"{ran.name}-out", 0
    for _, batch in read_ranges(settings, ranges_of(admin, topic)):
        for offset, value in zip(batch.offsets, batch.values, strict=True):
            written, seen = ks.serdes.long.deserialize(value), seen + 1
            number = written // (10 if seen <= COUNT else 100)
            found = why(ran, f"{topic}-0@{offset}", all=False, as_of=None, calls=False)
            assert [(cause.value, cause.path) for cause in found.causes] == [(number, ("in", "times", "to-out"))]
            assert ("count" in found.topology.nodes) == (seen > COUNT)
    assert seen == 2 * COUNT


def test_a_row_has_all_records_of_both_versions(ran: Any) -> None:
    odd = why(ran, "sums", "k1", all=True, as_of=None, calls=False)
    assert {cause.value for cause in odd.causes} == set(range(1, COUNT + 1, 2))  # the second version counts none of them
    even = why(ran, "sums", "k0", all=True, as_of=None, calls=False)
    assert {cause.value for cause in even.causes} == set(range(2, 2 * COUNT + 1, 2))


def test_a_row_just_after_a_record_before_the_edit(ran: Any) -> None:
    for number in (3, 4, COUNT - 1):
        record = f"{ran.name}-in-0@{offset_of(ran, number)}"
        [cause] = why(ran, "sums", f"k{number % 2}", all=False, as_of=record, calls=False).causes
        assert cause.value == number
        every = why(ran, "sums", f"k{number % 2}", all=True, as_of=record, calls=False).causes
        assert {each.value for each in every} == set(range(2 - number % 2, number + 1, 2))


def test_state_after_a_record_before_the_edit(ran: Any) -> None:
    for number in (1, 5, COUNT + 3):
        past = Past(f"{ran.name}-in-0@{offset_of(ran, number)}")
        rows = dict(run_query(ran.client, ran.registry, "SELECT key, value FROM sums", past=past).fetchall())
        whole = {0: 0, 1: 0}
        for each in range(1, number + 1):
            whole[each % 2] += each if each <= COUNT or each % 2 == 0 else 0
        assert rows == {f"k{key}": total for key, total in whole.items() if total}
        added = run_query(ran.client, ran.registry, "SELECT count(*) FROM added", past=past).fetchall()
        assert added == [(2 if number > COUNT + 1 else 0,)]


def test_a_record_before_the_edit_is_stepped_with_the_code_of_then(ran: Any) -> None:
    for number in (5, COUNT + 5):
        with debugger_of(ran, f"{ran.name}-in-0@{offset_of(ran, number)}", calls=False) as debugger:
            [sent] = [visit.sent[0] for visit in debugger.trace.visits if visit.node == "to-out"]
            assert ks.serdes.long.deserialize(sent.value) == number * (10 if number <= COUNT else 100)  # type: ignore[arg-type]
            assert ("count" in {visit.node for visit in debugger.trace.visits}) == (number > COUNT)


def test_a_version_that_is_not_known_is_an_error(ran: Any, tmp_path: Path) -> None:
    versions, number = list(ran.history.versions), 5
    record = f"{ran.name}-in-0@{offset_of(ran, number)}"
    ran.history.versions[:] = versions[1:]
    try:
        asked: list[Callable[[], object]] = [
            lambda: debugger_of(ran, record, calls=False),
            lambda: why(ran, f"{ran.name}-out-0@1", all=False, as_of=None, calls=False),
        ]
        for ask in asked:
            with pytest.raises(InvalidStateStoreError, match="version 1 of 'edited0', which ran then") as error:
                ask()
            assert "was deployed and edited" in str(error.value.hint)
    finally:
        ran.history.versions[:] = versions


def test_functions_that_cannot_be_loaded_are_an_error(ran: Any) -> None:
    """As in another kernel: the code is not in the text, and the file of the topology is lost."""
    files = SessionFiles(Path(ran.config["state.dir"]))
    other = VersionHistory(files, ran.name)
    other.load(ran.config)
    for path in Path(ran.config["state.dir"]).glob("sessions/*.closures/*"):
        path.rename(path.with_suffix(".lost"))
    here, ran.history = ran.history, other
    try:
        with pytest.raises(SessionFileError, match="cannot be loaded"):
            debugger_of(ran, f"{ran.name}-in-0@{offset_of(ran, 5)}", calls=False)
    finally:
        ran.history = here
        for path in Path(ran.config["state.dir"]).glob("sessions/*.closures/*.lost"):
            path.rename(path.with_suffix(""))
