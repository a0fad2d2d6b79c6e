"""Rules that every operator with a store keeps, also one that is added tomorrow: topologies are the examples of the DSL's docstrings.

A new operator is tested as soon as its method has an example, which `tests/unit/test_docs.py` requires. Exceptions are listed below, by
operator class, with the reason; an exception that is no longer one fails, too.
"""

from __future__ import annotations

import contextlib
import functools
import importlib
import inspect
import pkgutil
import random
import re
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import kstreams_repl as ks
from kstreams_repl import serdes
from kstreams_repl.engine import dsl, operators
from kstreams_repl.engine.dsl.graph.call_log import logged
from kstreams_repl.engine.operators.loop_lines import inline_of
from kstreams_repl.engine.operators.operator import NodeContext, Operator, Process
from kstreams_repl.engine.operators.streams.stream_select_key import StreamSelectKey
from kstreams_repl.engine.runtime.task import CommitPlan, StreamTask
from kstreams_repl.engine.stores.log.changelog_restore import Restorer
from kstreams_repl.engine.topology.nodes import ProcessorNode, SinkNode, SourceNode
from kstreams_repl.engine.topology.store_builder import StoreKind
from kstreams_repl.system.errors import KStreamsError, TopologyError
from kstreams_repl.system.types import RecordBatch
from kstreams_repl.test_driver.driver import Mode, TopologyTestDriver
from kstreams_repl.test_driver.driver_tasks import DriverTask
from tests.unit.engine.operators.operator_cases import SETTINGS, cases, examples, more, stores_of

SHIFT = 1_000_000
STAMP = [("stamp", b"1")]
VALUES: dict[str, list[Any]] = {"string": ["to", "three", "seven"], "json": ["to", "three"], "double": [1.5, 2.5], "long": [1, 2, 3]}
"""Values by serde that the functions of the examples accept."""

# ---- runs --------------------------------------------------------------------------------------------------------------------------


class Driver(TopologyTestDriver):
    """A test driver that can continue from another one's commit, with stores restored from the changelogs, and sees keys."""

    def __init__(self, topology: Any, *, before: Driver | None = None, cache: int = 0, mode: Mode = "exact", **settings: Any) -> None:
        self.plan: CommitPlan | None = None
        self.seen: dict[str, list[tuple[Any, int, Any]]] = {}
        self.topology, self._before = topology, before
        self.values: list[tuple[str, Any, str, int]] = []
        more = {**SETTINGS, "statestore.cache.max.bytes": cache, **settings}
        super().__init__(topology, more, start_ms=0, mode=mode, tap=self._tap_of if mode == "exact" else self._tap_of_values)

    def __enter__(self) -> Driver:
        return self

    def _tap_of(self, node: str) -> Any:
        return lambda key, value, timestamp, headers: self.seen.setdefault(node, []).append((key, timestamp, headers))

    def _tap_of_values(self, node: str) -> Any:
        return lambda key, value, timestamp, headers: self.values.append((node, key, repr(value), timestamp))

    def changelog(self, store: str) -> list[Any]:
        return list(self.output(f"test-{store}-changelog"))

    def _make_task(self, spec: Any) -> DriverTask:
        made = super()._make_task(spec)
        task = made.task
        if self._before is not None:
            assert self._before.plan is not None
            for builder in task.spec.subtopology.stores:
                rows = self._before.changelog(builder.name)
                columns = zip(*((row.key, row.value, row.timestamp, row.headers) for row in rows), strict=True)
                restorer = Restorer(builder, task.environment, f"test-{builder.name}-changelog-0")
                if rows:
                    keys, values, timestamps, headers = map(list, columns)
                    restorer.apply(RecordBatch(keys, values, timestamps, list(range(len(rows))), headers))
                restorer.finish(len(rows))
            for at, time in self._before.plan.partition_times.items():
                task.set_partition_time(at, time)
            task.set_metadata(self._before.plan.metadata)
            self._offsets = dict(self._before._offsets)
        return made

    def _commit(self, task: StreamTask) -> None:
        self.plan = task.prepare_commit()
        self._commits += 1
        task.post_commit(self._commits, {})

    def feed(self, rows: list[tuple[int, Any, int, int]]) -> None:
        """Pipe (number of the source topic, key, number of the value, timestamp); user data of each topic's serdes."""
        sources = [node for node in self.topology.nodes.values() if isinstance(node, SourceNode)]
        topics = [(topic, node) for node in sources for topic in node.topics if topic not in self.topology.internal_topics]
        for source, key, value, timestamp in rows:
            topic, node = topics[source % len(topics)]
            serde = node.value_serde or serdes.json
            values = next((some for name, some in VALUES.items() if serdes.resolve(name) is serde), VALUES["json"])
            key_serde = node.key_serde or serdes.string
            data = serde.serialize(values[value % len(values)])
            self.pipe_bytes(topic, None if key is None else key_serde.serialize(key), data, timestamp, [("h", b"1")])


