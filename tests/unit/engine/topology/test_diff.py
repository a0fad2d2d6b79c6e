"""The plan of an edit: what happens to nodes, stores and topics."""

from __future__ import annotations

import functools
import operator
import re
import sys
from collections import deque
from collections.abc import Callable
from datetime import datetime
from pathlib import Path
from typing import Any

import pandas
import pytest

from kstreams_repl import serdes
from kstreams_repl.engine.dsl import EmitStrategy, SessionWindows, StreamsBuilder, TimeWindows
from kstreams_repl.engine.dsl.options import Materialized
from kstreams_repl.engine.processor import Processor
from kstreams_repl.engine.topology import StoreBuilder, StoreKind, Topology
from kstreams_repl.engine.topology.differences.diff import StoreChange, TopologyDiff, diff
from kstreams_repl.engine.topology.differences.fingerprint import fingerprint, whole_fingerprint
from kstreams_repl.engine.topology.differences.node_diff import NodeChange, whole_code


def counting(
    mapper: Callable[[Any], Any] = str.upper, window: Any = None, filtered: bool = False, sink: str = "out", **keep: Any
) -> Topology:
    builder = StreamsBuilder()
    stream = builder.stream("in", value_serde="string").map_values(mapper, name="map")
    if filtered:
        stream = stream.filter(lambda k, v: bool(v), name="keep")
    grouped: Any = stream.group_by_key()
    if window is not None:
        grouped = grouped.windowed_by(window)
    grouped.count(store="counts", name="count", **keep).to_stream(name="stream").to(sink, name="sink")
    return builder.build()


def changes(plan: TopologyDiff) -> dict[str, NodeChange]:
    return {node.name: node.change for node in plan.nodes if node.change is not NodeChange.UNCHANGED}


def only_store(plan: TopologyDiff) -> Any:
    (store,) = plan.stores
    return store


def make_adder(amount: int) -> Callable[[int], int]:
    return lambda value: value + amount


def test_the_same_topology_written_twice_changes_nothing() -> None:
    plan = diff(counting(lambda v: v + "!"), counting(lambda v: v + "!"))
    assert plan.empty and plan.code_only and not plan.refused


def test_a_changed_function_is_code_only_and_keeps_the_store() -> None:
    plan = diff(counting(lambda v: v + "!"), counting(lambda v: v + "?"))
    assert changes(plan) == {"map": NodeChange.CODE}
    assert plan.code_only and not plan.empty
    assert only_store(plan).change is StoreChange.KEPT


def test_a_changed_value_in_a_closure_is_a_changed_function() -> None:
    assert changes(diff(counting(make_adder(1)), counting(make_adder(2)))) == {"map": NodeChange.CODE}
    assert diff(counting(make_adder(1)), counting(make_adder(1))).empty


def test_an_inserted_node_is_new_and_the_one_behind_it_moves() -> None:
    plan = diff(counting(), counting(filtered=True))
    assert changes(plan) == {"keep": NodeChange.NEW, "count": NodeChange.MOVED}
    assert only_store(plan).change is StoreChange.KEPT
    assert not plan.code_only


def test_a_removed_node_is_shown() -> None:
    assert changes(diff(counting(filtered=True), counting()))["keep"] is NodeChange.REMOVED


def test_another_topic_behind_a_sink_is_a_change() -> None:
    plan = diff(counting(), counting(sink="elsewhere"))
    assert changes(plan) == {"sink": NodeChange.MOVED}
    assert "elsewhere" in str(plan)


def test_a_changed_value_serde_refuses_the_store_with_ways_out() -> None:
    plan = diff(counting(), counting(value_serde=serdes.integer))
    (refused,) = plan.refused
    assert "value serde was long, would be integer" in refused.reason
    assert "reset the store" in refused.hint and "Hint:" in str(plan)


def test_a_changed_key_serde_refuses_the_store() -> None:
    assert diff(counting(), counting(key_serde="long")).refused


