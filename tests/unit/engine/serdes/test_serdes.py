"""Serdes against Kafka's bytes, and what they say about values and bytes that do not fit."""

from __future__ import annotations

import json
import pickle
import sys
import tracemalloc
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kstreams_repl import serdes
from kstreams_repl.engine.serdes import Serde
from kstreams_repl.engine.serdes.serde import to_send
from kstreams_repl.engine.stores.layers.codec import Codec
from kstreams_repl.system.errors import CallError, ConfigError, SerializationError
from kstreams_repl.system.types import Windowed

GOLDEN = json.loads((Path(__file__).parents[3] / "data" / "golden.json").read_text())
BUILT_IN = [
    serdes.bytes, serdes.string, serdes.integer, serdes.long, serdes.double, serdes.json,
    serdes.short, serdes.float32, serdes.boolean, serdes.uuid, serdes.void,
]  # fmt: skip


def test_bytes_equal_kafka_s() -> None:
    assert serdes.long.serialize(258).hex() == GOLDEN["long(258)"]
    windowed = serdes.time_windowed(serdes.string, 10)
    assert windowed.serialize(Windowed("a", 1000, 1010)).hex() == GOLDEN["time_windowed_serde(a@1000)"]
    session = serdes.session_windowed(serdes.string)
    assert session.serialize(Windowed("a", 10, 20)).hex() == GOLDEN["session_windowed_serde(a@[10,20])"]
    assert Codec(serdes.string, timestamped=True).encode(("v", 5)).hex() == GOLDEN["value_and_timestamp(v,5)"]


@pytest.mark.parametrize(
    ("serde", "value", "data"),
    [
        (serdes.integer, -2, "fffffffe"),
        (serdes.long, -1, "ffffffffffffffff"),
        (serdes.double, 1.5, "3ff8000000000000"),
        (serdes.string, "é中😀", "c3a9e4b8adf09f9880"),
        (serdes.bytes, b"\x00\xff", "00ff"),
        (serdes.json, {"é": [1, 2.5, None, True]}, '{"é":[1,2.5,null,true]}'.encode().hex()),
        (serdes.json, 2**70, str(2**70).encode().hex()),
    ],
)
def test_values_survive_the_round_trip(serde: Serde, value: Any, data: str) -> None:
    assert serde.serialize(value).hex() == data and serde.deserialize(bytes.fromhex(data)) == value


@pytest.mark.parametrize("serde", [*BUILT_IN, serdes.time_windowed(serdes.string, 5), serdes.session_windowed(serdes.string)], ids=repr)
def test_none_passes_through(serde: Serde) -> None:
    assert serde.serialize(None) is None and serde.deserialize(None) is None


def test_malformed_text_reads_and_writes_as_in_java() -> None:
    assert serdes.string.deserialize(b"a\xffb\xe4\xb8") == "a�b�"
    assert serdes.string.serialize("a\ud800b") == b"a?b"


@pytest.mark.parametrize(
    ("serde", "value"),
    [
        (serdes.long, "1"),
        (serdes.long, 2**63),
        (serdes.integer, 2**31),
        (serdes.double, "x"),
        (serdes.string, 1),
        (serdes.bytes, "x"),
        (serdes.json, object()),
    ],
)
def test_a_value_that_does_not_fit_is_a_typed_error_with_a_hint(serde: Serde, value: Any) -> None:
    with pytest.raises(SerializationError) as raised:
        serde.serialize(value)
    assert raised.value.hint and serde.name in str(raised.value)


@pytest.mark.parametrize(("serde", "data"), [(serdes.long, b"1234567"), (serdes.integer, b""), (serdes.double, b"x"), (serdes.json, b"{")])
def test_bytes_that_do_not_fit_are_a_typed_error_with_a_hint(serde: Serde, data: bytes) -> None:
    with pytest.raises(SerializationError) as raised:
        serde.deserialize(data)
    assert raised.value.hint


@pytest.mark.parametrize("serde", [serde for serde in BUILT_IN if serde.passthrough], ids=repr)
@pytest.mark.parametrize("data", [b"", b"abc", b"12345678", b"1234", "é".encode(), b"\xff\xfe"])
def test_canonical_bytes_survive_being_read_and_written(serde: Serde, data: bytes) -> None:
    if serde.canonical(data):
        assert serde.serialize(serde.deserialize(data)) == data


def test_only_valid_text_is_canonical() -> None:
    assert serdes.string.canonical("é".encode()) and not serdes.string.canonical(b"\xff")


def test_windowed_keys_too_short_are_a_typed_error() -> None:
    with pytest.raises(SerializationError):
        serdes.time_windowed(serdes.string, 5).deserialize(b"short")
    with pytest.raises(SerializationError):
        serdes.session_windowed(serdes.string).deserialize(b"much too short")


def test_serdes_are_found_by_name() -> None:
    assert serdes.of("json") is serdes.json and serdes.resolve("long") is serdes.long
    assert serdes.resolve(None, serdes.json) is serdes.json and serdes.resolve(None) is serdes.bytes
    assert serdes.string() is serdes.string
    with pytest.raises(ConfigError, match="did you mean 'json'"):
        serdes.of("jsn")
    with pytest.raises(ConfigError):
        serdes.resolve(3)


@pytest.mark.parametrize("serde", BUILT_IN, ids=repr)
def test_built_in_serdes_travel_by_name(serde: Serde) -> None:
    assert pickle.loads(pickle.dumps(serde)) is serde