def rows(count: int, *, late: bool = False, seed: int = 7) -> list[tuple[int, Any, int, int]]:
    chance = random.Random(seed)
    return [
        (chance.randrange(4), chance.choice("abc"), chance.randrange(9), at - (chance.choice((0, 0, 90_000)) if late else 0))
        for at in range(100_000, 100_000 + 4 * count, 4)
    ]


# ---- the rules ---------------------------------------------------------------------------------------------------------------------

Exempt = dict[str, str]
"""Reasons by name of the operator's class."""

TABLE = "the source of its table has dropped the record"
NULL_KEY: Exempt = {
    "StreamJoinWindow": "stores none; the join behind it drops it, or forwards it alone if it is a left or outer join (KIP-962)",
    "StreamStreamJoin": "a left or outer join forwards it alone (KIP-962)",
    **dict.fromkeys(("TableAggregate", "TableReduce", "TableSuppress", "TableFilter", "TableMapValues", "TableTransformValues"), TABLE),
    "SubscriptionReceive": TABLE,
    "StreamSqlAggregate": "the query has dropped the record",
}
ALWAYS_LOGGED: Exempt = {
    "SubscriptionReceive": "Kafka Streams has no way to turn it off for subscriptions",
    "StreamTableJoin": "Kafka Streams has no way to turn it off for the buffer of a join with grace",
    "TableSuppress": "Suppressed has `with_logging_disabled` instead of the argument",
}
NOT_BY_DEFAULT: Exempt = {"StreamTableJoin": "the buffer of a join with grace is on disk in Kafka Streams, too"}
UNTIMED: Exempt = {name: "Kafka Streams logs buffers without a timestamp, too" for name in ("StreamTableJoin", "TableSuppress")}
WITHOUT_HEADERS: Exempt = {"StreamSessionWindowAggregate": "without a cache results have no headers, as in Kafka Streams"}
OTHER_HEADERS: Exempt = {"StreamPrint": "it is the end of its branch"}
CALLS = "calls the user's object, which may read everything of the record"
MANY = "forwards any number of records for one"
SEVERAL = "has several children or parents; a loop is one line of nodes"
CHANGES = "takes changes (new, old), which rarely come from a loop"
BYTES = "its records are internal bytes"
WHOLE = "takes whole columns of a source, in a loop of its own"
NOT_FUSED: Exempt = {
    **dict.fromkeys(("ProcessorOperator", "FixedKeyProcessorOperator", "StreamAsync", "TableTransformValues", "StreamPrint"), CALLS),
    **dict.fromkeys(("StreamFlatMap", "StreamFlatMapValues"), MANY),
    **dict.fromkeys(("PassThrough", "TablePassThrough", "StreamBranch"), SEVERAL),
    **dict.fromkeys(("TableRepartitionMap", "TableAggregate", "TableReduce", "TableFilter", "TableMapValues", "TableTableJoin"), CHANGES),
    "TableSuppress": CHANGES,
    "StreamJoinWindow": "writes what the join behind it reads by key",
    **dict.fromkeys(("StreamMapBatches", "StreamSql", "StreamSqlPartials", "StreamSqlAggregate"), WHOLE),
    **dict.fromkeys(("SubscriptionSend", "SubscriptionReceive", "SubscriptionJoin", "ForeignTableJoin", "ResponseJoin"), BYTES),
}


