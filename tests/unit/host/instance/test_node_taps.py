"""A tap board over the real task: requests, leases, bounds."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any

import pytest

from kstreams_repl import StreamsBuilder
from kstreams_repl.host.instance.control.json_safe import MOST_TEXT, shown
from kstreams_repl.host.instance.control.node_taps import MOST_BYTES, MOST_ROWS, TapBoard, TapFiles, TapRequest
from kstreams_repl.testing import TopologyTestDriver


def driver() -> TopologyTestDriver:
    builder = StreamsBuilder()
    stream = builder.stream("in", key_serde="string", value_serde="string")
    stream.map_values(lambda value: {"text": value}, name="wrapped").to("out", key_serde="string", value_serde="json")
    return TopologyTestDriver(builder.build(), start_ms=0)


def request(
    node: str = "wrapped", *, rows: int = 10, seconds: float = 60, per_second: int = 1000, tap: str = "ab" * 8
) -> TapRequest:
    now = int(time.time() * 1000)
    return TapRequest(3, tap, node, rows, per_second, now + int(seconds * 1000), now + 3_600_000)


def feed(driver: TopologyTestDriver, values: list[str]) -> None:
    for number, value in enumerate(values):
        driver.pipe_bytes("in", b"k", value.encode(), 1000 + number, [])


def board(directory: Path) -> TapBoard:
    return TapBoard(TapFiles(directory), 3, 0)


def test_values_between_nodes_are_shown(tmp_path: Path) -> None:
    requests, served = TapFiles(tmp_path), board(tmp_path)
    with driver() as running:
        tasks: list[Any] = [running._task]
        requests.put(request())
        served.serve(tasks)
        feed(running, ["to", "be"])
        served.serve(tasks)
        (seen,) = requests.seen(3, "ab" * 8)
        assert seen["count"] == 2
        assert [row[3] for row in seen["rows"]] == [{"text": "to"}, {"text": "be"}]


def test_a_tap_is_taken_off_when_its_client_drops_it_or_stops_renewing(tmp_path: Path) -> None:
    requests, served = TapFiles(tmp_path), board(tmp_path)
    with driver() as running:
        tasks: list[Any] = [running._task]
        requests.put(request())
        requests.put(request(tap="cd" * 8, seconds=-1))
        served.serve(tasks)
        assert served.active == {"ab" * 8} and requests.active() == ["ab" * 8]
        requests.drop("ab" * 8)
        served.serve(tasks)
        feed(running, ["to"])
        assert served.active == frozenset() and requests.seen(3, "ab" * 8) == []
        points = running._task.services.points.of("wrapped")  # type: ignore[union-attr]
        assert [point._observers for point in points] == [()]


def test_rows_bytes_and_rate_are_bounded_and_all_is_counted(tmp_path: Path) -> None:
    requests, served = TapFiles(tmp_path), board(tmp_path)
    with driver() as running:
        tasks: list[Any] = [running._task]
        requests.put(request(rows=500, per_second=5000))
        served.serve(tasks)
        feed(running, ["x" * 10_000] * 900)
        served.serve(tasks)
        (seen,) = requests.seen(3, "ab" * 8)
        assert seen["count"] == 900 and len(seen["rows"]) < 200
        assert all(len(row[3]["text"]) == MOST_TEXT + 1 for row in seen["rows"])
        (file,) = tmp_path.glob("tapped-*.json")
        assert file.stat().st_size < 2 * MOST_BYTES
        requests.put(request(tap="cd" * 8, per_second=10))
        served.serve(tasks)
        feed(running, ["y"] * 100)
        served.serve(tasks)
        (slow,) = requests.seen(3, "cd" * 8)
        assert slow["count"] == 100 and len(slow["rows"]) == 2


@pytest.mark.parametrize(
    "change",
    [
        {"rows": 0},
        {"rows": MOST_ROWS + 1},
        {"id": "../../x"},
        {"per_second": 10**9},
        {"node": 7},
        {"until_ms": "soon"},
        {"rows": None},
    ],
)
def test_a_request_that_is_none_is_removed(tmp_path: Path, change: dict[str, Any]) -> None:
    served = board(tmp_path)
    (tmp_path / "taps").mkdir()
    said = {name: getattr(request(), name) for name in TapRequest.__dataclass_fields__}
    (tmp_path / "taps" / "bad.json").write_text(json.dumps(said | change))
    (tmp_path / "taps" / "worse.json").write_text("[")
    with driver() as running:
        served.serve([running._task])
    assert served.active == frozenset() and TapFiles(tmp_path).active() == []


class Loud:
    def __str__(self) -> str:
        raise RuntimeError("no")


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        ({"a": [1, None, True]}, {"a": [1, None, True]}),
        (b"\x00", "b'\\x00'"),
        (float("nan"), "nan"),
        (2**60, str(2**60)),
        (10**6000, "an integer of 19,932 bits"),
        ("\ud800", "\\ud800"),
        (Loud(), "<Loud: RuntimeError while it was shown>"),
        ({1: 2}, "{1: 2}"),
    ],
    ids=["plain", "bytes", "nan", "large", "huge", "surrogate", "raising", "other keys"],
)
def test_any_value_becomes_one_that_json_carries(value: Any, expected: Any) -> None:
    assert shown(value) == expected
    json.dumps(shown(value)).encode()


def test_what_is_long_wide_or_deep_is_cut() -> None:
    assert len(shown("x" * 10_000)) == MOST_TEXT + 1
    assert shown(list(range(200)))[-1] == "… 100 more"
    nested: Any = "end"
    for _ in range(50):
        nested = [nested]
    assert len(json.dumps(shown(nested))) < 300
