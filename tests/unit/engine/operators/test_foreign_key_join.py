"""Foreign-key joins through their own nodes and topics: which instructions leave, what is answered, what is stale."""

from __future__ import annotations

from typing import Any

import pytest

from kstreams_repl import serdes
from kstreams_repl.engine.operators.foreign_key.foreign_key_foreign_table_join import ForeignTableJoin
from kstreams_repl.engine.operators.foreign_key.foreign_key_response_join import ResponseJoin
from kstreams_repl.engine.operators.foreign_key.foreign_key_subscription_join import SubscriptionJoin
from kstreams_repl.engine.operators.foreign_key.foreign_key_subscription_receive import SubscriptionReceive
from kstreams_repl.engine.operators.foreign_key.foreign_key_subscription_send import SubscriptionSend
from kstreams_repl.engine.operators.tables.table_source import TableSource
from kstreams_repl.engine.operators.tables.value_getters import StoreGetter, StoreKindRead
from kstreams_repl.engine.serdes.foreign_key import (
    DELETE_KEY_AND_PROPAGATE,
    DELETE_KEY_NO_PROPAGATE,
    PROPAGATE_NULL_IF_NO_FK_VAL_AVAILABLE,
    PROPAGATE_ONLY_IF_FK_VAL_AVAILABLE,
    SubscriptionResponse,
    hash128,
    response_partitioner,
    subscription,
    subscription_response,
)
from kstreams_repl.engine.topology.store_builder import StoreBuilder, StoreKind
from tests.unit.engine.operators.harness import Bench


def foreign_key(row: Any) -> Any:
    """Rows are [foreign key, anything]."""
    return row[0]


class ForeignKeyBench(Bench):
    """Left table L, right table R, the join's result at the probe; `sent` is what went to the registration topic."""

    def __init__(self, *, left_join: bool, versioned: bool = False) -> None:
        super().__init__()
        self.sent: list[Any] = []
        kind = StoreKind.VERSIONED if versioned else StoreKind.TIMESTAMPED_KEY_VALUE
        for topic in ("L", "R"):
            name = self.store(f"{topic}-rows", kind, retention_ms=1000)
            self.node(f"{topic}-table", TableSource(name, send_old_values=True, versioned=versioned), self.source(topic), stores=[name])
        self.node("send", SubscriptionSend(foreign_key, left_join, versioned=versioned), "L-table")
        self.probe_named("sent", "send", self.sent)
        self.topology.add_sink("subscribe", "subscriptions", "send", value_serde=subscription())
        self.topology.add_source("subscriptions-in", "subscriptions", value_serde=subscription())
        self.topology.add_processor("receive", SubscriptionReceive("subscribers"), "subscriptions-in")
        self.topology.add_state_store(StoreBuilder("subscribers", StoreKind.SUBSCRIPTION, serdes.bytes_, subscription()), "receive")
        self.node("answer", SubscriptionJoin(_getter("R-rows", versioned)), "receive", stores=["R-rows"])
        self.node("changed", ForeignTableJoin("subscribers", versioned=versioned), "R-table", stores=["subscribers"])
        self.topology.add_sink(
            "respond", "responses", "answer", "changed", value_serde=subscription_response(), partitioner=response_partitioner
        )
        self.topology.add_source("responses-in", "responses", value_serde=subscription_response())
        join = ResponseJoin(_getter("L-rows", versioned), "({},{})".format, left_join)
        self.probe(self.node("join", join, "responses-in", stores=["L-rows"]))

    def instructions(self, key: Any, value: Any) -> list[tuple[Any, int]]:
        before = len(self.sent)
        self.pipe("L", key, value)
        return [(foreign, sent.instruction) for foreign, sent, _ in self.sent[before:]]

    def subscribers(self) -> list[str]:
        return [row[0].primary_key for _, row in self.driver.state_store("subscribers").all()]


def _getter(store: str, versioned: bool) -> StoreGetter:
    return StoreGetter(store, StoreKindRead.VERSIONED if versioned else StoreKindRead.KEY_VALUE)