def test_a_changed_window_size_refuses_the_store() -> None:
    plan = diff(counting(window=TimeWindows.of_size(10)), counting(window=TimeWindows.of_size(20)))
    assert "window size was 10, would be 20" in plan.refused[0].reason


def test_another_hop_refuses_the_store() -> None:
    plan = diff(counting(window=TimeWindows.of_size(10)), counting(window=TimeWindows.of_size(10, advance=5)))
    assert "advance_ms" in plan.refused[0].reason


def test_another_session_gap_refuses_the_store() -> None:
    plan = diff(counting(window=SessionWindows.of_inactivity_gap(10)), counting(window=SessionWindows.of_inactivity_gap(11)))
    assert "gap_ms" in plan.refused[0].reason


def test_longer_grace_keeps_the_rows() -> None:
    plan = diff(counting(window=TimeWindows.of_size(10)), counting(window=TimeWindows.of_size(10, grace=100)))
    assert only_store(plan).change is StoreChange.MIGRATED
    assert not plan.refused


def test_another_kind_of_store_is_refused() -> None:
    assert diff(counting(), counting(window=TimeWindows.of_size(10))).refused
    assert diff(counting(), counting(history=1000)).refused


def test_emitting_at_close_keeps_rows_in_another_layout_and_is_refused() -> None:
    def windowed(strategy: EmitStrategy) -> Topology:
        builder = StreamsBuilder()
        windows = builder.stream("in").group_by_key().windowed_by(TimeWindows.of_size(10))
        windows.emit_strategy(strategy).count(store="counts").to_stream().to("out")
        return builder.build()

    assert diff(windowed(EmitStrategy.ON_WINDOW_UPDATE), windowed(EmitStrategy.ON_WINDOW_CLOSE)).refused


@pytest.mark.parametrize("keep", [{"caching": False}, {"logging": False}, {"persistent": False}])
def test_other_surroundings_migrate_the_store(keep: dict[str, Any]) -> None:
    assert only_store(diff(counting(), counting(**keep))).change is StoreChange.MIGRATED


def test_a_changelog_that_would_begin_without_the_rows_there_are_is_refused() -> None:
    """They stayed where they were, and went with the first restore: on another executor the counts began anew."""
    found = only_store(diff(counting(logging=False), counting()))
    assert found.change is StoreChange.REFUSED and "in no changelog" in found.reason and found.hint == "give it a new name"
    assert only_store(diff(counting(logging=False, persistent=False), counting(persistent=False))).change is StoreChange.MIGRATED


def test_new_and_removed_stores_are_shown() -> None:
    empty = StreamsBuilder().build()
    assert only_store(diff(empty, counting())).change is StoreChange.NEW
    assert only_store(diff(counting(), empty)).change is StoreChange.REMOVED


def test_topics_that_are_read_from_now_on_or_no_longer_are_shown() -> None:
    old, new = Topology().add_source("a", "one"), Topology().add_source("a", "two")
    plan = diff(old, new)
    assert (plan.topics_added, plan.topics_removed) == (("two",), ("one",))
    assert changes(plan) == {"a": NodeChange.MOVED}


def test_a_store_that_moves_to_another_sub_topology_is_shown() -> None:
    def topology(first: bool) -> Topology:
        built = Topology()
        if first:
            built.add_source("extra", "x").add_sink("copy", "y", "extra")
        return built.add_source("in", "t").add_processor("p", Processor, "in").add_state_store(STORE, "p")

    assert diff(topology(False), topology(True)).subtopologies_changed == {"s": (0, 1)}


STORE = StoreBuilder("s", StoreKind.KEY_VALUE)


def test_a_user_s_processor_class_is_code() -> None:
    def topology(text: str) -> Topology:
        class Work(Processor):
            def process(self, record: Any) -> None:
                self.context.forward(record.with_value(text))

        return Topology().add_source("in", "t").add_processor("p", Work, "in")

    assert changes(diff(topology("a"), topology("b"))) == {"p": NodeChange.CODE}
    assert diff(topology("a"), topology("a")).empty


