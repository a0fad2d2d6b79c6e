"""Write cases.json.gz: events, queries, and Kafka Streams' own results. ``python -m tests.conformance.queries.make_cases``; needs a JDK.

The last event of each partition writes all stores: the position of Kafka Streams' stores, that of their last write, is then the commit's.
"""

from __future__ import annotations

import gzip
import itertools
import json
import tempfile
from pathlib import Path
from typing import Any

from kstreams_repl.host.kafka.embedded import EmbeddedBroker
from workshop.conformance.oracle import RECORDED, run_java

HERE = Path(__file__).parent
CASES = HERE / "cases.json.gz"
STORES = ("kv", "tskv", "window", "tswindow", "session", "versioned")
RETENTION_MS, WINDOW_SIZE_MS = 300_000, 10_000
KEYS = ("a", "b", "ba", "bb", "c", "ä", "")
TIMES = (0, 1, 9_999, 10_000, 60_000, 150_000, 150_001, 299_999, 400_000, 450_000)
BOUNDS = [(0, 9_223_372_036_854_775_807), (0, 10_000), (10_000, 150_000), (150_001, 150_001), (500_000, 600_000), (60_000, 10_000)]


def events() -> list[dict[str, Any]]:
    made: list[dict[str, Any]] = []
    for number, (key, time) in enumerate(itertools.product(KEYS, TIMES)):
        for store in STORES:
            if (number + len(store)) % 3:
                partition = KEYS.index(key) % 2
                event = {"p": partition, "k": key, "store": store, "v": f"{key}{number}", "ts": time}
                made.append({**event, "length": min(number % 4 * 100, time)})
    made.sort(key=lambda event: TIMES.index(event["ts"]) - 3 * (event["v"].endswith("7")))  # some are late
    for store, key in itertools.product(STORES, ("b", "c")):  # deletions
        made.append({"p": KEYS.index(key) % 2, "k": key, "store": store, "v": None, "ts": 450_000, "length": 0})
    made += [{"p": partition, "k": f"end{partition}", "store": "*", "v": "end", "ts": 460_000, "length": 0} for partition in (0, 1)]
    return made


def second_generation() -> list[dict[str, Any]]:
    ranges = [(None, None), ("a", "b"), ("b", None), (None, "ba"), ("bb", "a"), ("x", "z"), ("", "")]
    asked: list[dict[str, Any]] = []
    for store in STORES:
        for key in (*KEYS, "missing"):
            asked += [{"query": name, "store": store, "key": key} for name in ("key", "timestamped_key", "versioned_key", "versions")]
        asked.append({"query": "key", "store": store, "key": "a", "skip_cache": True})
        for name, (lower, upper), order in itertools.product(
            ("range", "timestamped_range"), ranges, ("any", "ascending", "descending")
        ):
            asked.append({"query": name, "store": store, "lower": lower, "upper": upper, "order": order})
        asked += [{"query": "window_range", "store": store, "key": key} for key in ("a", "ba", "missing")]
        asked += [{"query": "window_range", "store": store, "from": first, "to": last} for first, last in BOUNDS]
        for key, (first, last) in itertools.product(("a", "b", "ba", "missing"), BOUNDS):
            asked.append({"query": "window_key", "store": store, "key": key, "from": first, "to": last})
    for key, time in itertools.product(("a", "b", "ba", "c"), (*TIMES, 500_000)):
        asked.append({"query": "versioned_key", "store": "versioned", "key": key, "as_of": time})
    for key, (first, last), order in itertools.product(("a", "b", "ba"), BOUNDS, ("any", "ascending", "descending")):
        asked.append({"query": "versions", "store": "versioned", "key": key, "from": first, "to": last, "order": order})
        asked.append({"query": "versions", "store": "versioned", "key": key, "to": last, "order": order})
    for store, partitions in itertools.product(STORES, ([0], [1], [0, 1], [1, 7])):
        name = "versioned_key" if store == "versioned" else "key"
        asked.append({"query": name, "store": store, "key": "a", "partitions": partitions})
        asked.append({"query": name, "store": store, "key": "a", "partitions": partitions, "require_active": True})
    for store, bound in itertools.product(STORES, ({"0": 3}, {"0": 1_000_000}, {"1": 1_000_000}, {"7": 5}, {"0": 1, "1": 2})):
        name = "versioned_key" if store == "versioned" else "window_range" if store == "session" else "key"
        asked.append({"query": name, "store": store, "key": "a", "bound": bound})
        asked.append({"query": name, "store": store, "key": "a", "bound": bound, "require_active": True})
    return [*asked, {"query": "key", "store": "unknown", "key": "a"}]


