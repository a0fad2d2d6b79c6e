"""An application whose stores keep headers (`dsl.store.format=HEADERS`), and what is right in its stores and its output."""

from __future__ import annotations

from collections import defaultdict
from typing import Any

import kstreams_repl as ks

KEYS = 7
CONFIG = {
    "processing.guarantee": "exactly_once_v2", "commit.interval.ms": 50, "num.stream.threads": 2, "dsl.store.format": "HEADERS",
}  # fmt: skip
Row = tuple[str, str, int, list[tuple[str, bytes]]]


class CountTrace:
    """Counts the records of a key, keeps time and headers of the last one, and forwards the count with the row before."""

    def init(self, context: Any) -> None:
        self.context, self.store = context, context.get_state_store("traced")

    def process(self, record: Any) -> None:
        before = self.store.get(record.key)
        count = 1 if before is None else before.value + 1
        self.store.put(record.key, ks.types.ValueTimestampHeaders(count, record.timestamp, record.headers))
        was = None if before is None else [before.value, before.timestamp, [[name, value.decode()] for name, value in before.headers]]
        self.context.forward(record.with_value({"n": count, "was": was, "label": record.value.split()[0]}))

    def close(self) -> None: ...


def topology(name: str, label: str = "first", value_serde: str = "long") -> ks.StreamsBuilder:
    """A store that a processor writes with headers, and a table, windows and sessions of the DSL; `label` is its code."""
    builder = ks.StreamsBuilder()
    builder.add_state_store(ks.StoreBuilder("traced", ks.StoreKind.TIMESTAMPED_KEY_VALUE, "string", value_serde, headers=None))
    words = builder.stream(f"{name}-in", key_serde="string", value_serde="string")
    labelled = words.map_values(lambda word: f"{label} {word}", name="labelled")
    labelled.process(CountTrace, stores=["traced"], name="trace").to(f"{name}-out", key_serde="string", value_serde="json")
    grouped = words.group_by_key(key_serde="string", value_serde="string")
    grouped.count(store="counts")
    grouped.windowed_by(ks.TimeWindows.of_size(1_000, grace=600_000)).count(store="windows")
    grouped.windowed_by(ks.SessionWindows.of_inactivity_gap(5_000, grace=600_000)).count(store="sessions")
    return builder


def rows(first: int, last: int) -> list[Row]:
    """Records of `KEYS` keys, a millisecond apart, each with its number in a header."""
    return [(f"k{n % KEYS}", f"word{n}", 1_000 + n, [("n", b"%d" % n)]) for n in range(first, last)]


def expected(total: int) -> dict[str, tuple[int, int, list[tuple[str, bytes]]]]:
    """The rows of 'traced' after `total` records: value, timestamp and headers."""
    counts: dict[str, tuple[int, int, list[tuple[str, bytes]]]] = {}
    for key, _, timestamp, headers in rows(0, total):
        counts[key] = (counts.get(key, (0, 0, []))[0] + 1, timestamp, headers)
    return counts


def check_output(session: ks.Session, name: str, total: int) -> None:
    """Each record is counted once, and saw the row that the one before of its key had put."""
    found = defaultdict(list)
    for record in session.read(f"{name}-out", None, key_serde="string", value_serde="json"):
        found[record.key].append((record.value["n"], record.value["was"], record.timestamp, record.headers))
    wanted = defaultdict(list)
    last: dict[str, list[Any]] = {}
    for key, _, timestamp, headers in rows(0, total):
        count = len(wanted[key]) + 1
        wanted[key].append((count, last.get(key), timestamp, headers))
        last[key] = [count, timestamp, [[name, value.decode()] for name, value in headers]]
    assert found == wanted


def check_tables(app: ks.Application, total: int) -> None:
    """SQL and store views: the rows of all four stores, without headers."""
    want = expected(total)
    traced = app.sql("SELECT key, value, epoch_ms(timestamp) FROM traced").fetchall()
    assert {key: (value, at) for key, value, at in traced} == {key: (n, at) for key, (n, at, _) in want.items()}
    assert {key: app.store("traced").get(key) for key in want} == {key: n for key, (n, _, _) in want.items()}
    for store in ("counts", "windows", "sessions"):
        summed: dict[str, int] = defaultdict(int)
        for key, value in app.store(store).rows("key, value").fetchall():
            summed[key] += value
        assert summed == {key: n for key, (n, _, _) in want.items()}, store