def test_another_branch_is_a_change_of_structure() -> None:
    def split(*names: str) -> Topology:
        builder = StreamsBuilder()
        splitter = builder.stream("in").split(name="split")
        for name in names:
            splitter.branch(lambda k, v: True, name=name)
        splitter.no_default_branch()
        return builder.build()

    assert changes(diff(split("-a"), split("-a", "-b"))) == {"split": NodeChange.MOVED, "split-b": NodeChange.NEW}


def test_fingerprints_tell_functions_apart_by_what_they_do() -> None:
    def with_default(value: int, by: int = 1) -> int:
        return value + by

    def with_other_default(value: int, by: int = 2) -> int:
        return value + by

    assert fingerprint(lambda v: v + 1) == fingerprint(lambda v: v + 1)
    assert fingerprint(lambda v: v + 1) != fingerprint(lambda v: v + 2)
    assert fingerprint(lambda v: v.a) != fingerprint(lambda v: v.b)
    assert fingerprint(with_default)[3] != fingerprint(with_other_default)[3]
    assert fingerprint(str.upper) != fingerprint(str.lower)
    assert fingerprint(len) == fingerprint(len)


def test_a_store_that_is_reset_is_not_refused_and_the_plan_says_that_its_rows_go() -> None:
    plan = diff(counting(), counting(value_serde=serdes.integer), reset=["counts"])
    assert not plan.refused and plan.reset == ("counts",) and not plan.empty
    assert "its rows are deleted: its value serde was long, would be integer" in str(plan)


def test_a_store_that_would_be_kept_can_be_reset() -> None:
    assert diff(counting(), counting(), reset=["counts"]).reset == ("counts",)
    assert diff(counting(), counting()).reset == ()


def test_a_store_without_a_changelog_cannot_be_reset_and_reset_is_no_way_out() -> None:
    plan = diff(counting(logging=False), counting(logging=False, value_serde=serdes.integer))
    assert plan.refused[0].hint == "give it a new name"
    plan = diff(counting(logging=False), counting(logging=False), reset=["counts"])
    assert plan.refused[0].reason == "it has no changelog, so it cannot be reset"


def test_a_store_beside_one_without_a_changelog_cannot_be_reset() -> None:
    def two() -> Topology:
        builder = StreamsBuilder()
        stream = builder.stream("in", value_serde="string")
        stream.group_by_key().count(store="counts")
        stream.group_by_key().count(store="unlogged", logging=False)
        return builder.build()

    (refused,) = diff(two(), two(), reset=["counts"]).refused
    assert refused.reason == "store unlogged of the same sub-topology has no changelog and would be emptied, too"


def test_a_table_of_a_topic_has_no_rows_of_its_own_to_reset() -> None:
    builder = StreamsBuilder()
    builder.table("rows", store="rows-store")
    topology = builder.build({"topology.optimization": "all"})
    (refused,) = diff(topology, topology, reset=["rows-store"]).refused
    assert "filled from topic rows" in refused.reason


def test_a_new_store_is_compared_with_what_an_earlier_version_left_under_its_name() -> None:
    builder = StreamsBuilder()
    builder.stream("in", value_serde="string").to("out")
    bare, left = builder.build(), {"counts": counting()}
    assert only_store(diff(bare, counting())).reason == ""
    taken_up = only_store(diff(bare, counting(), left=left.get))
    assert taken_up.change is StoreChange.NEW and "an earlier version left" in taken_up.reason
    (refused,) = diff(bare, counting(value_serde=serdes.integer), left=left.get).refused
    assert refused.reason == "an earlier version left rows: its value serde was long, would be integer"
    assert "reset_state=['counts']" in refused.hint
    assert diff(bare, counting(value_serde=serdes.integer), left=left.get, reset=["counts"]).reset == ("counts",)


