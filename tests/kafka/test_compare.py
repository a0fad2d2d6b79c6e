"""An application on a real broker against changed topologies: its own stores are what the control has, and nothing reaches the broker."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import pytest

import kstreams_repl as ks
from kstreams_repl.engine.topology.differences.node_diff import whole_code
from kstreams_repl.engine.topology.nodes import ProcessorNode
from kstreams_repl.engine.topology.topology import Topology
from kstreams_repl.host.instance.state.state_directory import task_directory
from kstreams_repl.host.instance.state.state_manager import open_lmdb
from kstreams_repl.host.kafka.admin import Admin
from kstreams_repl.host.kafka.clients import ClientSettings
from kstreams_repl.repl.session.views.compare import of_application
from kstreams_repl.repl.session.views.compare.comparison import Comparison
from kstreams_repl.repl.session.views.compare.of_application import compare_definition
from kstreams_repl.repl.session.views.compare.side import Base, Side
from kstreams_repl.repl.session.views.past.state.state_builder import history_of, specs_of, state_directory
from kstreams_repl.system.errors import CallError, InvalidStateStoreError
from kstreams_repl.system.types import TopicPartition
from tests.kafka.test_why import KEYS, Application, Ran, make_input, run, topology

pytestmark = [pytest.mark.kafka, pytest.mark.timeout(300)]


@dataclass
class Compared(Application):
    """What a comparison needs of an application."""

    running_code: dict[str, object] = field(default_factory=dict)


@pytest.fixture(scope="module")
def ran(admin: Admin, settings: ClientSettings, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Ran]:
    found = run(
        admin, settings, tmp_path_factory.mktemp("compare"), "cmp0", make_input(3, 400), 4, **{"statestore.cache.max.bytes": 0}
    )
    app = found.application
    found.application = Compared(app.name, app.topology, app.config, app.client, running_code=whole_code(app.topology))
    yield found
    app.client.close()


def edited(name: str, node: str, **functions: Any) -> Topology:
    """The application's topology with other functions in one node."""
    from dataclasses import replace

    changed = topology(name)
    old = changed.nodes[node]
    assert isinstance(old, ProcessorNode)
    changed._nodes[node] = replace(old, operator=replace(old.operator, **functions))
    return changed


def everything(admin: Admin, name: str) -> dict[TopicPartition, int]:
    topics = [topic for topic in admin.topics(internal=True) if topic.startswith(name)]
    return admin.end_offsets([TopicPartition(topic, number) for topic in topics for number in range(admin.partitions(topic))])


@pytest.mark.parametrize("records", [50, 150, 10_000])
def test_the_application_equals_itself_and_the_control_has_its_stores(
    ran: Ran, admin: Admin, monkeypatch: pytest.MonkeyPatch, records: int
) -> None:
    app, ends = ran.application, everything(admin, "cmp0")
    control: dict[str, dict[tuple[int, bytes], bytes]] = {}
    real = of_application.compare

    def kept(sides: Any, base: Base, inputs: Any, **more: Any) -> Comparison:
        with Side(sides()[0], base, inputs) as side:
            for _ in side.run(len(inputs)):
                pass
            for store in app.topology.stores:
                control[store] = {(partition, key): value for partition, rows in side.rows(store) for key, value in rows}
        return real(sides, base, inputs, **more)

    monkeypatch.setattr(of_application, "compare", kept)
    found = compare_definition(app, topology(app.name), records=records)
    assert found.equal and found.first is None and found.notes == (), found.text
    assert min(records, 400) <= found.records <= min(400, 2 * records + 100)
    assert (found.base == "the beginning") is (records == 10_000)
    assert everything(admin, "cmp0") == ends

    commits = {task: own[-1] for task in specs_of(app) if (own := history_of(app).of(task))}
    directory, compared = state_directory(app, commits), 0
    for task in commits:
        environment = open_lmdb(task_directory(directory, app.name, task))
        try:
            for store in specs_of(app)[task].subtopology.stores:
                rows = {(task.partition, key): value for key, value in environment.engine(store.name).range()}
                mine = {at: value for at, value in control[store.name].items() if at[0] == task.partition}
                if records == 10_000 or task.subtopology == 0:  # else records of repartition topics may have been on their way
                    assert mine == rows, store.name
                    compared += len(rows)
        finally:
            environment.close()
    assert compared > 10 * KEYS


def test_a_changed_function_is_found_from_a_commit_on(ran: Ran) -> None:
    app = ran.application
    changed = edited(app.name, "some", predicate=lambda key, value: value % 3 != 1)
    commits = [commit for own in (history_of(app).of(task) for task in specs_of(app)) for commit in own]
    at = sorted(commit.at_ms for commit in commits)[len(commits) // 2]
    found = compare_definition(app, changed, start=at)
    assert found.base.startswith("commit") or found.base.startswith("the commits")
    assert found.first is not None and found.first.node == "some", found.text
    assert [each.name for each in found.rows if each.different] == [f"{app.name}-kept"]
    late = [row for row in ran.inputs if row[0] == "orders"]
    assert {each.key for each in found.samples} <= {f"{row[1]}!" for row in late}


def test_a_changed_aggregate_behind_a_repartition_topic_is_found(ran: Ran) -> None:
    app = ran.application
    found = compare_definition(app, edited(app.name, "sum", aggregator=lambda key, value, total: total + value + 1))
    assert found.first is not None and found.first.node == "sum", found.text
    assert {each.name for each in found.rows if each.different} == {"sums", f"{app.name}-totals"}
    assert found.records == 400


def test_a_store_that_cannot_be_read_begins_empty_on_both_sides(ran: Ran) -> None:
    app = ran.application
    builder = ks.StreamsBuilder()
    orders = builder.stream(f"{app.name}-orders", key_serde="string", value_serde="long", name="orders")
    digits = lambda key, value, all: f"{all}{value % 10}"  # noqa: E731
    orders.group_by_key().aggregate(lambda: "", digits, store="counts", name="count", value_serde="string")
    found = compare_definition(app, builder, records=100)
    assert any(note.startswith("store counts begins empty on both sides") for note in found.notes), found.notes
    assert found.first is not None and found.first.node == "count", found.text


def test_what_the_application_really_has_is_compared_with_the_control(ran: Ran) -> None:
    """A function that does not give again what it gave then, as one that reads the clock: no difference, but it is said."""
    app = ran.application
    joins = [name for name, node in app.topology.nodes.items() if hasattr(getattr(node, "operator", None), "joiner")]
    (both,) = (name for name in joins if name.startswith("both") and name.endswith("this"))
    other = edited(app.name, both, joiner=lambda value, other: "again")
    unlike = Compared(app.name, other, app.config, app.client, running_code=whole_code(other))
    found = compare_definition(unlike, other, records=10_000)
    assert found.equal and len(found.notes) == 1, found.text
    assert found.notes[0].startswith("store both: ") and found.notes[0].endswith("are not what the application has (value)")


def test_what_is_not_known_is_an_error(ran: Ran) -> None:
    app = ran.application
    with pytest.raises(CallError):
        compare_definition(app, app.topology, records=0)
    with pytest.raises(CallError):
        compare_definition(app, app.topology, records=5, start="1 hour ago")
    with pytest.raises(InvalidStateStoreError, match="no record since"):
        compare_definition(app, app.topology, start=2**50)
    with pytest.raises(InvalidStateStoreError, match="before the first commit"):
        compare_definition(app, app.topology, end=1)