def test_a_serde_of_your_own_never_sees_none() -> None:
    mine = Serde(serialize=lambda value: value.upper().encode(), deserialize=lambda data: data.decode(), name="mine")
    assert mine.serialize(None) is None and mine.deserialize(None) is None
    assert mine.serialize("a") == b"A" and not mine.canonical(b"A") and repr(mine) == "Serde(mine)"


def test_written_json_takes_no_more_memory_than_its_text() -> None:
    values = [{"total": number} for number in range(1000)]
    tracemalloc.start()
    try:
        written = [serdes.json.serialize(value) for value in values]
        taken, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert taken < sum(map(sys.getsizeof, written)) + 100_000, "stores and producers keep such values by the million"


@pytest.mark.parametrize(
    "value", [2**63, 2**64, 2**64 + 1, -(2**63) - 1, -(2**70), 1e300, -1e19, 2.0**64, 0.0, None]
)
def test_numbers_come_back_from_json_as_they_were(value: Any) -> None:
    again = serdes.json.deserialize(serdes.json.serialize(value))
    assert (again, type(again)) == (value, type(value))


@pytest.mark.parametrize("value", [float("nan"), float("inf"), -float("inf")])
def test_what_json_has_no_word_for_is_refused_as_a_whole_value_and_null_inside_one(value: float) -> None:
    """Whatever is written is JSON: other readers stop at NaN."""
    with pytest.raises(SerializationError, match="JSON cannot represent it") as caught:
        serdes.json.serialize(value)
    assert "double" in caught.value.hint
    inside = [{"a": value, "b": [value, 1.5]}, [value], {"large": 2**70, "a": (value, {"b": value})}, {1: value}, "NaN Infinity"]
    for whole in inside:
        written = serdes.json.serialize(whole)
        assert written is not None
        json.loads(written, parse_constant=lambda word: pytest.fail(word))
    assert serdes.json.serialize({"a": value}) == b'{"a":null}'
    assert serdes.json.serialize({"a": value, "n": 2**70}) == b'{"a":null,"n":1180591620717411303424}'
    assert serdes.json.deserialize(b"NaN") != serdes.json.deserialize(b"NaN"), "old records are read"


@pytest.mark.parametrize(
    ("data", "read"),
    [("61eda08062", "a\ufffdb"), ("eda0", "\ufffd"), ("eda041", "\ufffdA"), ("edb080eda080", "\ufffd\ufffd"), ("ed9fbf", "\ud7ff")],
)
def test_half_a_character_reads_as_in_java(data: str, read: str) -> None:
    """What `new String(bytes, UTF_8)` gives, JDK 17."""
    assert serdes.string.deserialize(bytes.fromhex(data)) == read


def test_two_halves_of_a_character_write_as_in_java() -> None:
    assert serdes.string.serialize("a\ud83d\ude00b\ud800") == b"a\xf0\x9f\x98\x80b?"


def test_the_size_of_windows_may_be_a_timedelta() -> None:
    serde = serdes.time_windowed("string", timedelta(seconds=1))
    assert serde.deserialize(serde.serialize(Windowed("a", 5, 1005))) == Windowed("a", 5, 1005)
    assert serde.writes_like(serdes.time_windowed("string", 1000))


@pytest.mark.parametrize("size", [-1, "1000", 1.5, True, None])
def test_windows_of_no_size_are_refused(size: Any) -> None:
    with pytest.raises(CallError, match="size_ms must be a duration"):
        serdes.time_windowed("string", size)


@pytest.mark.parametrize("value", [None, {"a": [1, None]}, "text", 1.5, 2**80, {1: 2}, {"t": "\ud800"}, float("nan")])
def test_json_for_a_client_is_written_as_for_a_store(value: object) -> None:
    def written(serialize: Callable[[object], bytes | None]) -> object:
        try:
            return serialize(value)
        except SerializationError as error:
            return str(error)

    assert to_send(serdes.json.serialize) is not serdes.json.serialize
    assert written(to_send(serdes.json.serialize)) == written(serdes.json.serialize)
    assert to_send(serdes.string.serialize) is serdes.string.serialize


@pytest.mark.parametrize(
    "text",
    [
        b'{"a":123456789012345678901234567890}',
        b"[18446744073709551616,-9223372036854775809]",
        b'{"b":[{"c":-99999999999999999999}],"d":1.5}',
    ],
)
def test_integers_of_any_size_are_kept_inside_of_json(text: bytes) -> None:
    """They became floats, and an identity topology wrote 1.2345678901234568e29."""
    value = serdes.json.deserialize(text)
    assert serdes.json.serialize(value) == text and value == json.loads(text)
    assert serdes.json.deserialize_many is not None and serdes.json.deserialize_many([text, None]) == [value, None]
    assert not serdes.json.canonical(text) or serdes.json.serialize(value) == text


def test_a_number_of_numpy_that_json_lacks_is_refused() -> None:
    """`np.float64("nan")` was written as null, which is a tombstone's value in a table."""
    numpy = pytest.importorskip("numpy")
    for value in (float("nan"), float("inf"), numpy.float64("nan"), numpy.float64("-inf")):
        with pytest.raises(SerializationError, match="JSON cannot represent it"):
            serdes.json.serialize(value)


TEXTS = st.text(alphabet=st.characters(codec="utf-8"))
PLAIN = st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | TEXTS


@given(st.recursive(PLAIN, lambda inner: st.lists(inner) | st.dictionaries(TEXTS, inner)))
def test_json_values_are_kept_exactly(value: Any) -> None:
    if value is not None:
        assert serdes.json.deserialize(serdes.json.serialize(value)) == value