def totals(value_serde: str, *, store: str = "totals", **keep: Any) -> Topology:
    builder = StreamsBuilder()
    grouped: Any = builder.stream("in", key_serde="string", value_serde="string").group_by_key()
    grouped.count(store=store, name="count", value_serde=value_serde, **keep)
    return builder.build()


def test_another_value_serde_can_be_migrated_and_the_refusal_says_so() -> None:
    refused = only_store(diff(totals("long"), totals("integer")))
    assert refused.change is StoreChange.REFUSED and refused.hint.startswith("convert its values (migrate={'totals': function")
    plan = diff(totals("long"), totals("integer"), migrate=["totals"])
    assert plan.rewritten == ("totals",) and not plan.refused and not plan.empty
    assert "its value serde was long, is integer" in only_store(plan).reason


def test_another_shape_under_the_same_serde_can_be_migrated() -> None:
    plan = diff(totals("long"), totals("long"), migrate=["totals"])
    assert only_store(plan).change is StoreChange.MIGRATED and plan.rewritten == ("totals",) and not plan.empty


@pytest.mark.parametrize("windows", [TimeWindows.of_size(1000, grace=0), SessionWindows.of_inactivity_gap(1000, grace=0)])
@pytest.mark.parametrize("strategy", [EmitStrategy.ON_WINDOW_UPDATE, EmitStrategy.ON_WINDOW_CLOSE])
def test_values_of_windows_and_sessions_can_be_migrated_and_their_keys_cannot(windows: Any, strategy: Any) -> None:
    old, new = windowed(windows, strategy, "long"), windowed(windows, strategy, "integer")
    assert "migrate={'totals'" in only_store(diff(old, new)).hint
    plan = diff(old, new, migrate=["totals"])
    assert plan.rewritten == ("totals",) and not plan.refused
    refused = only_store(diff(old, new, migrate_rows=["totals"]))
    assert refused.change is StoreChange.REFUSED and "carry its windows" in refused.reason
    assert refused.hint == "convert its values (migrate={'totals': function of key and value}), " + reset_or_rename("totals")


def test_another_window_size_is_refused_also_with_a_function() -> None:
    sizes = [windowed(TimeWindows.of_size(size, grace=0), EmitStrategy.ON_WINDOW_UPDATE, "long") for size in (1000, 2000)]
    refused = only_store(diff(*sizes, migrate=["totals"]))
    assert refused.change is StoreChange.REFUSED and refused.reason.startswith(
        "only values are migrated, and its window size was 1000"
    )
    assert refused.hint == reset_or_rename("totals")


def test_another_key_serde_can_be_migrated_with_the_values_and_the_refusal_says_so() -> None:
    old, new = totals("long"), totals("integer", key_serde="json")
    refused = only_store(diff(old, new))
    assert refused.change is StoreChange.REFUSED
    assert refused.hint.startswith("convert its rows (migrate_rows={'totals': function of key and value that gives both})")
    assert "migrate_rows=" in only_store(diff(old, new, migrate=["totals"])).hint, "values alone are not enough"
    plan = diff(old, new, migrate_rows=["totals"])
    assert plan.rewritten == ("totals",) and not plan.refused
    assert only_store(plan).reason.endswith("its key serde was string, is json, its value serde was long, is integer")


@pytest.mark.parametrize(
    ("store", "because"),
    [
        (StoreBuilder("s", StoreKind.VERSIONED, retention_ms=1000), "a history of each key"),
        (StoreBuilder("s", StoreKind.LRU, max_entries=5), "in the order of its changelog"),
        (StoreBuilder("s", StoreKind.OUTER_JOIN), "private to the operator"),
        (StoreBuilder("s", StoreKind.WINDOW, retain_duplicates=True, window_size_ms=5), "private to the join"),
    ],
)
def test_rows_that_no_function_can_convert_are_refused_with_the_reason_and_the_ways_out(
    store: StoreBuilder, because: str
) -> None:
    def topology() -> Topology:
        return Topology().add_source("in", "t").add_processor("p", Processor, "in").add_state_store(store, "p")

    for how in ({"migrate": ["s"]}, {"migrate_rows": ["s"]}):
        refused = only_store(diff(topology(), topology(), **how))  # type: ignore[arg-type]
        assert refused.change is StoreChange.REFUSED and because in refused.reason and refused.hint == reset_or_rename("s")


