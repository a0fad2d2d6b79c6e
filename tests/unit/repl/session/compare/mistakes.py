"""Seeded mistakes: each function builds the right topology, or with `wrong` the one with the mistake; its name says which."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import kstreams_repl as ks
from kstreams_repl.engine.topology.topology import Topology
from tests.unit.repl.session.compare.shop import CONFIG

Build = Callable[[bool], Topology]
MISTAKES: dict[str, tuple[Build, str]] = {}
"""By name: what builds it, and the node at which the sides begin to differ."""


def first(node: str) -> Callable[[Callable[[ks.StreamsBuilder, bool], None]], Build]:
    """Add a mistake to the list, with the node that has it."""

    def add(make: Callable[[ks.StreamsBuilder, bool], None]) -> Build:
        def build(wrong: bool) -> Topology:
            builder = ks.StreamsBuilder()
            make(builder, wrong)
            return builder.build(CONFIG)

        MISTAKES[make.__name__] = build, node
        return build

    return add


def orders(builder: ks.StreamsBuilder, **options: Any) -> ks.KStream:
    return builder.stream("orders", name="orders", **options)


def by_customer(stream: ks.KStream) -> ks.KStream:
    return stream.select_key(lambda key, order: order["customer"], name="by-customer")


def total(aggregate: int, order: dict[str, int]) -> int:
    return aggregate + order["amount"]


@first("large")
def wrong_bound(builder: ks.StreamsBuilder, wrong: bool) -> None:
    bound = 11 if wrong else 10
    orders(builder).filter(lambda key, order: order["amount"] >= bound, name="large").to("out", name="sink")


@first("large")
def less_for_less_or_equal(builder: ks.StreamsBuilder, wrong: bool) -> None:
    keep = (lambda key, order: order["amount"] < 10) if wrong else (lambda key, order: order["amount"] <= 10)
    large = orders(builder).filter(keep, name="large")
    by_customer(large).group_by_key().count(store="counts", name="count").to_stream(name="changes").to("out", name="sink")


@first("paid")
def forgotten_filter(builder: ks.StreamsBuilder, wrong: bool) -> None:
    stream = orders(builder).map_values(lambda order: {**order, "vat": order["amount"] / 5}, name="vat")
    if not wrong:
        stream = stream.filter(lambda key, order: order["status"] == "paid", name="paid")
    stream.map_values(lambda order: order["vat"], name="only-vat").to("out", name="sink")


@first("city")
def lost_null(builder: ks.StreamsBuilder, wrong: bool) -> None:
    city = (lambda row: row["city"] or "") if wrong else (lambda row: row["city"])
    cities = builder.table("customers", store="customers", name="customers").map_values(city, name="city")
    cities.to_stream(name="changes").to("out", name="sink")


@first("count")
def wrong_window_size(builder: ks.StreamsBuilder, wrong: bool) -> None:
    windows = ks.TimeWindows.of_size("12 s" if wrong else "10 s", grace="20 s")
    counts = by_customer(orders(builder)).group_by_key().windowed_by(windows).count(store="counts", name="count")
    counts.to_stream(lambda key, count: key.key, name="changes").to("out", name="sink")


@first("count")
def lost_grace(builder: ks.StreamsBuilder, wrong: bool) -> None:
    windows = ks.TimeWindows.of_size("5 s", grace=0 if wrong else "20 s")
    counts = by_customer(orders(builder)).group_by_key().windowed_by(windows).count(store="counts", name="count")
    counts.to_stream(lambda key, count: key.key, name="changes").to("out", name="sink")


@first("by-customer")
def wrong_key(builder: ks.StreamsBuilder, wrong: bool) -> None:
    field = "id" if wrong else "customer"
    stream = orders(builder).select_key(lambda key, order: order[field], name="by-customer")
    stream.group_by_key().count(store="counts", name="count").to_stream(name="changes").to("out", name="sink")


@first("total")
def off_by_one(builder: ks.StreamsBuilder, wrong: bool) -> None:
    one = 1 if wrong else 0
    grouped = by_customer(orders(builder)).group_by_key()
    grouped.aggregate(lambda: 0, lambda key, order, total: total + order["amount"] + one, store="totals", name="total")


@first("total")
def wrong_default(builder: ks.StreamsBuilder, wrong: bool) -> None:
    grouped = by_customer(orders(builder)).group_by_key()
    table = grouped.aggregate(lambda: int(wrong), lambda key, order, total: total + order["amount"], store="totals", name="total")
    table.to_stream(name="changes").to("out", name="sink")


@first("joined-this-join")
def inner_for_left_join(builder: ks.StreamsBuilder, wrong: bool) -> None:
    left, right = orders(builder), builder.stream("payments", name="payments")
    windows = ks.JoinWindows.of_time_difference("5 s", grace="10 s")
    join = left.join if wrong else left.left_join
    join(right, lambda order, payment: [order["amount"], payment and payment["sum"]], windows, name="joined").to(
        "out", name="sink"
    )


@first("with-city")
def wrong_side_of_a_join(builder: ks.StreamsBuilder, wrong: bool) -> None:
    customers = builder.table("customers", store="customers", name="customers")
    joiner = (lambda order, row: {**order, **row}) if wrong else (lambda order, row: {**row, **order})
    with_orders = orders(builder).map_values(lambda order: {**order, "orders": 1}, name="one")
    by_customer(with_orders).join(customers, joiner, name="with-city").to("out", name="sink")


@first("by-city")
def missing_retraction(builder: ks.StreamsBuilder, wrong: bool) -> None:
    customers = builder.table("customers", store="customers", name="customers")
    remove = (lambda key, row, total: total) if wrong else (lambda key, row, total: total - row["orders"])
    grouped = customers.group_by(lambda key, row: (row["city"] or "?", row), name="city")
    grouped.aggregate(lambda: 0, lambda key, row, total: total + row["orders"], remove, store="by-city", name="by-city")


@first("sink")
def wrong_serde(builder: ks.StreamsBuilder, wrong: bool) -> None:
    amounts = orders(builder).map_values(lambda order: order["amount"], name="amount")
    amounts.to("out", value_serde="integer" if wrong else "long", name="sink")


@first("orders")
def wrong_field_in_a_serde(builder: ks.StreamsBuilder, wrong: bool) -> None:
    field = "amount" if wrong else "net"

    def read(data: bytes) -> Any:
        import orjson

        return orjson.loads(data)[field]

    serde = ks.serdes.Serde(lambda value: b"%d" % value, read, name="amount")
    orders(builder, value_serde=serde).filter(lambda key, amount: amount > 5, name="large").to(
        "out", value_serde="long", name="sink"
    )


@first("merged")
def wrong_branch_merged(builder: ks.StreamsBuilder, wrong: bool) -> None:
    stream = orders(builder)
    new = stream.filter(lambda key, order: order["status"] == "new", name="new")
    paid = stream.filter(lambda key, order: order["status"] == "paid", name="paid")
    cheap = stream.filter(lambda key, order: order["amount"] < 5, name="cheap")
    new.merge(cheap if wrong else paid, name="merged").to("out", name="sink")
    paid.to("paid-out", name="paid-sink")
    cheap.to("cheap-out", name="cheap-sink")


@first("keep-trace")
def dropped_header(builder: ks.StreamsBuilder, wrong: bool) -> None:
    class Keep(ks.Processor):
        def process(self, record: ks.Record) -> None:
            headers = [] if wrong and record.value["amount"] == 7 else record.headers
            self.context.forward(record.with_headers(headers))

    orders(builder).process(Keep, name="keep-trace").to("out", name="sink")


@first("orders")
def wrong_timestamp_extractor(builder: ks.StreamsBuilder, wrong: bool) -> None:
    extract = (lambda record, before: record.timestamp) if wrong else (lambda record, before: record.value["at"])
    windows = ks.TimeWindows.of_size("10 s", grace="20 s")
    stream = by_customer(orders(builder, timestamp_extractor=extract))
    stream.group_by_key().windowed_by(windows).count(store="counts", name="count")


@first("sessions")
def wrong_gap_of_sessions(builder: ks.StreamsBuilder, wrong: bool) -> None:
    windows = ks.SessionWindows.of_inactivity_gap("25 s" if wrong else "20 s", grace="30 s")
    by_customer(orders(builder)).group_by_key().windowed_by(windows).count(store="sessions", name="sessions")


@first("sessions")
def wrong_merger_of_sessions(builder: ks.StreamsBuilder, wrong: bool) -> None:
    windows = ks.SessionWindows.of_inactivity_gap("8 s", grace="30 s")
    merge = (lambda key, one, other: max(one, other)) if wrong else (lambda key, one, other: one + other)
    sessions = by_customer(orders(builder)).group_by_key().windowed_by(windows)
    sessions.aggregate(lambda: 0, lambda key, order, total: total + order["amount"], merge, store="sessions", name="sessions")


@first("sliding")
def wrong_sliding_windows(builder: ks.StreamsBuilder, wrong: bool) -> None:
    windows = ks.SlidingWindows.of_time_difference("9 s" if wrong else "8 s", grace="20 s")
    by_customer(orders(builder)).group_by_key().windowed_by(windows).count(store="sliding", name="sliding")


@first("once")
def store_not_written(builder: ks.StreamsBuilder, wrong: bool) -> None:
    class Once(ks.Processor):
        def init(self, context: Any) -> None:
            super().init(context)
            self.seen = context.get_state_store("seen")

        def process(self, record: ks.Record) -> None:
            customer, amount = record.value["customer"], record.value["amount"]
            if (self.seen.get(customer) or 0) < amount:
                if not (wrong and amount == 13):
                    self.seen.put(customer, amount)
                self.context.forward(record.with_key(customer).with_value(amount))

    builder.add_state_store(ks.StoreBuilder("seen", ks.StoreKind.KEY_VALUE))
    orders(builder).process(Once, stores=["seen"], name="once").to("out", name="sink")


@first("every-minute")
def wrong_interval_of_a_punctuation(builder: ks.StreamsBuilder, wrong: bool) -> None:
    class Counts(ks.Processor):
        def init(self, context: Any) -> None:
            super().init(context)
            self.counted = context.get_state_store("counted")
            context.schedule("50 s" if wrong else "60 s", ks.PunctuationType.STREAM_TIME, self.emit)

        def process(self, record: ks.Record) -> None:
            self.counted.put("n", (self.counted.get("n") or 0) + 1)

        def emit(self, now: int) -> None:
            self.context.forward(ks.Record("n", self.counted.get("n"), now))

    builder.add_state_store(ks.StoreBuilder("counted", ks.StoreKind.KEY_VALUE))
    orders(builder).process(Counts, stores=["counted"], name="every-minute").to("out", name="sink")


@first("joined-other-join")
def wrong_window_of_a_join(builder: ks.StreamsBuilder, wrong: bool) -> None:
    left, right = orders(builder), builder.stream("payments", name="payments")
    windows = ks.JoinWindows.of_time_difference("4 s" if wrong else "5 s", grace="10 s")
    left.join(right, lambda order, payment: [order["amount"], payment["sum"]], windows, name="joined").to("out", name="sink")


@first("latest")
def reduce_keeps_the_wrong_one(builder: ks.StreamsBuilder, wrong: bool) -> None:
    amounts = by_customer(orders(builder)).map_values(lambda order: order["amount"], name="amount")
    amounts.group_by_key().reduce(
        (lambda one, other: one) if wrong else (lambda one, other: other), store="latest", name="latest"
    )


@first("words")
def last_element_lost(builder: ks.StreamsBuilder, wrong: bool) -> None:
    orders(builder).flat_map_values(lambda order: order["tags"][: -1 if wrong else None], name="words").to("out", name="sink")


@first("by-")
def branches_in_another_order(builder: ks.StreamsBuilder, wrong: bool) -> None:
    large, paid = (lambda key, order: order["amount"] > 12), (lambda key, order: order["status"] == "paid")
    one, other = (paid, large) if wrong else (large, paid)
    branches = orders(builder).split(name="by-").branch(one, name="one").branch(other, name="two").no_default_branch()
    branches["by-one"].to("one", name="sink-one")
    branches["by-two"].to("two", name="sink-two")


@first("sink")
def wrong_partitioner(builder: ks.StreamsBuilder, wrong: bool) -> None:
    orders(builder).to(
        "out", name="sink", partitioner=lambda topic, key, value, partitions: (value["amount"] + wrong) % partitions
    )


@first("closed")
def suppress_too_long(builder: ks.StreamsBuilder, wrong: bool) -> None:
    amounts = by_customer(orders(builder)).map_values(lambda order: order["amount"], name="amount")
    table = amounts.group_by_key().reduce(max, store="most", name="most")
    suppressed = ks.Suppressed.until_time_limit("30 s" if wrong else "20 s", name="closed")
    table.suppress(suppressed).to_stream(name="changes").to("out", name="sink")


@first("raising")
def raises_at_a_record(builder: ks.StreamsBuilder, wrong: bool) -> None:
    share = (lambda order: 100 // order["amount"]) if wrong else (lambda order: 100 // (order["amount"] or 1))
    orders(builder).map_values(share, name="raising").to("out", name="sink")