def kept(found: dict[str, list[str]], exempt: Exempt) -> None:
    """Fail for each operator that breaks a rule and is not listed, and for each that is listed and keeps it."""
    lines = [f"{name} breaks the rule: {', '.join(seen)}" for name, seen in found.items() if seen and name not in exempt]
    lines += [f"{name} keeps the rule: remove it from the exceptions" for name in exempt if not found.get(name)]
    assert not lines, "\n".join(lines)


@pytest.fixture
def after_source(monkeypatch: pytest.MonkeyPatch) -> Callable[[Callable[[Any], Any]], None]:
    """Put an operator behind each `builder.stream(...)` of the cases."""
    stream = ks.StreamsBuilder.stream

    def put(change: Callable[[Any], Any]) -> None:
        monkeypatch.setattr(ks.StreamsBuilder, "stream", lambda self, *args, **more: change(stream(self, *args, **more)))

    return put


def _above(topology: Any, node: ProcessorNode) -> Iterator[Any]:
    left = [*node.parents]
    while left:
        at = topology.nodes[left.pop()]
        left += getattr(at, "parents", ())
        yield at


def test_every_operator_of_the_package_is_in_a_case() -> None:
    for module in pkgutil.walk_packages(operators.__path__, "kstreams_repl.engine.operators."):
        importlib.import_module(module.name)
    nodes = [node for build in (examples() | more()).values() for node in getattr(build(), "nodes", {}).values()]
    seen = {type(getattr(node, "operator", None)) for node in nodes}
    missing = [kind.__name__ for kind in _subclasses(Operator) if kind not in seen and kind.__module__.startswith("kstreams_repl")]
    assert missing == [], "give the method an example that builds it, or add a topology to more()"


BY_METHOD = {
    "FixedKeyProcessorOperator": "unit/engine/operators/test_headers_behind_a_cache.py",
    "ProcessorOperator": "unit/engine/runtime/test_records_and_schedules.py",
    "StreamAsync": "unit/engine/runtime/test_async_nodes.py",
}
"""Operators whose tests only name the method."""


def test_every_operator_is_named_by_a_test_of_its_own() -> None:
    """By its class or its module, in another file than this one, its cases and the test of CONTRIBUTING.md, which know no meaning."""
    for module in pkgutil.walk_packages(operators.__path__, "kstreams_repl.engine.operators."):
        importlib.import_module(module.name)
    root, here = Path(__file__).resolve().parents[3], {"test_contributing", "operator_cases", Path(__file__).stem}
    files = [path for folder in ("unit", "conformance") for path in (root / folder).rglob("*.py") if path.stem not in here]
    words = set(re.findall(r"\w+", " ".join(f"{path.stem.removeprefix('test_')} {path.read_text(encoding='utf-8')}" for path in files)))
    kinds = {kind.__name__: kind for kind in _subclasses(Operator) if kind.__module__.startswith("kstreams_repl.engine.operators.")}
    unnamed = {name for name, kind in kinds.items() if not {name, kind.__module__.rpartition(".")[2]} & words}
    assert kinds and unnamed == set(BY_METHOD)
    assert [file for file in BY_METHOD.values() if not (root / file).is_file()] == []


def _subclasses(kind: type) -> Iterator[type]:
    for one in kind.__subclasses__():
        if not inspect.isabstract(one):
            yield one
        yield from _subclasses(one)


@pytest.mark.parametrize("cache", [0, 10_000_000])
def test_a_store_has_a_changelog(cache: int) -> None:
    found: dict[str, list[str]] = {}
    for name, build in cases().items():
        with Driver(build(), cache=cache) as driver:
            driver.feed(rows(40))
            for _, kind, store in stores_of(driver.topology):
                if store.source_topic is None and not driver.changelog(store.name):
                    found.setdefault(kind, []).append(f"{name}: {store.name}")
    kept(found, {})