def reset_or_rename(store: str) -> str:
    return f"reset the store (reset_state=['{store}']; its rows are deleted), or give it a new name"


def windowed(windows: Any, strategy: Any, value_serde: str) -> Topology:
    builder = StreamsBuilder()
    grouped: Any = builder.stream("in", key_serde="string", value_serde="string").group_by_key().windowed_by(windows)
    grouped.emit_strategy(strategy).count(store="totals", name="count", value_serde=value_serde)
    return builder.build()


def test_a_store_without_a_changelog_is_not_migrated() -> None:
    plan = diff(totals("long", logging=False), totals("integer", logging=False), migrate=["totals"])
    assert only_store(plan).change is StoreChange.REFUSED and "its own changelog" in only_store(plan).reason


def test_a_store_that_comes_or_goes_is_not_migrated() -> None:
    plan = diff(totals("long"), totals("long", store="others"), migrate=["others"])
    assert {store.name: store.change for store in plan.stores} == {"others": StoreChange.REFUSED, "totals": StoreChange.REMOVED}


class _Getter:
    __slots__ = ("field",)

    def __init__(self, field: str) -> None:
        self.field = field

    def __call__(self, value: Any) -> Any:
        return value[self.field]


class _Inner:
    def step(self) -> int:
        return 1


def _class(codes: frozenset[str] = frozenset(), base: type = object, static: int = 1) -> type:
    return type(
        "Made", (base,), {"CODES": codes, "static": staticmethod((lambda: 1) if static == 1 else (lambda: 2))}
    )


def _in(codes: Any) -> Any:
    return lambda value: value in codes


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (lambda v: v in {"EWR", "JFK"}, lambda v: v in {"EWR", "LGA"}),
        (lambda v: v * 2, lambda v: v * 2.0),
        (lambda v: v or 0, lambda v: v or False),
        (lambda v: [[[w for w in x if w in {1}] for x in y] for y in v], lambda v: [[[w for w in x if w in {2}] for x in y] for y in v]),
        (functools.partial(int, base=2), functools.partial(int, base=8)),
        (operator.itemgetter("carrier"), operator.itemgetter("origin")),
        (re.compile("a").search, re.compile("b").search),
        ({"UA": "United"}.get, {"UA": "American"}.get),
        (_in({"UA"}), _in({"AA"})),
        (_in(deque(["UA"])), _in(deque(["AA"]))),
        (_in(datetime(2013, 1, 1)), _in(datetime(2014, 1, 1))),
        (_in({1: "a"}), _in({"1": "a"})),
        (_in(pandas.DataFrame({"a": [1, 2]})), _in(pandas.DataFrame({"a": [1, 3]}))),
        (_Getter("carrier"), _Getter("origin")),
        (_class(frozenset({"a"})), _class(frozenset({"b"}))),
        (_class(static=1), _class(static=2)),
        (_class(base=_Inner), _class(base=type("_Inner", (), {"step": lambda self: 2}))),
    ],
)  # fmt: skip
def test_what_does_something_else_has_another_fingerprint(one: Any, other: Any) -> None:
    """Each of these was taken for unchanged: an edit had nothing to do, and the old function went on."""
    assert fingerprint(one) != fingerprint(other)
    assert fingerprint(one) == fingerprint(one)