def test_an_inner_join_s_instructions() -> None:
    bench = ForeignKeyBench(left_join=False)
    assert bench.instructions("a", None) == []
    assert bench.instructions("a", ["1", 0]) == [("1", PROPAGATE_ONLY_IF_FK_VAL_AVAILABLE)]
    assert bench.instructions("a", ["1", 1]) == [("1", PROPAGATE_ONLY_IF_FK_VAL_AVAILABLE)]
    assert bench.instructions("a", ["2", 1]) == [("1", DELETE_KEY_NO_PROPAGATE), ("2", PROPAGATE_NULL_IF_NO_FK_VAL_AVAILABLE)]
    assert bench.instructions("a", [None, 1]) == [("2", DELETE_KEY_AND_PROPAGATE)]
    assert bench.dropped() == 1
    assert bench.instructions("a", ["3", 1]) == [("3", PROPAGATE_ONLY_IF_FK_VAL_AVAILABLE)]
    assert bench.instructions("a", None) == [("3", DELETE_KEY_AND_PROPAGATE)]
    assert bench.subscribers() == []


def test_a_left_join_s_instructions() -> None:
    bench = ForeignKeyBench(left_join=True)
    ask = PROPAGATE_NULL_IF_NO_FK_VAL_AVAILABLE
    assert bench.instructions("a", None) == []
    assert bench.instructions("a", ["1", 0]) == [("1", ask)]
    assert bench.instructions("a", ["1", 1]) == [("1", ask)]
    assert bench.instructions("a", [None, 1]) == [("1", DELETE_KEY_NO_PROPAGATE), (None, ask)]
    assert bench.instructions("a", ["2", 1]) == [("2", ask)]
    assert bench.instructions("a", None) == [("2", DELETE_KEY_NO_PROPAGATE), (None, ask)]
    assert bench.subscribers() == [] and bench.dropped() == 0


@pytest.mark.parametrize(
    ("left_join", "expected"),
    [
        (False, [[], [("a", "([1, 0],x)", 5)], [("a", "([1, 1],x)", 6)], [("a", None, 7)], [("a", "([2, 1],y)", 8)], [("a", None, 9)]]),
        (
            True,
            [
                [("a", "([1, 0],None)", 1)],
                [("a", "([1, 0],x)", 5)],
                [("a", "([1, 1],x)", 6)],
                [("a", "([2, 1],None)", 7)],
                [("a", "([2, 1],y)", 8)],
                [("a", None, 9)],
            ],
        ),
    ],
)
def test_results_follow_both_sides(left_join: bool, expected: list[Any]) -> None:
    bench = ForeignKeyBench(left_join=left_join)
    script = (("L", "a", ["1", 0]), ("R", "1", "x"), ("L", "a", ["1", 1]), ("L", "a", ["2", 1]), ("R", "2", "y"), ("L", "a", None))
    times = (1, 5, 6, 7, 8, 9)
    got = [bench.pipe(topic, key, value, at) for (topic, key, value), at in zip(script, times, strict=True)]
    assert [[(k, v and v.replace("'", ""), t) for k, v, t in step] for step in got] == expected


def test_a_left_update_gives_the_later_time_and_a_right_update_its_own() -> None:
    bench = ForeignKeyBench(left_join=False)
    bench.pipe("R", "1", "x", 20)
    assert bench.pipe("L", "a", ["1", 0], 5)[0][2] == 20
    assert bench.pipe("R", "1", "y", 3)[0][2] == 3


def test_all_subscribers_of_a_key_and_no_other_are_told_in_key_order() -> None:
    bench = ForeignKeyBench(left_join=False)
    for key, foreign in (("b", "1"), ("a", "1"), ("c", "11"), ("d", "2")):
        bench.pipe("L", key, [foreign, 0])
    assert [key for key, _, _ in bench.pipe("R", "1", "x", 1)] == ["a", "b"]


def test_a_stale_response_is_dropped_and_counted() -> None:
    bench = ForeignKeyBench(left_join=False)
    bench.pipe("L", "a", ["1", 0])
    serde = subscription_response(serdes.json)
    stale = serde.serialize(SubscriptionResponse(hash128(b"something else"), "x", 0))
    bench.driver.pipe_bytes("responses", b"a", stale, 1)
    assert bench.seen == [] and bench.dropped() == 1
    bench.driver.pipe_bytes("responses", b"a", serde.serialize(SubscriptionResponse(hash128(b'["1",0]'), "x", 0)), 1)
    assert [value for _, value, _ in bench.seen] == ["(['1', 0],x)"]


def test_out_of_order_rows_of_versioned_tables_change_nothing_and_are_counted() -> None:
    bench = ForeignKeyBench(left_join=False, versioned=True)
    bench.pipe("L", "a", ["1", 0], 10)
    assert len(bench.pipe("R", "1", "x", 10)) == 1
    assert bench.pipe("L", "a", ["2", 0], 5) == [] and bench.pipe("R", "1", "old", 5) == []
    assert bench.dropped() == 2
