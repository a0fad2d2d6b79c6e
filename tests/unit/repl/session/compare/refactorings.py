"""Changes of code that change nothing: each function builds the topology before, or with `after` the one after the change."""

from __future__ import annotations

import operator
from collections.abc import Callable
from functools import partial
from typing import Any

import kstreams_repl as ks
from kstreams_repl.engine.topology.topology import Topology
from tests.unit.repl.session.compare.mistakes import Build, by_customer, orders
from tests.unit.repl.session.compare.shop import CONFIG

REFACTORINGS: dict[str, Build] = {}
VAT = 5


def refactoring(make: Callable[[ks.StreamsBuilder, bool], None]) -> Build:
    """Add a change to the list."""

    def build(after: bool) -> Topology:
        builder = ks.StreamsBuilder()
        make(builder, after)
        return builder.build(CONFIG)

    REFACTORINGS[make.__name__] = build
    return build


def vat(order: dict[str, Any]) -> float:
    return float(order["amount"] / VAT)


def value_added_tax(order: dict[str, Any]) -> float:
    return float(order["amount"] / 5)


@refactoring
def renamed_function(builder: ks.StreamsBuilder, after: bool) -> None:
    orders(builder).map_values(value_added_tax if after else vat, name="vat").to("out", name="sink")


@refactoring
def comprehension_for_a_loop(builder: ks.StreamsBuilder, after: bool) -> None:
    def doubled(order: dict[str, Any]) -> list[int]:
        if after:
            return [2 * tag for tag in order["tags"]]
        found = []
        for tag in order["tags"]:
            found.append(2 * tag)
        return found

    orders(builder).flat_map_values(doubled, name="doubled").to("out", name="sink")


@refactoring
def branches_declared_in_another_order(builder: ks.StreamsBuilder, after: bool) -> None:
    stream = orders(builder)

    def paid() -> None:
        stream.filter(lambda key, order: order["status"] == "paid", name="paid").to("paid-out", name="paid-sink")

    def counted() -> None:
        by_customer(stream).group_by_key().count(store="counts", name="count").to_stream(name="changes").to("out", name="sink")

    for declare in (counted, paid) if after else (paid, counted):
        declare()


@refactoring
def one_step_split_in_two(builder: ks.StreamsBuilder, after: bool) -> None:
    stream = orders(builder)
    if after:
        stream = stream.map_values(lambda order: order["amount"], name="amount").map_values(
            lambda amount: amount * 2, name="double"
        )
    else:
        stream = stream.map_values(lambda order: order["amount"] * 2, name="double")
    stream.to("out", name="sink")


@refactoring
def function_for_a_lambda(builder: ks.StreamsBuilder, after: bool) -> None:
    add: Any = partial(operator.add) if after else (lambda one, other: one + other)
    amounts = by_customer(orders(builder)).map_values(lambda order: order["amount"], name="amount")
    amounts.group_by_key().reduce(add, store="totals", name="total").to_stream(name="changes").to("out", name="sink")


@refactoring
def two_filters_for_one(builder: ks.StreamsBuilder, after: bool) -> None:
    stream = orders(builder)
    if after:
        stream = stream.filter(lambda key, order: order["amount"] > 3, name="large")
        stream = stream.filter_not(lambda key, order: order["status"] is None, name="known")
    else:
        stream = stream.filter(lambda key, order: order["amount"] > 3 and order["status"] is not None, name="known")
    stream.to("out", name="sink")


@refactoring
def aggregate_for_reduce(builder: ks.StreamsBuilder, after: bool) -> None:
    grouped = by_customer(orders(builder)).map_values(lambda order: order["amount"], name="amount").group_by_key()
    if after:
        table = grouped.aggregate(
            lambda: None, lambda key, new, most: new if most is None else max(new, most), store="most", name="most"
        )
    else:
        table = grouped.reduce(max, store="most", name="most")
    table.to_stream(name="changes").to("out", name="sink")


@refactoring
def processor_for_an_operator(builder: ks.StreamsBuilder, after: bool) -> None:
    class Twice(ks.Processor):
        def process(self, record: ks.Record) -> None:
            self.context.forward(record.with_value(record.value["amount"] * 2))

    stream = orders(builder)
    stream = stream.process(Twice, name="twice") if after else stream.map_values(lambda order: order["amount"] * 2, name="twice")
    stream.to("out", name="sink")


@refactoring
def lookup_in_a_helper_class(builder: ks.StreamsBuilder, after: bool) -> None:
    class Price:
        def __init__(self, amount: int) -> None:
            self.amount = amount

        def net(self) -> float:
            return self.amount * 0.8

    net = (lambda order: Price(order["amount"]).net()) if after else (lambda order: order["amount"] * 0.8)
    customers = builder.table("customers", store="customers", name="customers")
    stream = by_customer(orders(builder)).map_values(net, name="net")
    stream.left_join(customers, lambda price, row: [price, row and row["city"]], name="joined").to("out", name="sink")


@refactoring
def values_of_a_class_between_nodes(builder: ks.StreamsBuilder, after: bool) -> None:
    class Price:  # another class in each topology, as when its cell is run again
        def __init__(self, amount: int) -> None:
            self.amount = amount

    stream = orders(builder).map_values(lambda order: Price(order["amount"]), name="price")
    stream.map_values(lambda price: price.amount + (0 if after else 0), name="amount").to("out", name="sink")


@refactoring
def windows_with_a_table_without_a_cache(builder: ks.StreamsBuilder, after: bool) -> None:
    windows = ks.TimeWindows.of_size("10 s", grace="20 s")
    counts = (
        by_customer(orders(builder)).group_by_key().windowed_by(windows).count(store="counts", name="count", caching=not after)
    )
    counts.to_stream(lambda key, count: key.key, name="changes").to("out", name="sink")


@refactoring
def repartition_written_out(builder: ks.StreamsBuilder, after: bool) -> None:
    stream = by_customer(orders(builder))
    stream = stream.repartition(name="by-customer-topic") if after else stream
    stream.group_by_key().count(store="counts", name="count").to_stream(name="changes").to("out", name="sink")