def test_a_cell_that_runs_again_has_the_same_fingerprint() -> None:
    cell = """
import functools, operator, pandas, re
from dataclasses import dataclass
from enum import Enum
class Kind(Enum):
    A, B = 1, 2
@dataclass
class Limits:
    codes: tuple = ("a", "b")
    kind: Kind = Kind.A
class Loop:
    def __init__(self): self.me = self
NAN = float("nan")
def make(*held): return lambda key, value: (value in {"a", "b"}, held, 0.5, NAN)
held = Limits(), {"x": {1, 2}}, [re.compile("a")], Loop(), float("nan"), pandas.DataFrame({"a": [1, 2], "b": ["x", "y"]})
found = [make(*held), functools.partial(make, 1), operator.itemgetter("a"), Limits]
"""
    spaces: list[dict[str, Any]] = [{"__name__": "__main__"}, {"__name__": "__main__"}]
    for space in spaces:
        exec(cell, space)
    for one, other in zip(*(space["found"] for space in spaces), strict=True):
        assert fingerprint(one) == fingerprint(other)
        assert whole_fingerprint(one) == whole_fingerprint(other)


def test_what_a_function_reads_from_its_module_is_compared_with_what_it_was() -> None:
    space: dict[str, Any] = {"__name__": "__main__", "StreamsBuilder": StreamsBuilder}
    exec(
        "LIMIT = 3\ndef large(value): return value > LIMIT\nbuilder = StreamsBuilder()\n"
        "builder.stream('in').filter(lambda key, value: large(value), name='kept').map_values(lambda value: value, name='same')\n"
        "topology = builder.build()",
        space,
    )
    topology = space["topology"]
    ran = whole_code(topology)
    assert diff(topology, topology, ran=ran).empty
    exec("LIMIT = 4", space)
    plan = diff(topology, topology, ran=ran)
    assert changes(plan) == {"kept": NodeChange.CODE} and "it uses has changed" in str(plan)
    exec("LIMIT = 3\ndef large(value): return value >= LIMIT", space)
    assert changes(diff(topology, topology, ran=ran)) == {"kept": NodeChange.CODE}
    exec("def large(value): return value > LIMIT", space)
    assert diff(topology, topology, ran=ran).empty


@pytest.mark.parametrize(
    "how",
    [
        "import helpers_of_test as h\ncall = h.shout",
        "import helpers_of_test as h\ndef call(value): return h.shout(value)",
        "from helpers_of_test import shout\ndef call(value): return shout(value)",
        "def make():\n    import helpers_of_test as h\n    return lambda value: h.shout(value)\ncall = make()",
    ],
)
def test_a_function_of_a_module_that_was_reloaded_is_another_one(
    how: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`helpers.shout(value)` was compared by the module's name alone: an edit after `%autoreload` said that nothing had changed."""
    (tmp_path / "helpers_of_test.py").write_text("def shout(value): return value.upper()\ndef other(value): return value\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    sys.modules.pop("helpers_of_test", None)
    space: dict[str, Any] = {"__name__": "__main__", "StreamsBuilder": StreamsBuilder}
    exec(f"{how}\nbuilder = StreamsBuilder()\nbuilder.stream('in').map_values(call, name='shout')\ntopology = builder.build()", space)
    module, topology = sys.modules["helpers_of_test"], space["topology"]
    ran = whole_code(topology)
    module.other.__code__ = (lambda value: [value]).__code__
    assert diff(topology, topology, ran=ran).empty, "nobody calls it"
    module.shout.__code__ = (lambda value: value.lower()).__code__  # what autoreload does
    assert changes(diff(topology, topology, ran=ran)) == {"shout": NodeChange.CODE}


def test_a_store_that_begins_to_keep_headers_keeps_its_rows() -> None:
    def counting_with(headers: bool | None) -> Topology:
        builder = StreamsBuilder()
        builder.stream("in").group_by_key().count(store=Materialized("counts", headers=headers))
        return builder.build()

    for before, after in ((None, True), (True, False)):
        found = only_store(diff(counting_with(before), counting_with(after)))
        assert found.change is StoreChange.MIGRATED and found.reason == "other headers; its rows are kept"
    assert only_store(diff(counting_with(True), counting_with(True))).change is StoreChange.KEPT