def first_generation() -> list[dict[str, Any]]:
    reads: list[tuple[str, tuple[str, ...], str, list[Any]]] = []
    key_value, window = ("key_value_store", "timestamped_key_value_store"), ("window_store", "timestamped_window_store")
    for key in (*KEYS, "missing", None):
        reads.append(("kv tskv", key_value, "get", [key]))
        reads.append(("session", ("session_store",), "fetch", [key]))
        reads.append(("session", ("session_store",), "backward_fetch", [key]))
        if key is not None:
            reads.append(("kv tskv", key_value, "prefix_scan", [key]))
        for time in (0, 9_999, 150_000, 400_000):
            reads.append(("window tswindow", window, "fetch", [key, time]))
            reads.append(("session", ("session_store",), "fetch_session", [key, time, time]))
        for first, last in BOUNDS:
            reads += [("window tswindow", window, name, [key, first, last]) for name in ("fetch", "backward_fetch")]
            reads += [("session", ("session_store",), name, [key, first, last]) for name in ("find_sessions", "backward_find_sessions")]
    for bounds in ([None, None], ["a", "b"], ["b", None], [None, "ba"], ["bb", "a"], ["x", "z"]):
        reads += [("kv tskv", key_value, name, bounds) for name in ("range", "reverse_range")]
        reads += [("session", ("session_store",), name, bounds) for name in ("fetch_range", "backward_fetch_range")]
        for first, last in BOUNDS:
            reads += [("window tswindow", window, name, [*bounds, first, last]) for name in ("fetch_range", "backward_fetch_range")]
            reads += [
                ("session", ("session_store",), name, [*bounds, first, last])
                for name in ("find_sessions_range", "backward_find_sessions_range")
            ]
    reads += [("kv tskv", key_value, name, []) for name in ("all", "reverse_all")]
    reads += [("window tswindow", window, name, []) for name in ("all", "backward_all")]
    reads += [("window tswindow", window, name, list(bounds)) for name in ("fetch_all", "backward_fetch_all") for bounds in BOUNDS]
    asked = [
        {"read": read, "store": store, "type": kind, "args": args, **where}
        for stores, kinds, read, args in reads
        for store in stores.split()
        for kind in kinds
        for where in ({}, {"partition": 0}, {"partition": 1})
    ]
    types = (*key_value, *window, "session_store")
    refused = [
        {"read": "all", "store": store, "type": kind, "args": []}
        for store in (*STORES, "unknown")
        for kind in types
        if (store, kind) != ("session", "session_store")
    ]
    return [*asked, *refused]


def answers(cases: dict[str, Any], version: str) -> Any:
    """Return the results of a version of Kafka Streams."""
    with tempfile.TemporaryDirectory() as scratch, EmbeddedBroker() as broker:
        (Path(scratch) / "cases.json").write_text(json.dumps(cases), encoding="utf-8")
        arguments = broker.bootstrap_servers, f"{scratch}/cases.json", f"{scratch}/state"
        return json.loads(run_java([HERE / "QueryOracle.java"], *arguments, version=version))


def main() -> None:
    cases: dict[str, Any] = {
        "topic": "queried", "partitions": 2, "retention_ms": RETENTION_MS, "window_size_ms": WINDOW_SIZE_MS,
        "events": events(), "queries": [*first_generation(), *second_generation()],
    }  # fmt: skip
    results = answers(cases, RECORDED)
    assert len(results) == len(cases["queries"])
    cases["results"] = results
    CASES.write_bytes(gzip.compress(json.dumps(cases, ensure_ascii=False).encode(), mtime=0))
    print(f"{len(results)} queries over {len(cases['events'])} events, {sum('error' in result for result in results)} errors")


if __name__ == "__main__":
    main()
