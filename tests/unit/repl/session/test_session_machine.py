"""R17: random session scripts against a model: cells, edits, refusals, resets, rollback, pause, stop, undeploy, kernel restarts, kills.

Real: builder and build log, topology, diff and edit plan, program text and session file, take-over, tasks, stores in LMDB on disk.
`small_cluster` stands for the broker and for Spark. The model is plain Python: what each branch makes of each record, which rows each
store name has, what an edit must say, and how many versions there are.
"""

from __future__ import annotations

import linecache
import shutil
import struct
import tempfile
from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import hypothesis
import pytest
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule, run_state_machine_as_test

from kstreams_repl.engine.topology.description.source_location import cell_started
from kstreams_repl.engine.topology.differences.diff import StoreChange
from kstreams_repl.host.journal.journal_state import JournalState
from kstreams_repl.host.kafka.admin import NewTopicSpec
from kstreams_repl.repl.session.application.starting import journal_lookup
from kstreams_repl.repl.session.source import source_slice
from kstreams_repl.repl.session.source.cell_history import CellHistory
from kstreams_repl.system.errors import KStreamsError, TopologyError
from kstreams_repl.system.types import TopicPartition
from tests.unit.repl.session.small_cluster import PARTITIONS, SmallCluster, SmallSession, partition_of

SOURCES = ("in-a", "in-b")
SINKS = ("out-0", "out-1", "out-2")
STORES = ("rows", "memory-rows")
_LONG = struct.Struct(">q")
KINDS = ("plain", "count", "count", "sum", "windows", "windows", "by-value")


@dataclass(frozen=True)
class Branch:
    """What one cell says."""

    source: str
    modulus: int
    factor: int
    kind: str
    store: str
    window: int
    filtered: bool
    name: str

    @property
    def cell(self) -> str:
        number = self.name
        lines = [
            f"def keep_{number}(key, value):",
            f"    return value % {self.modulus} != 1",
            f"b{number} = {self.source.replace('-', '_')}",
            *([f"b{number} = b{number}.filter(keep_{number}, name='filter-{number}')"] if self.filtered else []),
            f"b{number} = b{number}.map_values(lambda value: value * {self.factor} + 1, name='map-{number}')",
        ]
        keep = f"store={self.store!r}, name='table-{number}', persistent={self.store != 'memory-rows'}"
        serdes = "key_serde='string', value_serde='long'"
        if self.kind == "by-value":
            selector = "lambda key, value: f'v{value % 3}'"
            lines.append(f"b{number} = b{number}.group_by({selector}, name='by-{number}', {serdes}).count({keep})")
        elif self.kind != "plain":
            lines.append(f"b{number} = b{number}.group_by_key({serdes})")
            lines += {
                "count": [f"b{number} = b{number}.count({keep})"],
                "sum": [f"b{number} = b{number}.reduce(lambda total, value: total + value, {keep})"],
                "windows": [
                    f"b{number} = b{number}.windowed_by(kstreams_repl.TimeWindows.of_size({self.window})).count({keep})",
                ],
            }[self.kind]
        if self.kind != "plain":
            lines.append(f"b{number} = b{number}.to_stream(name='changes-{number}')")
        if self.kind == "windows":
            lines.append(f"b{number} = b{number}.map(lambda key, n: (f'{{key.key}}@{{key.start}}', n), name='flat-{number}')")
        lines.append(f"b{number}.to('out-{number}', {serdes}, name='sink-{number}')")
        return "\n".join(lines) + "\n"

    @property
    def format(self) -> tuple[Any, ...]:
        """What the rows of its store mean; equal ones can be taken over."""
        return ("windows", self.window) if self.kind == "windows" else ("rows",)


@dataclass
class Rows:
    """What is under one store name on the cluster."""

    format: tuple[Any, ...]
    rows: dict[Any, int] = field(default_factory=dict)
    born: bool = True
    """Its changelog is there: the application ran with it."""


Deployed = dict[str, Branch]


class Converted(Deployed):
    """A version for which the rows of these stores were converted."""

    def __init__(self, branches: Deployed, stores: set[str]) -> None:
        super().__init__(branches)
        self.stores = stores


