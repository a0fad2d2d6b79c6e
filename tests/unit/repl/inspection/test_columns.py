from __future__ import annotations

import struct
from typing import Any

import pyarrow as pa
import pytest

from kstreams_repl import serdes
from kstreams_repl.engine.serdes import Serde
from kstreams_repl.pictures.columns import as_array, decode, guess, milliseconds
from kstreams_repl.system.types import Windowed


@pytest.mark.parametrize(
    ("serde", "values"),
    [
        (serdes.string, ["a", None, "", "ünï", "\x00"]),
        (serdes.long, [1, None, -1, 2**63 - 1, -(2**63)]),
        (serdes.integer, [1, None, -(2**31)]),
        (serdes.double, [1.5, None, -0.0, float("inf")]),
        (serdes.bytes_, [b"", None, b"\xff"]),
    ],
    ids=lambda value: getattr(value, "name", ""),
)
def test_built_in_serdes_come_back(serde: Serde, values: list[Any]) -> None:
    decoded = decode(serde, [serde.serialize(value) for value in values])
    assert decoded.values.to_pylist() == values
    assert decoded.unreadable == 0


def test_a_column_without_nulls_is_the_same() -> None:
    assert decode(serdes.long, [serdes.long.serialize(n) for n in range(100)]).values.to_pylist() == list(range(100))  # type: ignore[misc]


def test_cells_of_the_wrong_size_are_null_and_counted() -> None:
    decoded = decode(serdes.long, [b"12345678", b"123", None])
    assert decoded.values.to_pylist()[1:] == [None, None]
    assert decoded.unreadable == 1


def test_text_that_is_no_utf8_is_shown_with_replacements() -> None:
    assert decode(serdes.string, [b"ok", b"\xff\xfe"]).values.to_pylist() == ["ok", "\ufffd\ufffd"]


def test_a_serde_of_the_users_own_is_called() -> None:
    point = Serde(lambda p: b"%d,%d" % p, lambda b: tuple(map(int, b.split(b","))), name="point")
    decoded = decode(point, [b"1,2", b"no", None])
    assert decoded.values.to_pylist() == [[1, 2], None, None]
    assert decoded.unreadable == 1


def test_windowed_keys_give_their_bounds() -> None:
    serde = serdes.time_windowed(serdes.string, 60_000)
    decoded = decode(serde, [serde.serialize(Windowed("a", 120_000, 180_000)), None])
    assert decoded.values.to_pylist() == ["a", None]
    assert [str(cell) for cell in decoded.more["window_end"].to_pylist()] == ["1970-01-01 00:03:00", "None"]


@pytest.mark.parametrize(
    ("cells", "name"),
    [
        ([b'{"a": 1}', None, b"[1]"], "json"),
        ([b"{not json"], "string"),
        ([b"word", b"{}"], "string"),
        ([struct.pack(">q", 5)], "bytes"),
        ([b"\xff"], "bytes"),
        ([None], "bytes"),
        ([], "bytes"),
        ([b"5"], "string"),
    ],
)
def test_an_unknown_serde_is_guessed_from_the_bytes(cells: list[bytes | None], name: str) -> None:
    assert guess(cells) == name


def test_times_beyond_the_calendar_are_null() -> None:
    assert milliseconds([0, 2**62, -(2**63), None]).null_count == 3
    assert milliseconds([0]).type == pa.timestamp("us")


class _Silent:
    def __repr__(self) -> str:
        raise RuntimeError("no words")


def test_values_without_a_common_type_are_texts_whatever_they_are() -> None:
    assert as_array(["a", b"b"]).to_pylist() == ["a", "b'b'"]
    assert as_array([1, "\ud800", None, b"x", _Silent()]).to_pylist() == [
        "1", "\\ud800", None, "b'x'", "<_Silent: RuntimeError while it was shown>",
    ]  # fmt: skip
