"""Schemas compared without a registry: bare Avro by the layout of its bytes, and whether one schema reads what another wrote."""

from __future__ import annotations

import json
from typing import Any

import pytest

import kstreams_repl as ks
from kstreams_repl import serdes
from kstreams_repl.engine.config import StreamsConfig
from kstreams_repl.engine.serdes.schemas.avro import layout_of, parsed, unreadable
from kstreams_repl.engine.topology.differences.diff import StoreChange, diff
from kstreams_repl.engine.topology.differences.node_diff import NodeChange
from kstreams_repl.engine.topology.differences.schema_diff import SchemaChange
from kstreams_repl.repl.session.application.checks.contracts import compare_schemas
from kstreams_repl.system.errors import ConfigError


def record(*fields: Any, name: str = "P") -> dict[str, Any]:
    return {"type": "record", "name": name, "fields": [dict(zip(("name", "type", "default"), field, strict=False)) for field in fields]}


X, Y = ("x", "long"), ("y", "string")


@pytest.mark.parametrize(
    ("written", "wanted", "reason"),
    [
        (record(X), record(X), ""),
        (record(X), record(X, (*Y, "")), ""),
        (record(X, Y), record(X), ""),
        (record(("x", "int")), record(X), ""),
        (record(X), record(X, Y), "field 'y'"),
        (record(X), record(("x", "int")), "field 'x'"),
        (record(("x", ["null", "long"])), record(X), "field 'x'"),
        (record(("e", {"type": "enum", "name": "E", "symbols": ["A", "B"]})),
         record(("e", {"type": "enum", "name": "E", "symbols": ["A"]})), "field 'e'"),
        (record(("next", ["null", "P"])), record(("next", ["null", "P"])), ""),
        (record(("inner", record(X, name="I"))), record(("inner", record(X, Y, name="I"))), "field 'inner'"),
    ],
)  # fmt: skip
def test_what_a_schema_cannot_read_is_told_with_the_field(written: Any, wanted: Any, reason: str) -> None:
    found = unreadable(parsed(json.dumps(written)), parsed(json.dumps(wanted)))
    assert found.startswith(reason) and bool(found) == bool(reason)


def counting(schema: Any, *, bare: bool = True, topic: str = "words", **options: Any) -> ks.Topology:
    value = serdes.avro(schema, without_registry=True) if bare else serdes.avro(schema, **options)
    builder = ks.StreamsBuilder()
    stream = builder.stream(topic, key_serde="string", value_serde=value, name="read")
    moved = stream.select_key(lambda key, value: "k", name="rekey").group_by_key(name="by")
    table = moved.aggregate(lambda: {}, lambda key, value, total: value, store="last", name="keep", value_serde=value)
    table.to_stream(name="changes").to("out", key_serde="string", value_serde=value, name="write")
    return builder.build()


def compared(before: ks.Topology, after: ks.Topology, **settings: Any) -> Any:
    return compare_schemas("app", after, StreamsConfig(settings), before=before, ask=False)


def test_a_changed_schema_of_bare_avro_needs_a_conversion_because_nothing_says_which_schema_wrote_a_value() -> None:
    before, after = counting(record(X)), counting(record(X, (*Y, "")))
    found = {(one.role, one.owner): one for one in compared(before, after)}
    assert found["store", "last"].change is SchemaChange.MIGRATE
    assert found["sink", "write"].change is SchemaChange.NOT_COMPARED and found["sink", "write"].edited
    repartition = next(one for one in found.values() if one.topic == "app-by-repartition")
    assert repartition.change is SchemaChange.REFUSED and "another name" in repartition.hint
    plan = diff(before, after, schemas=tuple(found.values()))
    assert [store.name for store in plan.refused] == ["last"] and "migrate={'last'" in plan.refused[0].hint
    assert [one.topic for one in plan.refused_schemas] == ["app-by-repartition"]
    assert {node.name: node.change for node in plan.nodes}["read"] is NodeChange.MOVED
    converted = diff(before, after, schemas=tuple(found.values()), migrate=["last"])
    assert not converted.refused and converted.rewritten == ("last",)


def test_a_password_of_the_registry_is_shown_nowhere_not_even_one_in_its_address() -> None:
    import kstreams_repl.engine.serdes.schemas.schema_registry as registry

    given = {"url": "http://me:open-sesame@host:8081"}
    settings = registry.settings_of(given)
    more = registry.settings_of({"url": "http://host", "basic.auth.user.info": "me:open-sesame", "ssl.key.password": "open-sesame"})
    assert "open-sesame" not in repr((settings, more))
    serde = serdes.avro(record(X), registry=given).for_topic("words", "value", settings)
    assert "open-sesame" not in repr((serde, serde.__reduce__()))
    assert registry.client_of(settings).config()["url"] == given["url"]


@pytest.mark.parametrize(
    "after",
    [
        {**record(X), "doc": "the same bytes"},
        record(("x", {"type": "long"})),
    ],
)
def test_another_text_of_the_same_layout_is_no_change(after: Any) -> None:
    assert compared(counting(record(X)), counting(after)) == ()


def test_the_scale_of_a_decimal_is_part_of_the_layout() -> None:
    money = [{"type": "bytes", "logicalType": "decimal", "precision": 9, "scale": scale} for scale in (2, 3)]
    one, other = (json.dumps(record(("price", kind))) for kind in money)
    assert layout_of(one) == layout_of(one) != layout_of(other)


def test_a_schema_change_is_a_change_though_the_registry_is_not_asked() -> None:
    """An edit that changes nothing but a schema would otherwise do nothing."""
    before, after = (counting(schema, bare=False) for schema in (record(X), record(X, (*Y, ""))))
    found = compared(before, after)
    assert {one.change for one in found} == {SchemaChange.NOT_COMPARED} and all(one.edited for one in found)
    plan = diff(before, after, schemas=found)
    assert not plan.empty and not plan.refused
    assert {store.name: store.change for store in plan.stores} == {"last": StoreChange.MIGRATED}
    assert compared(before, counting(record(X), bare=False)) == ()


def test_a_deploy_without_a_registry_is_told_before_anything_starts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("kstreams_repl.engine.serdes.schemas.schema_registry._default", ())
    with pytest.raises(ConfigError, match="no Schema Registry is set"):
        compare_schemas("app", counting(record(X), bare=False), StreamsConfig())
    assert compare_schemas("app", counting(record(X), bare=False), StreamsConfig({"repl.schema.check": False})) == ()