def test_a_store_has_none_if_logging_is_off(monkeypatch: pytest.MonkeyPatch) -> None:
    for kind in {owner for one in (getattr(dsl, name) for name in dsl.__all__) for owner in one.__mro__}:
        for name, method in list(vars(kind).items()):
            if inspect.isfunction(method) and "logging" in inspect.signature(method).parameters and name[0] != "_":
                monkeypatch.setattr(kind, name, _without_logging(method))
    found: dict[str, list[str]] = {}
    for name, build in cases().items():
        with Driver(build()) as driver:
            driver.feed(rows(40))
            for _, kind, store in stores_of(driver.topology):
                if driver.changelog(store.name):
                    found.setdefault(kind, []).append(f"{name}: {store.name}")
    kept(found, ALWAYS_LOGGED)


def _without_logging(method: Any) -> Any:
    @functools.wraps(method)
    def call(*args: Any, **more: Any) -> Any:
        try:
            return method(*args, **{"logging": False, **more})
        except TopologyError as error:  # a join with a table
            assert "has no argument 'logging'" in str(error)
            return method(*args, **more)

    return call


def test_after_a_change_of_key_a_repartition_stands_before_the_store(after_source: Any) -> None:
    after_source(lambda stream: stream.select_key(lambda key, value: key))
    found: dict[str, list[str]] = {}
    for name, build in cases().items():
        topology = build()
        for node, kind, _ in stores_of(topology):
            if any(isinstance(getattr(at, "operator", None), StreamSelectKey) for at in _above(topology, node)):
                found.setdefault(kind, []).append(name)
    kept(found, {})


def test_a_record_with_a_null_key_is_dropped_and_counted() -> None:
    found: dict[str, list[str]] = {}
    reached: set[str] = set()
    for name, build in cases().items():
        with Driver(build()) as driver:
            driver.feed([(source, None, value, at) for source, _, value, at in rows(8)])
            for node, kind, _ in stores_of(driver.topology):
                nulls = sum(key is None for parent in node.parents for key, _, _ in driver.seen.get(parent, []))
                dropped = sum(driver.node_counts[node.name].dropped.values())
                reached |= {kind} if nulls else set()
                found.setdefault(kind, []).extend([f"{name}: {dropped} of {nulls}"] if dropped < nulls else [])
    for kind in found.keys() - reached:
        found[kind].append("no example has it behind a source, where a null key could come to it")
    kept(found, NULL_KEY)


def test_default_dsl_store_is_followed() -> None:
    found: dict[str, list[str]] = {}
    for name, build in cases().items():
        for _, kind, store in stores_of(build()):
            if store.on_disk("in_memory") and store.kind is not StoreKind.VERSIONED:
                found.setdefault(kind, []).append(f"{name}: {store.name}")
    kept(found, NOT_BY_DEFAULT)


class Stamp(Operator):
    """Changes the time and leaves that of the record context as it is, as a join does; new headers are those of the context, too."""

    shows_headers = True

    def build(self, node: NodeContext, forward: Process) -> Process:
        def stamp(key: Any, value: Any, timestamp: int, headers: Any) -> None:
            node.record.headers = list(STAMP)
            forward(key, value, timestamp + SHIFT, node.record.headers)

        return stamp


@logged
def _stamped(stream: Any) -> Any:
    return stream._put(Stamp(), "STAMP-", None, key_serde=stream.key_serde, value_serde=stream.value_serde)


