"""Interactive queries of both generations: ours, over the files that tasks leave, against Kafka Streams' on a broker.

`queries/cases.json.gz` has the events, the queries and the JVM's results; `queries/make_cases.py` writes it. Not compared: the order of
partitions, which is that of threads in Kafka Streams, and positions of failures that have none there.
"""

from __future__ import annotations

import gzip
import json
from collections import Counter
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

import kstreams_repl as ks
from kstreams_repl.system.errors import CallError, InvalidStateStoreError, KStreamsError, NullKeyError, UnknownStateStoreError
from kstreams_repl.system.types import ValueAndTimestamp, VersionedRecord, Windowed
from tests.queried import TOPIC, State

CASES = json.loads(gzip.decompress((Path(__file__).parent / "queries" / "cases.json.gz").read_bytes()))
BOTH = list(zip(CASES["queries"], CASES["results"], strict=True))
KINDS = {
    "kv": ks.StoreKind.KEY_VALUE,
    "tskv": ks.StoreKind.TIMESTAMPED_KEY_VALUE,
    "window": ks.StoreKind.WINDOW,
    "tswindow": ks.StoreKind.TIMESTAMPED_WINDOW,
    "session": ks.StoreKind.SESSION,
    "versioned": ks.StoreKind.VERSIONED,
}
ERRORS: dict[str, tuple[type[KStreamsError], ...]] = {
    "NullPointerException": (NullKeyError, InvalidStateStoreError),  # ours refuses a type that does not fit before a null key
    "UnknownStateStoreException": (UnknownStateStoreError,),
    "InvalidStateStoreException": (InvalidStateStoreError,),
    "IllegalArgumentException": (CallError,),
}
ORDERS = {"any": lambda q: q, "ascending": lambda q: q.with_ascending_keys(), "descending": lambda q: q.with_descending_keys()}


def put(stores: Mapping[str, Any], event: dict[str, Any]) -> None:
    key, value, time = event["k"], event["v"], event["ts"]
    for name in KINDS if event["store"] == "*" else [event["store"]]:
        store = stores[name]
        if name == "kv":
            store.put(key, value)
        elif name == "tskv":
            store.put(key, None if value is None else (value, time))
        elif name == "window":
            store.put(key, value, time)
        elif name == "tswindow":
            store.put(key, None if value is None else (value, time + 1), time)
        elif name == "session":
            store.put(Windowed(key, time - event["length"], time), value)
        else:
            store.put(key, value, time)


@pytest.fixture(scope="module")
def state(tmp_path_factory: pytest.TempPathFactory) -> Iterator[State]:
    timed = {"retention_ms": CASES["retention_ms"]}
    sized = {**timed, "window_size_ms": CASES["window_size_ms"]}
    options = {"window": sized, "tswindow": sized, "session": timed, "versioned": timed}
    builders = [
        ks.StoreBuilder(name, kind, key_serde="string", value_serde="string", **options.get(name, {})) for name, kind in KINDS.items()
    ]
    made = State(tmp_path_factory.mktemp("state"), *builders)
    for partition in range(CASES["partitions"]):
        events = [event for event in CASES["events"] if event["p"] == partition]
        made.write(partition, lambda stores, events=events: [put(stores, event) for event in events], len(events))
    yield made
    made.local.close()


def show(value: Any) -> Any:
    if isinstance(value, ValueAndTimestamp):
        return [value.value, value.timestamp]
    if isinstance(value, VersionedRecord):
        return [value.value, value.timestamp, value.valid_to]
    if isinstance(value, Windowed):
        return [value.key, value.start, value.end]
    if isinstance(value, tuple):
        return [show(part) for part in value]
    return value if value is None or isinstance(value, str | int) else [show(row) for row in value]


