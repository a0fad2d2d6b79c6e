"""A repartition topic of an unknown type is reported by deploy and plan, before any record."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import kstreams_repl as ks
from kstreams_repl.engine.config import StreamsConfig
from kstreams_repl.host.kafka.admin import NewTopicSpec
from kstreams_repl.repl.session.application.checks.unknown_serdes import unknown_serdes
from tests.unit.repl.session.small_cluster import PARTITIONS, SmallCluster, SmallSession


def orders_and_customers(builder: ks.StreamsBuilder) -> tuple[ks.KStream, ks.KTable]:
    orders = builder.stream("orders", key_serde="string", value_serde="json")
    return orders, builder.table("customers", key_serde="string", value_serde="json")


def both(order: Any, customer: Any) -> Any:
    return {**order, **(customer or {})}


def warnings_of(build: Callable[[ks.KStream, ks.KTable], Any], **settings: Any) -> list[str]:
    builder = ks.StreamsBuilder()
    build(*orders_and_customers(builder))
    return unknown_serdes(builder.build(), StreamsConfig({"application.id": "app", **settings}))


def city(key: Any, value: Any) -> str:
    return str(value["city"])


def test_keys_and_values_of_unknown_type_are_named_with_the_line_that_makes_them() -> None:
    value, key = sorted(
        warnings_of(lambda orders, customers: orders.join(customers, both, name="joined").group_by(city, name="cities").count()),
        key=lambda line: " key serde " in line,
    )
    here = f"{__file__}:{inspect.getsourcelines(test_keys_and_values_of_unknown_type_are_named_with_the_line_that_makes_them)[1] + 2}:"
    assert "topic cities-repartition is written with the key serde bytes" in key and here in key
    assert 'group_by(..., key_serde="string")' in key and "default.key.serde" in key
    assert "the values that joined returns" in value and here in value


def test_serdes_that_are_given_or_configured_or_pass_through_a_join_are_not_reported() -> None:
    def given(orders: ks.KStream, customers: ks.KTable) -> None:
        orders.join(customers, both).group_by(city, key_serde="string", value_serde="json").count()

    def regrouped(orders: ks.KStream, customers: ks.KTable) -> None:
        customers.group_by(lambda key, value: (city(key, value), value), key_serde="string", value_serde="json").count()

    assert warnings_of(given) == warnings_of(regrouped) == []
    defaults = {"default.key.serde": "string", "default.value.serde": "json"}
    assert warnings_of(lambda orders, customers: orders.join(customers, both).group_by(city).count(), **defaults) == []
    [value] = warnings_of(lambda orders, customers: orders.join(customers, both).repartition(name="again"))
    assert "value serde" in value, "the key's serde is that of the left side"


@pytest.mark.parametrize("how", ["join", "left_join", "outer_join"])
def test_a_join_passes_on_the_key_serde(how: str) -> None:
    builder = ks.StreamsBuilder()
    orders, customers = orders_and_customers(builder)
    windows = ks.JoinWindows.of_time_difference(5)
    streams = getattr(orders, how)(builder.stream("others", key_serde="string", value_serde="json"), both, windows)
    tables = getattr(customers, how)(builder.table("rates", key_serde="string", value_serde="json"), both)
    assert streams.key_serde is tables.key_serde is orders.key_serde
    assert streams.value_serde is tables.value_serde is None, "a joiner returns any type"


def test_the_keys_and_values_of_a_regrouped_table_are_reported() -> None:
    both_parts = warnings_of(lambda orders, customers: customers.group_by(lambda key, value: (city(key, value), value)).count(name="n"))
    assert ["key serde" in line for line in both_parts] == [True, False]


def test_bytes_that_no_function_has_changed_are_not_reported() -> None:
    builder = ks.StreamsBuilder()
    builder.stream("raw").filter(lambda key, value: True).repartition(name="again").to("out")
    assert unknown_serdes(builder.build(), StreamsConfig({"application.id": "app"})) == []


def test_deploy_and_plan_report_it_before_anything_runs(tmp_path: Path) -> None:
    cluster = SmallCluster()
    cluster.create_topics([NewTopicSpec("orders", PARTITIONS)])
    session = SmallSession(cluster, tmp_path)
    said: list[str] = []
    session.client.report = said.append
    builder = ks.StreamsBuilder()
    builder.stream("orders", key_serde="string", value_serde="json").group_by(city, name="cities").count()
    session.plan(builder, "app")
    session.deploy(builder, "app")
    assert [line.startswith("warning: topic cities-repartition is written with the key serde bytes") for line in said] == [True, True]
