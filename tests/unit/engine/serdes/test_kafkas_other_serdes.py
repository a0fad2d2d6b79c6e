"""Short, float, boolean, UUID, void and lists against the bytes of kafka-clients 4.3.1 (written by a JVM)."""

from __future__ import annotations

import math
import pickle
from typing import Any
from uuid import UUID

import pytest

from kstreams_repl import serdes
from kstreams_repl.engine.serdes import Serde
from kstreams_repl.pictures.columns import decode
from kstreams_repl.system.errors import ConfigError, SerializationError

ID = UUID("123e4567-e89b-12d3-a456-426614174000")
ID_BYTES = "31323365343536372d653839622d313264332d613435362d343236363134313734303030"
WRITTEN = [
    ("float32", 0.0, "00000000"), ("float32", -0.0, "80000000"), ("float32", 1.5, "3fc00000"), ("float32", -3.25, "c0500000"),
    ("float32", 3.4028234663852886e38, "7f7fffff"), ("float32", 1.401298464324817e-45, "00000001"),
    ("float32", math.inf, "7f800000"), ("float32", -math.inf, "ff800000"),
    ("short", 0, "0000"), ("short", -1, "ffff"), ("short", 32767, "7fff"), ("short", -32768, "8000"), ("short", 258, "0102"),
    ("boolean", True, "01"), ("boolean", False, "00"),
    ("uuid", ID, ID_BYTES),
    ("list(long)", [1, None, -2], "000000000100000001000000030000000000000001fffffffffffffffe"),
    ("list(integer)", [1, 2], "0000000000000000020000000100000002"),
    ("list(short)", [7, None], "000000000100000001000000020007"),
    ("list(float32)", [1.5, None, None], "00000000020000000100000002000000033fc00000"),
    ("list(double)", [], "000000000000000000"),
    ("list(uuid)", [ID, None], f"00000000010000000100000002{ID_BYTES}"),
    ("list(string)", ["a", None, "", "é"], "01000000040000000161ffffffff0000000000000002c3a9"),
    ("list(boolean)", [True, None, False], "01000000030000000101ffffffff0000000100"),
    ("list(list(long))", [[1], None, []],
     "0100000003000000110000000000000000010000000000000001ffffffff00000009000000000000000000"),
    ("list(void)", [None, None], "0100000002ffffffffffffffff"),
]  # fmt: skip


@pytest.mark.parametrize(("name", "value", "data"), WRITTEN, ids=lambda about: str(about)[:40])
def test_the_bytes_are_kafkas_and_come_back(name: str, value: Any, data: str) -> None:
    serde = serdes.of(name)
    assert serde.serialize(value) == bytes.fromhex(data)
    assert serde.deserialize(bytes.fromhex(data)) == value
    travelled = pickle.loads(pickle.dumps(serde))
    assert travelled.serialize(value) == bytes.fromhex(data) and travelled.writes_like(serde)


def test_floats_that_are_no_numbers_of_32_bits() -> None:
    assert serdes.float32.serialize(0.1) == bytes.fromhex("3dcccccd")
    assert serdes.float32.serialize(math.nan) == bytes.fromhex("7fc00000")
    assert math.isnan(serdes.float32.deserialize(bytes.fromhex("7fc00000")))
    with pytest.raises(SerializationError, match="out of its range"):
        serdes.float32.serialize(1e40)


@pytest.mark.parametrize(
    ("text", "read"),
    [
        ("1-2-3-4-5", "00000001-0002-0003-0004-000000000005"),
        ("123E4567-E89B-12D3-A456-426614174000", str(ID)),
        ("fffffffff-fffff-fffff-fffff-f", "ffffffff-ffff-ffff-ffff-00000000000f"),
        ("+1-2-3-4-5", "00000001-0002-0003-0004-000000000005"),
    ],
)
def test_other_spellings_of_a_uuid_read_as_in_java(text: str, read: str) -> None:
    assert serdes.uuid.deserialize(text.encode()) == UUID(read)


REFUSED = [
    ("uuid", b"123e4567e89b12d3a456426614174000"), ("uuid", b""), ("uuid", b"x"), ("uuid", b"1--3-4-5"),
    ("uuid", b"123e4567-e89b-12d3-a456-4266141740001"),
    ("boolean", b"\x02"), ("boolean", b""), ("float32", b"\x01\x02\x03"), ("short", b"\x01\x02\x03"), ("void", b""),
    ("list(long)", b""), ("list(long)", b"\x02"), ("list(string)", bytes.fromhex("0000000000")),
    ("list(long)", bytes.fromhex("00000000007fffffff")), ("list(string)", bytes.fromhex("0100000001000000ff61")),
    ("list(string)", bytes.fromhex("0100000001fffffffe")), ("list(long)", bytes.fromhex("00ffffffff00000000")),
]  # fmt: skip


@pytest.mark.parametrize(("name", "data"), REFUSED, ids=lambda about: str(about)[:40])
def test_bytes_that_are_none_of_it_are_typed_errors(name: str, data: bytes) -> None:
    with pytest.raises(SerializationError):
        serdes.of(name).deserialize(data)


@pytest.mark.parametrize(
    ("serde", "value"),
    [
        (serdes.boolean, 1), (serdes.boolean, "true"), (serdes.uuid, str(ID)), (serdes.void, 0), (serdes.short, 40_000),
        (serdes.short, 1.5),
        (serdes.float32, "1"), (serdes.list_of(serdes.long), "text"), (serdes.list_of(serdes.long), [1, "x"]),
    ],
    ids=repr,
)  # fmt: skip
def test_values_that_do_not_fit_are_typed_errors(serde: Serde, value: Any) -> None:
    with pytest.raises(SerializationError):
        serde.serialize(value)


def test_names_that_are_no_serdes() -> None:
    with pytest.raises(ConfigError):
        serdes.of("list(of what)")


@pytest.mark.parametrize(
    ("name", "values", "kind", "shown"),
    [
        ("short", [1, None, -2], "int16", [1, None, -2]),
        ("float32", [1.5, None], "float", [1.5, None]),
        ("boolean", [True, None, False], "bool", [True, None, False]),
        ("uuid", [ID, None], "string", [str(ID), None]),
        ("list(long)", [[1, None], None, []], "list<item: int64>", [[1, None], None, []]),
        ("list(string)", [["a"], None], "list<item: string>", [["a"], None]),
    ],
)
def test_each_is_a_column_of_its_type_in_sql(name: str, values: list[Any], kind: str, shown: list[Any]) -> None:
    serde = serdes.of(name)
    found = decode(serde, [serde.serialize(value) for value in values])
    assert (str(found.values.type), found.values.to_pylist(), found.unreadable) == (kind, shown, 0)