def query_of(asked: dict[str, Any]) -> ks.queries.Query:
    key, order = asked.get("key"), asked.get("order", "any")
    match asked["query"]:
        case "key":
            made = ks.queries.KeyQuery.with_key(key)
            return made.skip_cache() if "skip_cache" in asked else made
        case "timestamped_key":
            return ks.queries.TimestampedKeyQuery.with_key(key)
        case "range":
            return ORDERS[order](ks.queries.RangeQuery.with_range(asked["lower"], asked["upper"]))
        case "timestamped_range":
            return ORDERS[order](ks.queries.TimestampedRangeQuery.with_range(asked["lower"], asked["upper"]))
        case "window_key":
            return ks.queries.WindowKeyQuery.with_key_and_window_start_range(key, asked["from"], asked["to"])
        case "window_range" if key is not None:
            return ks.queries.WindowRangeQuery.with_key(key)
        case "window_range":
            return ks.queries.WindowRangeQuery.with_window_start_range(asked["from"], asked["to"])
        case "versioned_key":
            query = ks.queries.VersionedKeyQuery.with_key(key)
            return query.as_of(asked["as_of"]) if "as_of" in asked else query
    versions = ks.queries.MultiVersionedKeyQuery.with_key(key).from_time(asked.get("from")).to_time(asked.get("to"))
    return {
        "any": lambda: versions,
        "ascending": versions.with_ascending_timestamps,
        "descending": versions.with_descending_timestamps,
    }[order]()


def second_generation(state: State, asked: dict[str, Any]) -> Any:
    request = ks.queries.StateQueryRequest.in_store(asked["store"]).with_query(query_of(asked))
    if "partitions" in asked:
        request = request.with_partitions(asked["partitions"])
    if "bound" in asked:
        bound = {int(partition): offset for partition, offset in asked["bound"].items()}
        request = request.with_position_bound(ks.queries.PositionBound.at(ks.queries.Position({TOPIC: bound})))
    if "require_active" in asked:
        request = request.require_active()
    shown: dict[str, Any] = {}
    with state.queries.query(request) as result:
        for partition, answer in result.partition_results.items():
            one = shown[str(partition)] = {}
            if answer.is_failure:
                one["failure"] = str(answer.failure_reason)
            else:
                one["result"] = show(answer.result)
            if answer.position is not None:
                one["position"] = {str(part): offset for part, offset in answer.position.partition_positions(TOPIC).items()}
    return {"partitions": shown}


def first_generation(state: State, asked: dict[str, Any]) -> Any:
    kind = getattr(ks.queries.QueryableStoreTypes, asked["type"])()
    store = state.queries.store(ks.queries.StoreQueryParameters(asked["store"], kind, asked.get("partition")))
    return {"result": show(getattr(store, asked["read"])(*asked["args"]))}


def sorted_rows(answer: Any) -> Any:
    rows = answer.get("result")
    return {"result": sorted(rows, key=json.dumps)} if isinstance(rows, list) and rows and isinstance(rows[0], list) else answer


def difference(state: State, asked: dict[str, Any], expected: Any) -> str | None:
    try:
        got = first_generation(state, asked) if "read" in asked else second_generation(state, asked)
    except KStreamsError as error:
        wanted = ERRORS.get(expected.get("error", ""), ())
        return None if isinstance(error, wanted) else f"{asked}\n  expected {expected}\n  got {error!r}"
    if expected.get("error") == "UnsupportedOperationException":  # a versioned store's answer to queries without a time
        reasons = {part.get("failure") for part in got["partitions"].values()}
        return None if reasons == {"UNKNOWN_QUERY_TYPE"} else f"{asked}\n  expected {expected}\n  got      {got}"
    if "read" in asked and "partition" not in asked:
        got, expected = sorted_rows(got), sorted_rows(expected)
    for partition, answer in expected.get("partitions", {}).items():
        if "failure" in answer and "position" not in answer:
            got["partitions"].get(partition, {}).pop("position", None)
    return None if got == expected else f"{asked}\n  expected {expected}\n  got      {got}"


def test_every_query_equals_the_jvm(state: State) -> None:
    different = [found for asked, expected in BOTH if (found := difference(state, asked, expected)) is not None]
    assert not different, f"{len(different)} of {len(BOTH)}:\n" + "\n".join(different[:12])


def test_the_family_covers_every_read_and_query() -> None:
    asked = Counter(query.get("read", query.get("query")) for query in CASES["queries"])
    rows = sum(len(show) for result in CASES["results"] if isinstance(show := result.get("result"), list))
    answers = [part for result in CASES["results"] for part in result.get("partitions", {}).values()]
    failures = Counter(part["failure"] for part in answers if "failure" in part)
    assert len(asked) == 25 and min(asked.values()) >= 2
    assert rows > 1_500
    assert failures.keys() == {"UNKNOWN_QUERY_TYPE", "NOT_UP_TO_BOUND", "NOT_PRESENT"}
