"""Protobuf messages as dicts, without a registry."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

from kstreams_repl.engine.serdes.schemas.protobuf import compiled, dict_of

KINDS = """syntax = "proto3"; import "google/protobuf/timestamp.proto"; import "google/protobuf/duration.proto";
import "google/protobuf/wrappers.proto";
message All {
  int64 id = 1; string from = 2; bytes raw = 3; optional int32 maybe = 4; State state = 5; repeated State states = 6;
  map<string, All> children = 7; repeated int64 numbers = 8; map<int32, double> prices = 9; All inner = 10;
  google.protobuf.Timestamp at = 11; google.protobuf.Duration took = 12; google.protobuf.StringValue note = 13;
  oneof side { int64 left = 14; string right = 15; }
}
enum State { NEW = 0; PAID = 1; }"""
EMPTY: dict[str, Any] = {
    "id": 0, "from": "", "raw": b"", "state": "NEW", "states": [], "children": {}, "numbers": [], "prices": {},
}  # fmt: skip


def read(schema: str, **fields: Any) -> dict[str, Any]:
    kind = compiled(schema, None)
    return dict_of(kind.DESCRIPTOR)(kind.FromString(kind(**fields).SerializeToString()))


def test_fields_without_presence_have_their_defaults_and_others_are_left_out() -> None:
    assert read(KINDS) == EMPTY
    assert read(KINDS, maybe=0, left=0, note={"value": ""}) == EMPTY | {"maybe": 0, "left": 0, "note": ""}


def test_enums_have_names_unless_they_are_unknown() -> None:
    found = read(KINDS, state="PAID", states=["PAID", 7])
    assert (found["state"], found["states"]) == ("PAID", ["PAID", 7])


def test_a_message_that_contains_itself_is_a_dict_in_dicts() -> None:
    found = read(KINDS, inner={"id": 1, "inner": {"id": 2}}, children={"a": {"numbers": [3, 4]}}, prices={5: 0.5})
    assert found["inner"] == EMPTY | {"id": 1, "inner": EMPTY | {"id": 2}}
    assert (found["children"], found["prices"]) == ({"a": EMPTY | {"numbers": [3, 4]}}, {5: 0.5})


def test_times_and_wrapped_values_have_pythons_types() -> None:
    at, took = datetime(2013, 1, 9, 8, 30, tzinfo=UTC), timedelta(seconds=3)
    found = read(KINDS, at=at, took=took, right="r")
    assert (found["at"], found["took"], found["right"]) == (at, took, "r")


def test_fields_are_in_the_order_of_the_schema() -> None:
    flat = 'syntax = "proto3"; message Flat { string b = 2; int64 a = 1; bytes from = 3; }'
    assert list(read(flat, a=1).items()) == [("b", ""), ("a", 1), ("from", b"")]
    assert read('syntax = "proto3"; message One { int64 x = 1; }', x=3) == {"x": 3}
    assert list(read(KINDS, maybe=1, left=2)) == ["id", "from", "raw", "maybe", "state", "states", "children", "numbers", "prices", "left"]
