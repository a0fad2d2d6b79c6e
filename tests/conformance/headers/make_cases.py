"""Write cases.json.gz: operations on stores with headers, and what Kafka Streams' own returned and logged.

``python -m tests.conformance.headers.make_cases``; needs a JDK.
"""

from __future__ import annotations

import gzip
import itertools
import json
import random
import subprocess
import tempfile
from pathlib import Path
from typing import Any

from kstreams_repl.host.kafka.embedded.jars import ensure_jars, parse_lock
from workshop.bench.peers.kafka_streams import find_jdk, peer_jars

HERE = Path(__file__).parent
CASES = HERE / "cases.json.gz"
TEST_DRIVER = (
    "org.apache.kafka:kafka-streams-test-utils:4.3.1 66449 e84547c830b86dffdc4f5556d9d58fd1de5020a820b0de34d837b27aa4452d8c"
)
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


def main() -> None:
    jdk = find_jdk()
    assert jdk is not None, "needs a JDK"
    path = ":".join(map(str, (*ensure_jars(jars=peer_jars()), *ensure_jars(), *ensure_jars(jars=parse_lock(TEST_DRIVER)))))
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
    with tempfile.TemporaryDirectory() as scratch:
        (Path(scratch) / "cases.json").write_text(json.dumps(cases), encoding="utf-8")
        subprocess.run([str(jdk / "bin" / "javac"), "-nowarn", "-cp", path, "-d", scratch, str(HERE / "HeaderOracle.java")], check=True)
        command = [str(jdk / "bin" / "java"), "-Xmx512m", "-cp", f"{scratch}:{path}", "HeaderOracle", f"{scratch}/cases.json", scratch]
        done = subprocess.run(command, stdout=subprocess.PIPE, check=True, timeout=300)
    results = json.loads(done.stdout[done.stdout.index(b'{"rows"') :])
    assert len(results["results"]) == len(cases["cases"])
    CASES.write_bytes(gzip.compress(json.dumps({**cases, "answers": results}, ensure_ascii=False).encode(), mtime=0))
    print(f"{len(cases['rows'])} rows, {len(cases['cases'])} cases with {sum(len(each['ops']) for each in cases['cases'])} operations")


if __name__ == "__main__":
    main()
