"""Write cases.json.gz: operations on stores with headers, and what Kafka Streams' own returned and logged; and queries.json.gz: queries of
such stores (KIP-1356), and its answers.

``python -m tests.conformance.headers.make_cases``; needs a JDK.
"""

from __future__ import annotations

import gzip
import itertools
import json
import random
import tempfile
from pathlib import Path
from typing import Any

from workshop.conformance.oracle import RECORDED, VERSIONS, run_java

HERE = Path(__file__).parent
CASES, QUERIES = HERE / "cases.json.gz", HERE / "queries.json.gz"
KEYS = ("a", "b", "ba", "c", "ä", "")
HEADERS: tuple[list[list[str | None]], ...] = (
    [], [["h", "x"]], [["h", None]], [["h", "1"], ["h", "2"]], [["ä", "ö" * 40], ["", ""]], [["n", "v" * 200]],
    [[f"h{number}", str(number)] for number in range(70)],
)  # fmt: skip
VALUES = ("v", "", "w" * 130, None)
READS = {
    "key-value": (
        {"op": "get"}, {"op": "all"}, {"op": "range", "low": "a", "high": "b"}, {"op": "reverse_range", "low": None, "high": "c"},
        {"op": "prefix_scan", "low": "b"},
    ),
    "window": (
        {"op": "get", "start": 10}, {"op": "fetch", "from": 0, "to": 100}, {"op": "backward_fetch", "from": 0, "to": 40},
        {"op": "fetch_all", "from": 10, "to": 30}, {"op": "all"},
    ),
    "session": (
        {"op": "get", "start": 10, "end": 20}, {"op": "find", "from": 0, "to": 50}, {"op": "backward_find", "from": 10, "to": 60},
        {"op": "fetch"},
    ),
}  # fmt: skip


def write(store: str, pick: random.Random) -> dict[str, Any]:
    """Return a write of a kind of store."""
    what: dict[str, Any] = {"v": pick.choice(VALUES), "h": pick.choice(HEADERS)}
    if store == "session":
        start, length = pick.choice((0, 10, 30)), pick.choice((0, 10))
        return {"op": pick.choice(("put", "put", "put", "remove")), **what, "start": start, "end": start + length}
    what["t"] = pick.randrange(100)
    if store == "window":
        return {"op": "put", **what, "start": pick.choice((0, 10, 20, 30))}
    name = pick.choice(("put", "put", "put", "put_if_absent", "delete", "put_all"))
    if name == "put_all":
        all_ = [{"k": pick.choice(KEYS), "v": pick.choice(VALUES), "t": pick.randrange(100), "h": pick.choice(HEADERS)} for _ in range(3)]
        return {"op": name, "all": all_}
    return {"op": name, **what}


def case(store: str, seed: int, *, cached: bool, in_memory: bool) -> dict[str, Any]:
    """Return one case."""
    pick = random.Random(f"{store} {seed}")
    ops = []
    for number in range(60):
        op = pick.choice(READS[store]) if number % 2 else write(store, pick)
        ops.append({**op, "k": pick.choice(KEYS[:-1]), "ts": number, "rh": pick.choice(HEADERS[:4])})
    return {"store": store, "cached": cached, "in_memory": in_memory, "ops": ops}


QUERIED = {
    "key-value": [
        *({"query": "key", "key": key} for key in (*KEYS[:-1], "missing")),
        *(
            {"query": "range", "low": low, "high": high, "order": order}
            for low, high in ((None, None), ("a", "b"), ("b", None), (None, "ba"), ("x", "z"))
            for order in ("any", "ascending", "descending")
        ),
    ],
    "window": [
        *({"query": "window_key", "key": key, "from": 0, "to": to} for key in (*KEYS[:-1], "missing") for to in (10, 100)),
        *({"query": "window_range", "from": start, "to": to} for start, to in ((0, 100), (10, 20), (50, 60))),
    ],
    "session": [],
}
QUERIED["session"] = [{"query": "window_range", "key": key} for key in (*KEYS[:-1], "missing")]
"""By kind of store its queries; each is also asked of the other kinds, which do not answer it."""


def query_cases() -> list[dict[str, Any]]:
    """Return writes, then queries, for stores of each kind."""
    cases = []
    for store, seed in itertools.product(QUERIED, range(2)):
        pick = random.Random(f"queries of {store} {seed}")
        ops = [{**write(store, pick), "k": pick.choice(KEYS[:-1])} for _ in range(40)]
        ops += QUERIED[store] + [query for other in QUERIED if other != store for query in QUERIED[other][:1] + QUERIED[other][-1:]]
        cases.append({"store": store, "ops": [{"k": "a", "rh": [], **op, "ts": number} for number, op in enumerate(ops)]})
    return cases


def query_answers(cases: list[dict[str, Any]]) -> Any:
    """Return the answers of the newest version; the one before it does not have these queries."""
    with tempfile.TemporaryDirectory() as scratch:
        (Path(scratch) / "cases.json").write_text(json.dumps(cases), encoding="utf-8")
        sources = [HERE / "HeaderQueryOracle.java", HERE / "HeaderOracle.java"]
        return json.loads(run_java(sources, f"{scratch}/cases.json", scratch, version=VERSIONS[-1]))


def answers(cases: dict[str, Any], version: str) -> Any:
    """Return the answers of a version of Kafka Streams."""
    with tempfile.TemporaryDirectory() as scratch:
        (Path(scratch) / "cases.json").write_text(json.dumps(cases), encoding="utf-8")
        return json.loads(run_java([HERE / "HeaderOracle.java"], f"{scratch}/cases.json", scratch, version=version))


def main() -> None:
    cases: dict[str, Any] = {
        "rows": [
            {"v": value, "h": headers, **({"t": time} if time is not None else {})}
            for value, headers, time in itertools.product(VALUES[:3], HEADERS, (0, 5, -1, 2**53, None))
        ],
        "cases": [
            case(store, seed, cached=cached, in_memory=memory)
            for store, cached, memory, seed in itertools.product(READS, (False, True), (False, True), range(3))
        ],
    }
    results = answers(cases, RECORDED)
    assert len(results["results"]) == len(cases["cases"])
    CASES.write_bytes(gzip.compress(json.dumps({**cases, "answers": results}, ensure_ascii=False).encode(), mtime=0))
    queries = query_cases()
    told = query_answers(queries)
    QUERIES.write_bytes(gzip.compress(json.dumps({"cases": queries, "answers": told}, ensure_ascii=False).encode(), mtime=0))
    print(f"{len(cases['rows'])} rows, {len(cases['cases'])} cases with {sum(len(each['ops']) for each in cases['cases'])} operations")


if __name__ == "__main__":
    main()