@pytest.mark.parametrize("cache", [0, 10_000_000])
def test_rows_are_logged_under_the_time_of_the_record_and_leave_with_its_time_and_headers(after_source: Any, cache: int) -> None:
    """Not under those of the source record: the operator sets `node.record.timestamp` and `node.record.headers` before it writes."""
    after_source(_stamped)
    found: dict[str, list[str]] = {}
    for name, build in cases().items():
        with Driver(build(), cache=cache) as driver:
            driver.feed(rows(40))
            for node, kind, store in stores_of(driver.topology):
                if not any(isinstance(getattr(at, "operator", None), Stamp) for at in _above(driver.topology, node)):
                    continue  # behind a table or a repartition topic, where the record is the source record
                logged = [row.timestamp for row in driver.changelog(store.name) if row.timestamp is None or row.timestamp < SHIFT]
                given = [(at, headers) for _, at, headers in driver.seen.get(node.name, ()) if at < SHIFT or list(headers) != STAMP]
                if logged or given:
                    found.setdefault(kind, []).append(f"{name}: logged {logged[:2]}, forwarded {given[:2]}")
    kept(found, UNTIMED if cache else UNTIMED | WITHOUT_HEADERS)


def test_headers_of_a_record_are_forwarded(after_source: Any) -> None:
    """By operators without a store; the test above has those with one."""
    after_source(_stamped)
    found: dict[str, list[str]] = {}
    reached: set[str] = set()
    for name, build in (examples() | more()).items():
        topology = build()
        nodes = [node for node in getattr(topology, "nodes", {}).values() if isinstance(node, ProcessorNode)]
        if not any(isinstance(node.operator, Stamp) for node in nodes):
            continue
        with Driver(topology) as driver:
            with contextlib.suppress(KStreamsError):  # the example's function may not take these values; what came before is compared
                driver.feed(rows(20))
            for node in nodes:
                above = [*_above(topology, node)]
                if any(isinstance(at, SinkNode) or getattr(at, "stores", ()) for at in (node, *above)):
                    continue
                if any(isinstance(getattr(at, "operator", None), Stamp) for at in above):
                    given, kind = driver.seen.get(node.name, ()), type(node.operator).__name__
                    reached |= {kind} if given else set()
                    lost = [headers for _, _, headers in given if list(headers) != STAMP]
                    found.setdefault(kind, []).extend([f"{name}: {lost[:2]}"] if lost else [])
    for kind in found.keys() - reached:
        found[kind].append("no example forwards a record")
    kept(found, OTHER_HEADERS)


@pytest.mark.parametrize("name", cases())
def test_the_same_records_are_late_after_a_restart(name: str) -> None:
    """A commit, then another task whose stores are restored from the changelogs."""
    given = rows(30, late=True) + [(source, key, value, 20_000) for source, key, value, _ in rows(6)] + rows(24, late=True, seed=8)
    whole, first = Driver(cases()[name]()), Driver(cases()[name]())
    whole.feed(given)
    first.feed(given[:30])
    second = Driver(cases()[name](), before=first)
    second.feed(given[30:])
    for topic in whole.produced_topic_names():
        assert [*first.output(topic), *second.output(topic)] == [*whole.output(topic)], topic
    assert first.dropped + second.dropped == whole.dropped


def test_operators_run_in_loops() -> None:
    """An operator that has no loop lines (docs/design/016-kernels.md) is called for each record: list it, with the reason. One that
    searches the times of a key (`index_by_key`) needs no line, nor one that reads rows (`get_raw`) and never a cache's slots: the call
    is a small part of its time."""
    found: dict[str, list[str]] = {}
    fused = set()
    for topology in filter(None, (build() for build in (examples() | more()).values())):
        for mode, cache in (("exact", 0), ("deployed", 10_000_000)):
            with TopologyTestDriver(topology, {**SETTINGS, "statestore.cache.max.bytes": cache}, mode=mode) as driver:  # type: ignore[arg-type]
                for name, entry in ({} if driver._task is None else driver._task.entries).items():
                    operator = getattr(topology.nodes[name], "operator", None)
                    if isinstance(operator, Operator):
                        module = inspect.getsource(sys.modules[type(operator).__module__])
                        reads = ".index_by_key()" in inspect.getsource(type(operator)) or "get_raw" in module and "cached" not in module
                        found.setdefault(type(operator).__name__, [] if reads else ["it has no loop lines (016-kernels, the rules)"])
                        inline = inline_of(entry)
                        fused |= {type(operator).__name__} if inline is not None and inline.node == name else set()
    kept({kind: [] if kind in fused else seen for kind, seen in found.items()}, NOT_FUSED)