def stores_of(branches: Deployed) -> dict[str, Branch]:
    return {branch.store: branch for branch in branches.values() if branch.kind != "plain"}


branches = st.builds(
    Branch,
    source=st.sampled_from(SOURCES),
    modulus=st.integers(2, 4),
    factor=st.integers(1, 3),
    kind=st.sampled_from(KINDS),
    store=st.sampled_from(STORES),
    window=st.sampled_from([10, 25]),
    filtered=st.booleans(),
    name=st.sampled_from(["0", "1", "2"]),
)


RECORDS = st.lists(st.tuples(st.sampled_from(SOURCES), st.sampled_from(["a", "b"]), st.integers(0, 20)), min_size=3, max_size=8)


def journal_in(cluster: SmallCluster) -> JournalState:
    if cluster.journal is None:  # as `journal_lookup.journal_of`
        raise KStreamsError("there is no application 'app' on this cluster")
    return cluster.journal


class SessionScripts(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.directory = Path(tempfile.mkdtemp(prefix="session-machine-"))
        self.cluster = SmallCluster()
        self.cluster.create_topics([NewTopicSpec(name, PARTITIONS) for name in (*SOURCES, *SINKS)])
        self._history, source_slice.history = source_slice.history, CellHistory()
        self._journal_of, journal_lookup.journal_of = journal_lookup.journal_of, lambda session, name: journal_in(self.cluster)
        self.runs = 0
        self.clock = 1000
        # the model
        self.notebook: Deployed = {}
        self.versions: list[Deployed] = []
        self.first = 0
        self.filed: list[Deployed] = []
        self.foreign: list[Deployed] = []  # versions that an earlier kernel made, and rollbacks to them: no builder here goes back to them
        self.deployed: Deployed = {}
        self.state = "created"
        self.store_rows: dict[str, Rows] = {}
        self.records: dict[str, list[tuple[str, int, int]]] = {topic: [] for topic in SOURCES}
        self.taken = dict.fromkeys(SOURCES, 0)
        self.outputs: dict[str, dict[str, list[int]]] = defaultdict(lambda: defaultdict(list))
        self.open_kernel()

    # ---- the notebook

    def open_kernel(self) -> None:
        source_slice.history = CellHistory()
        self.session = SmallSession(self.cluster, self.directory)
        self.app: Any = None
        self.variables: dict[str, Any] = {"__name__": "__main__", "session": self.session}
        self.run("start", "import kstreams_repl\nbuilder = kstreams_repl.StreamsBuilder()\n")
        for topic in SOURCES:
            self.run_source_cell(topic)

    def run_source_cell(self, topic: str) -> None:
        name = topic.replace("-", "_")
        self.run(
            topic,
            f"{name} = builder.stream({topic!r}, key_serde='string', value_serde='long', name='source-{topic}')\n"
            f"{name}.foreach(lambda key, value: None, name='seen-{topic}')\n",
        )

    def run(self, cell: str, text: str) -> Any:
        self.runs += 1
        file = f"<cell {self.runs} of a script>"
        linecache.cache[file] = (len(text), None, text.splitlines(keepends=True), file)
        source_slice.history.note(cell, text, file=file)
        cell_started(cell)
        try:
            exec(compile(text, file, "exec"), self.variables)
        finally:
            cell_started(None)
        return self.variables.get("result")

    # ---- the model

    def catch_up(self) -> None:
        """What the deployed branches make of every record that is not taken yet; called whenever the application runs."""
        for rows in self.store_rows.values():
            rows.born = True
        for topic in SOURCES:
            for key, value, at in self.records[topic][self.taken[topic] :]:
                for branch in self.deployed.values():
                    if branch.source == topic and (not branch.filtered or value % branch.modulus != 1):
                        self.take(branch, key, value * branch.factor + 1, at)
            self.taken[topic] = len(self.records[topic])

    def take(self, branch: Branch, key: str, value: int, at: int) -> None:
        out = self.outputs[f"out-{branch.name}"]
        if branch.kind == "plain":
            out[key].append(value)
            return
        rows = self.store_rows[branch.store].rows
        row: Any = key
        if branch.kind == "windows":
            row = (key, at // branch.window * branch.window)
            key = f"{key}@{row[1]}"
        elif branch.kind == "by-value":
            row = key = f"v{value % 3}"
        if branch.kind == "sum":
            rows[row] = rows[row] + value if row in rows else value
        else:
            rows[row] = rows.get(row, 0) + 1
        out[key].append(rows[row])

    def refused(self, wanted: Deployed) -> set[str]:
        return {
            name
            for name, branch in stores_of(wanted).items()
            if name in self.store_rows and self.store_rows[name].format != branch.format
        }

    def put_to_work(self, wanted: Deployed, reset: set[str] = frozenset()) -> None:  # type: ignore[assignment]
        self.catch_up_if_running()
        for name, branch in stores_of(wanted).items():
            if name in reset or name not in self.store_rows:
                self.store_rows[name] = Rows(branch.format, born=self.state == "running")
        self.store_rows = {name: rows for name, rows in self.store_rows.items() if rows.born or name in stores_of(wanted)}
        self.deployed = dict(wanted)
        same = bool(self.versions) and self.versions[-1] == wanted
        if not same or len(self.app.versions) > len(self.versions):
            # the same text is the same version; the same branches in another order are not
            self.versions.append(dict(wanted))
            self.filed = list(self.versions)

    def catch_up_if_running(self) -> None:
        if self.state == "running":
            self.catch_up()

    # ---- rules

    @rule(branch=branches)
    def run_a_cell(self, branch: Branch) -> None:
        others = {other.store for name, other in self.notebook.items() if name != branch.name and other.kind != "plain"}
        if branch.kind != "plain" and branch.store in others:  # two branches cannot make one store
            branch = replace(branch, kind="plain")
        branch = replace(  # what a branch does not use is not part of it
            branch,
            modulus=branch.modulus if branch.filtered else 2,
            window=branch.window if branch.kind == "windows" else 10,
            store=branch.store if branch.kind != "plain" else "",
        )
        self.run(f"branch {branch.name}", branch.cell)
        self.notebook[branch.name] = branch

    @precondition(lambda self: self.notebook)
    @rule(data=st.data())
    def remove_a_cell(self, data: st.DataObject) -> None:
        name = data.draw(st.sampled_from(sorted(self.notebook)))
        assert self.variables["builder"].remove_cell(f"branch {name}") > 0
        del self.notebook[name]

    @rule(topic=st.sampled_from(SOURCES), remove=st.booleans())
    def run_a_source_cell_again(self, topic: str, remove: bool) -> None:
        """While it is gone its branches hang in the air: nothing can be deployed or edited, and nothing changes."""
        if remove:
            self.variables["builder"].remove_cell(topic)
            if any(branch.source == topic for branch in self.notebook.values()):
                assert self.variables["builder"].problems
                with pytest.raises(TopologyError, match="incomplete"):
                    if self.app is None or self.state == "created":
                        self.session.plan(self.variables["builder"], "app")
                    else:
                        self.app.edit(self.variables["builder"])
        self.run_source_cell(topic)
        assert not self.variables["builder"].problems

    @rule(values=RECORDS)
    def produce(self, values: list[tuple[str, str, int]]) -> None:
        for topic, key, value in values:
            self.append(topic, key, value)
        if self.state == "running":
            self.app._core.deployment.work()
            self.catch_up()

    def append(self, topic: str, key: str, value: int) -> None:
        self.clock += 3
        log = self.cluster.logs[TopicPartition(topic, partition_of(key.encode()))]
        log.append((key.encode(), _LONG.pack(value), self.clock))
        self.records[topic].append((key, value, self.clock))

    @initialize(first=st.lists(branches, min_size=1, max_size=2))
    def begin(self, first: list[Branch]) -> None:
        for branch in first:
            self.run_a_cell(branch)
        self.deploy()

    @precondition(lambda self: self.state != "created")
    @rule(branch=branches, reset=st.booleans(), values=RECORDS)
    def change_and_apply(self, branch: Branch, reset: bool, values: list[tuple[str, str, int]]) -> None:
        self.run_a_cell(branch)
        self.edit(set(), reset)
        self.produce(values)

    @precondition(lambda self: self.deployed and self.notebook == self.deployed)
    @rule(stores=st.sets(st.sampled_from(STORES), min_size=1), values=RECORDS)
    def reset_what_runs(self, stores: set[str], values: list[tuple[str, str, int]]) -> None:
        self.produce(values)
        self.edit(stores, False)
        self.produce(values)

    @precondition(lambda self: self.notebook == self.deployed and bool(stores_of(self.deployed)))
    @rule(data=st.data(), values=RECORDS)
    def convert_what_runs(self, data: st.DataObject, values: list[tuple[str, str, int]]) -> None:
        """A hundred more on each row, and every fifth goes; the new version can only be left by a function that leads back."""
        stores = data.draw(st.sets(st.sampled_from(sorted(stores_of(self.deployed))), min_size=1))
        self.produce(values)
        functions = ", ".join(f"{store!r}: lambda key, value: value + 100 if value % 5 else None" for store in sorted(stores))
        plan = self.run("look", f"result = app.edit(builder, migrate={{{functions}}})\n")
        assert plan.applied and set(plan.diff.rewritten) == stores
        self.convert(stores, lambda value: value + 100 if value % 5 else None)
        self.versions.append(Converted(self.deployed, stores))
        self.filed = list(self.versions)
        self.produce(values)

    def convert(self, stores: set[str], function: Callable[[int], int | None]) -> None:
        for store in stores:
            found = {key: function(value) for key, value in self.store_rows[store].rows.items()}
            self.store_rows[store].rows = {key: value for key, value in found.items() if value is not None}

    @precondition(lambda self: self.state == "created")
    @rule()
    def deploy(self) -> None:
        config = "{'statestore.cache.max.bytes': 0, 'auto.offset.reset': 'earliest'}"
        self.run("deploy", f"app = session.deploy(builder, 'app', config={config})\n")
        self.app = self.variables["app"]
        self.app._core.finish_start()
        self.versions = list(self.filed)
        self.foreign = [*self.versions]  # read from the history, as those of an earlier kernel
        self.put_to_work(self.notebook)
        self.made_here()
        self.first = len(self.versions) - 1
        self.state = "running"
        self.catch_up()

    @precondition(lambda self: self.state != "created")
    @rule(reset=st.sets(st.sampled_from(STORES), max_size=1), only_if_needed=st.booleans())
    def edit(self, reset: set[str], only_if_needed: bool) -> None:
        wanted = dict(self.notebook)
        refused = self.refused(wanted)
        reset = refused if only_if_needed else reset & set(stores_of(wanted)) & set(self.store_rows)
        known = set(stores_of(wanted)) | set(stores_of(self.deployed))
        reset &= known
        changed = wanted != self.deployed or bool(reset)
        plan = self.run("look", f"result = app.edit(builder, dry_run=True, reset_state={sorted(reset)!r})\n")
        assert plan.diff.empty == (not changed), str(plan.diff)
        assert {store.name for store in plan.diff.refused} == refused - reset, str(plan.diff)
        assert set(plan.diff.reset) == reset, str(plan.diff)
        assert {store.name for store in plan.diff.stores if store.change is StoreChange.REMOVED} == set(stores_of(self.deployed)) - set(
            stores_of(wanted)
        )
        text = f"result = app.edit(builder, reset_state={sorted(reset)!r})\n"
        if refused - reset:
            with pytest.raises(TopologyError, match="cannot be kept") as caught:
                self.run("edit", text)
            assert "reset_state=" in str(caught.value.hint)
            return
        self.run("edit", text)
        if changed:
            self.put_to_work(wanted, reset)
            self.made_here()
            self.catch_up_if_running()

    def made_here(self) -> None:
        """The builder of this kernel has made the present version, or made it again: a rollback to it takes the builder back."""
        self.foreign = [version for version in self.foreign if version is not self.versions[-1]]

    @precondition(lambda self: self.state != "created")
    @rule()
    def roll_back(self) -> None:
        if len(self.versions) < 2:
            with pytest.raises(KStreamsError, match="first version"):
                self.app.rollback()
            return
        before, present = self.versions[-2], self.versions[-1]
        earlier = self.app.versions[-2]
        foreign = any(version is before for version in self.foreign)
        follows = self.notebook == self.deployed and self.app._core.definition is not None and earlier.code is not None and not foreign
        number = self.app.versions[-1].number
        if isinstance(present, Converted):
            with pytest.raises(TopologyError, match="has converted the rows"):
                self.app.rollback()
            self.app.rollback(migrate=dict.fromkeys(present.stores, lambda key, value: value - 100))
            self.convert(present.stores, lambda value: value - 100)
            self.versions.append(Converted(before, present.stores))
            self.filed = list(self.versions)
        elif self.refused(before):
            with pytest.raises(TopologyError, match="cannot be kept"):
                self.app.rollback()
        else:
            changed = before != self.deployed
            self.app.rollback()
            if changed:
                self.put_to_work(before)
                self.catch_up_if_running()
        if foreign and self.app.versions[-1].number != number:
            self.foreign.append(self.versions[-1])
        if follows and not self.refused(before) and self.app.versions[-1].number != number:  # the builder is what runs
            self.notebook = dict(before)
            assert self.app.changes() is None

    @precondition(lambda self: self.state == "running")
    @rule(how=st.sampled_from(["pause", "stop"]))
    def halt(self, how: str) -> None:
        getattr(self.app, how)()
        self.state = "paused" if how == "pause" else "stopped"

    @precondition(lambda self: self.state in ("paused", "stopped"))
    @rule()
    def resume(self) -> None:
        self.app.resume()
        self.state = "running"
        self.catch_up()

    @precondition(lambda self: self.state in ("stopped", "running") and len(self.versions) - self.first > 3)
    @rule()
    def undeploy(self) -> None:
        self.app.stop()
        self.session.cleanup("app")
        self.cluster.journal = None
        self.state, self.deployed, self.store_rows = "created", {}, {}
        self.taken = dict.fromkeys(SOURCES, 0)

    @precondition(lambda self: self.state != "created")
    @rule(
        when=st.sampled_from(["idle", "before the commit", "after the transaction"]),
        key=st.sampled_from(["a", "b"]),
        value=st.integers(0, 9),
    )
    def restart_the_kernel(self, when: str, key: str, value: int) -> None:
        """The kernel dies, in the middle of a record if one runs; a new one attaches by the session file and runs every cell again."""
        if self.state == "running" and when != "idle":
            self.append("in-a", key, value)
        self.app._core.deployment.die(when)
        self.versions, self.first = self.versions[self.first :], 0  # earlier ones were cleaned up with their journal
        self.foreign = [*self.versions, *self.filed]
        cells = dict(self.notebook)
        self.open_kernel()
        for branch in cells.values():
            self.run(f"branch {branch.name}", branch.cell)
        self.run("attach", "app = session.attach('app')\n")
        self.app = self.variables["app"]
        assert str(self.app.topology.describe()) == self.app._core.history._saved[-1].description
        if self.state == "running":
            self.app.resume()
            self.catch_up()

    # ---- what must hold after every step

    @invariant()
    def outputs_are_the_models(self) -> None:
        for topic in SINKS:
            found: dict[str, list[int]] = defaultdict(list)
            for key, value, _ in self.cluster.values(topic):
                assert key is not None and value is not None
                found[key.decode()].append(_LONG.unpack(value)[0])
            assert found == self.outputs[topic], topic

    @invariant()
    def versions_are_the_models(self) -> None:
        if self.app is not None and self.state != "created":
            assert len(self.app.versions) == len(self.versions)
            names = {f"sink-{name}" for name in self.deployed}
            assert {node for node in self.app.topology.nodes if node.startswith("sink-")} == names

    def teardown(self) -> None:
        if self.app is not None:
            self.app._core.deployment.die("idle")
        source_slice.history, journal_lookup.journal_of = self._history, self._journal_of
        shutil.rmtree(self.directory, ignore_errors=True)


def test_a_random_session_equals_its_model() -> None:
    run_state_machine_as_test(SessionScripts, settings=hypothesis.settings(max_examples=15, stateful_step_count=30))  # type: ignore[no-untyped-call]


@pytest.mark.slow
@pytest.mark.timeout(1800)
def test_500_random_sessions_equal_their_model() -> None:
    run_state_machine_as_test(SessionScripts, settings=hypothesis.settings(max_examples=500, stateful_step_count=30))  # type: ignore[no-untyped-call]
