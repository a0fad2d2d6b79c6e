"""Fields that the writer's schema does not have: their defaults, as values of the reader's types, one object per record."""

from __future__ import annotations

import copy
import json
import uuid
from datetime import UTC, date, datetime, time
from decimal import Decimal
from typing import Any

import pytest
from confluent_kafka.schema_registry import Schema
from hypothesis import given, settings
from hypothesis import strategies as st

from kstreams_repl import serdes
from kstreams_repl.engine.serdes.schemas.schema_registry import Settings, client_of, settings_of
from kstreams_repl.pictures.columns import decode
from kstreams_repl.system.errors import ConfigError

X = {"name": "x", "type": "long"}
INNER = {
    "type": "record",
    "name": "Inner",
    "fields": [{"name": "tags", "type": {"type": "array", "items": "string"}, "default": ["new"]}, {"name": "n", "type": "int"}],
}


def logical(kind: Any, logical_type: str, **more: Any) -> dict[str, Any]:
    return {"type": kind, "logicalType": logical_type, **more}


DEFAULTS: list[tuple[Any, Any, Any]] = [
    ("bytes", "\u00ff\u0001", b"\xff\x01"),
    ({"type": "fixed", "name": "F2", "size": 2}, "\u0000{", b"\x00{"),
    ("double", 1, 1.0),
    (logical("bytes", "decimal", precision=9, scale=2), "{", Decimal("1.23")),
    (logical("fixed", "decimal", name="F4", size=4, precision=9, scale=2), "\u0000\u0000\u0000{", Decimal("1.23")),
    (logical("int", "date"), 1, date(1970, 1, 2)),
    (logical("int", "time-millis"), 1000, time(0, 0, 1)),
    (logical("long", "time-micros"), 1_000_000, time(0, 0, 1)),
    (logical("long", "timestamp-millis"), 0, datetime(1970, 1, 1, tzinfo=UTC)),
    (logical("long", "timestamp-micros"), 0, datetime(1970, 1, 1, tzinfo=UTC)),
    (logical("long", "local-timestamp-millis"), 0, datetime(1970, 1, 1)),  # noqa: DTZ001 - has no zone
    (logical("string", "uuid"), str(uuid.UUID(int=7)), uuid.UUID(int=7)),
    ({"type": "array", "items": "bytes"}, ["\u00ff"], [b"\xff"]),
    ({"type": "map", "values": logical("int", "date")}, {"a": 0}, {"a": date(1970, 1, 1)}),
    (INNER, {"n": 3}, {"tags": ["new"], "n": 3}),
    (["null", "bytes"], None, None),
    (["bytes", "null"], "\u00ff", b"\xff"),
    ([logical("long", "timestamp-millis"), "null"], 0, datetime(1970, 1, 1, tzinfo=UTC)),
    ({"type": "enum", "name": "E", "symbols": ["A", "B"]}, "B", "B"),
]


@pytest.fixture
def registry() -> Settings:
    return settings_of(f"mock://{uuid.uuid4()}")


def record(*fields: Any) -> dict[str, Any]:
    return {"type": "record", "name": "R", "fields": list(fields)}


def evolved(registry: Settings, old: Any, new: Any) -> tuple[Any, Any]:
    """The serdes of the old and the new schema of one topic."""
    client_of(registry).register_schema("t-value", Schema(json.dumps(old), "AVRO"))
    return (serdes.avro(schema).for_topic("t", "value", registry) for schema in (old, new))  # type: ignore[return-value]


@pytest.mark.parametrize("kind, default, value", DEFAULTS, ids=[f"{number}" for number in range(len(DEFAULTS))])
def test_a_default_is_read_as_the_type_says(registry: Settings, kind: Any, default: Any, value: Any) -> None:
    old, new = evolved(registry, record(X), record(X, {"name": "d", "type": kind, "default": default}))
    data = old.serialize({"x": 1})
    found = new.deserialize(data)
    assert found == {"x": 1, "d": value}
    assert type(found["d"]) is type(value)
    assert new.deserialize(new.serialize({"x": 1})) == found, "a value without the field is written with its default"
    bare = serdes.avro(record(X, {"name": "d", "type": kind, "default": default}), without_registry=True)
    assert bare.deserialize(bare.serialize({"x": 1})) == found


@pytest.mark.parametrize(
    "kind, default",
    [({"type": "array", "items": "string"}, []), ({"type": "map", "values": "int"}, {}), (INNER, {"n": 1}), ([INNER, "null"], {"n": 1})],
)
def test_a_default_is_a_new_object_for_each_record(registry: Settings, kind: Any, default: Any) -> None:
    old, new = evolved(registry, record(X), record(X, {"name": "d", "type": kind, "default": default}))
    data = old.serialize({"x": 1})
    one = new.deserialize(data)
    expected = copy.deepcopy(one)
    for container in (one["d"], one["d"].get("tags") if isinstance(one["d"], dict) else None):
        if isinstance(container, list):
            container.append("changed")
        elif container is not None:
            container["changed"] = 1
    assert new.deserialize(data) == expected


def test_two_parts_of_one_record_do_not_share_a_default(registry: Settings) -> None:
    before = {"type": "record", "name": "I", "fields": [X]}
    after = {"type": "record", "name": "I", "fields": [X, {"name": "tags", "type": {"type": "array", "items": "string"}, "default": []}]}
    old, new = evolved(
        registry,
        record({"name": "all", "type": {"type": "array", "items": before}}, {"name": "by", "type": {"type": "map", "values": "I"}}),
        record({"name": "all", "type": {"type": "array", "items": after}}, {"name": "by", "type": {"type": "map", "values": "I"}}),
    )
    found = new.deserialize(old.serialize({"all": [{"x": 1}, {"x": 2}], "by": {"a": {"x": 3}}}))
    found["all"][0]["tags"].append("changed")
    assert found == {"all": [{"x": 1, "tags": ["changed"]}, {"x": 2, "tags": []}], "by": {"a": {"x": 3, "tags": []}}}


def test_sql_has_one_typed_column_for_records_of_both_versions(registry: Settings) -> None:
    kind = logical("bytes", "decimal", precision=9, scale=2)
    old, new = evolved(registry, record(X), record(X, {"name": "d", "type": kind, "default": "{"}))
    cells = [old.serialize({"x": 1}), new.serialize({"x": 2, "d": Decimal("4.50")})]
    values = decode(new, cells).values
    assert [str(each.type) for each in values.type] == ["int64", "decimal128(3, 2)"]
    assert values.to_pylist() == [{"x": 1, "d": Decimal("1.23")}, {"x": 2, "d": Decimal("4.50")}]


def test_a_default_that_does_not_fit_is_refused_with_its_field() -> None:
    with pytest.raises(ConfigError, match="'d' does not fit its type"):
        serdes.avro(record({"name": "d", "type": logical("string", "uuid"), "default": "not one"}), without_registry=True)


@settings(max_examples=50, deadline=None)
@given(st.lists(st.sampled_from(range(len(DEFAULTS))), min_size=1, max_size=5, unique=True))
def test_any_mixture_of_defaults_is_read_twice_alike(mixture: list[int]) -> None:
    fields = [{"name": f"d{each}", "type": DEFAULTS[each][0], "default": DEFAULTS[each][1]} for each in mixture]
    old, new = evolved(settings_of(f"mock://{uuid.uuid4()}"), record(X), record(X, *fields))
    data = old.serialize({"x": 1})
    assert new.deserialize(data) == new.deserialize(data) == {"x": 1, **{f"d{each}": DEFAULTS[each][2] for each in mixture}}