DAY = 86_400_000
GRACE = 400 * DAY
ENDLESS = 10_000 * DAY
LATENESS = (0, 0, 0, 10_000, 3_600_000, 40 * DAY, 390 * DAY)
"""Of records that come late, within the grace."""


def late_rows(count: int) -> list[tuple[int, Any, int, int]]:
    chance = random.Random(11)
    return [
        (chance.randrange(4), chance.choice("ab"), chance.randrange(9), at - chance.choice(LATENESS))
        for at in range(1_000 * DAY, 1_000 * DAY + 4 * count, 4)
    ]


def test_a_store_keeps_what_a_record_within_the_grace_finds(monkeypatch: pytest.MonkeyPatch) -> None:
    """With a retention that reaches back as far as the windows but not as far as their grace, late records find nothing; a test driver in
    the mode "exact" and records in order do not show it. The same topology with stores that forget nothing is the truth.
    """
    for owner, method in _take_grace():
        monkeypatch.setattr(owner, method, _with_grace(owner, method))
    found: dict[str, list[str]] = {}
    compared: set[str] = set()
    for name, build in cases().items():
        with contextlib.suppress(TopologyError):  # an example whose own retention is shorter than this grace
            usual, endless = build(), build()
            stores = [(kind, store) for _, kind, store in stores_of(endless) if store.kind is not StoreKind.VERSIONED]  # the user's
            timed = [(kind, store) for kind, store in stores if store.retention_ms is not None]
            for _, store in timed:
                object.__setattr__(store, "retention_ms", ENDLESS)
            if timed and _forwarded(usual) != _forwarded(endless):
                found.setdefault(timed[0][0], []).append(name)
            compared |= {kind for kind, _ in timed}
    operator_modules = (importlib.import_module(name) for _, name, _ in pkgutil.walk_packages(operators.__path__, f"{operators.__name__}."))
    with_grace = {
        kind.__name__
        for module in operator_modules
        for kind in vars(module).values()
        if inspect.isclass(kind) and issubclass(kind, Operator) and any("grace" in field for field in inspect.signature(kind).parameters)
    }
    assert with_grace - compared == set(NOT_COMPARED), "an operator with a grace needs an example with a store that this test can compare"
    kept(found, {})


NOT_COMPARED: Exempt = {
    "StreamStreamSelfJoin": "its store is that of StreamJoinWindow",
    "StreamTableJoin": "the table's history is given by the user, and a longer grace is refused",
}


def _take_grace() -> list[tuple[Any, str]]:
    """Every public method of the DSL with an argument ``grace``, also of a class or an operator that is added tomorrow."""
    modules = [importlib.import_module(name) for _, name, _ in pkgutil.walk_packages(dsl.__path__, f"{dsl.__name__}.")]
    named = [kind for module in modules for kind in vars(module).values() if inspect.isclass(kind)]
    kinds = {kind for kind in named if kind.__module__.startswith(dsl.__name__)}
    methods = ((kind, name) for kind in kinds for name in vars(kind) if not name.startswith("_") and callable(getattr(kind, name)))
    return [(kind, name) for kind, name in methods if "grace" in inspect.signature(getattr(kind, name)).parameters]


def _with_grace(owner: Any, name: str) -> Any:
    """The method, with our grace where one is given or is the default."""
    made = vars(owner)[name]
    function = made.__func__ if isinstance(made, classmethod) else made
    signature = inspect.signature(function)

    def method(*args: Any, **more: Any) -> Any:
        bound = signature.bind(*args, **more)
        bound.apply_defaults()
        if bound.arguments["grace"] is not None:
            bound.arguments["grace"] = GRACE
        return function(*bound.args, **bound.kwargs)

    return classmethod(method) if isinstance(made, classmethod) else method


def _forwarded(topology: Any) -> list[Any]:
    """Return what the nodes forward to late records, from stores as they are when deployed."""
    with Driver(topology, mode="deployed") as driver:
        driver.feed(late_rows(60))
        return driver.values
