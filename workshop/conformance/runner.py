"""Run conformance cases: build each with our own DSL, drive it with the test driver, compare step by step with the JVM's result.

A case fails on the first difference in: the error at build time, `describe()`, the trace (which records were forwarded at which
step), topics, stores, dump, dropped. Waivers are by id, each with its reason (docs/reference/divergences.md); a waived case that passes
counts as passed.
"""

from __future__ import annotations

import difflib
import gzip
import json
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from kstreams_repl import serdes
from kstreams_repl.system.errors import KStreamsError
from kstreams_repl.system.types import VersionedRecord, Windowed
from kstreams_repl.test_driver.driver import Mode, TopologyTestDriver
from workshop.conformance.loader import build_topology

BASE_CONFIG = {
    "application.id": "app",
    "default.key.serde": serdes.string,
    "default.value.serde": serdes.json,
    "repl.changelog.suppression": "false",
}
QUIRKS_WAIVED = frozenset({"as-of-valid-to"})
"""Quirks for which a case may fail. Kafka Streams' store knows until when a version was valid, but its typed wrapper omits it
(`MeteredVersionedKeyValueStore.get` with a time, and `delete`); here it is returned. All other quirks are as on the JVM.
"""


@dataclass(frozen=True, slots=True)
class Outcome:
    """Result of one case: `difference` is None if it passed; `waived` names the quirk for which a failing case is allowed to
    fail."""

    case_id: str
    difference: str | None
    waived: str | None = None


def read_cases(path: Path) -> Iterator[dict[str, Any]]:
    """Yield the cases of a file, one JSON object per line; a file that ends in ``.gz`` is compressed.

    Raises:
        KStreamsError: a line is not a case. Fields: ``path``, ``line``.
    """
    with gzip.open(path) if path.suffix == ".gz" else path.open("rb") as lines:
        for number, line in enumerate(lines, 1):
            if not line.strip():
                continue
            try:
                case = json.loads(line)
            except ValueError:
                case = None
            if not isinstance(case, dict) or "id" not in case:
                hint = "a case file is JSON Lines: one object with id, ops, events and expect in each line"
                raise KStreamsError(f"{path}, line {number} is not a conformance case", hint=hint, path=str(path), line=number)
            yield case


def run_case(case: dict[str, Any], *, mode: Mode = "exact") -> Outcome:
    """Build and run one case, and compare its results."""
    try:
        difference = _difference(case, mode)
    except Exception as error:  # an unexpected error is a failed case, reported with its location
        trace = error.__traceback__
        while trace is not None and trace.tb_next is not None:
            trace = trace.tb_next
        at = f" at {trace.tb_frame.f_code.co_filename.rsplit('/', 2)[-1]}:{trace.tb_lineno}" if trace else ""
        difference = f"{type(error).__name__}: {error}{at}"
    quirk = case.get("quirk")
    return Outcome(case["id"], difference, quirk if difference is not None and quirk in QUIRKS_WAIVED else None)


_FIELDS = {
    "case": frozenset("id intent config ops observe events expect api dump divergence quirk start_ms since".split()),
    "expect": frozenset("describe trace topics dropped stores dump error error_message".split()),
    "event": frozenset("t k v ts h wall".split()),
}


def _check_fields(case: dict[str, Any]) -> None:
    """Raise if a case has an unknown field, which would be silently ignored (fields of ops: `options.WatchedOp`)."""
    for what, part in (("case", case), ("expect", case["expect"]), *(("event", event) for event in case["events"])):
        unknown = sorted(set(part) - _FIELDS[what])
        if unknown:
            raise KeyError(f"unknown fields in part {what!r} of the case: {unknown}")


def _difference(case: dict[str, Any], mode: Mode) -> str | None:
    expect = case["expect"]
    _check_fields(case)
    config = BASE_CONFIG | case.get("config", {})
    try:
        topology = build_topology(case, config)
    except KStreamsError as error:
        return None if "error" in expect else f"refused at build: {error}"
    if "describe" in expect:
        shown = str(topology.describe())
        if shown != expect["describe"]:
            return "describe() differs\n" + _diff(expect["describe"].splitlines(), shown.splitlines())
    try:
        driver = TopologyTestDriver(topology, config, start_ms=case.get("start_ms", 0), mode=mode)
    except KStreamsError as error:
        return None if "error" in expect else f"refused by the driver: {error}"
    if "error" in expect:
        return f"expected to be refused with {expect['error']}, but it runs"
    with driver:
        return _compare_run(case, expect, driver)


def _compare_run(case: dict[str, Any], expect: dict[str, Any], driver: TopologyTestDriver) -> str | None:
    outputs = {
        topic: driver.create_output_topic(topic, *_observed_serdes(types))
        for topic, types in sorted(case.get("observe", {}).items())
    }
    keys: set[str] = set()
    failed = False
    for number, (event, want) in enumerate(zip(case["events"], expect["trace"], strict=False)):
        got: dict[str, Any] = {}
        try:
            _apply(driver, event, keys)
        except KStreamsError as error:
            got["error"] = str(error)
            failed = True
        for topic, output in outputs.items():
            if not output.is_empty():
                got[topic] = [_shown(record, case["observe"][topic]) for record in output.read_records()]
        if ("error" in want) != ("error" in got) or {k: v for k, v in want.items() if k != "error"} != {
            k: v for k, v in got.items() if k != "error"
        }:
            return f"step {number} {json.dumps(event)}\n" + _diff([json.dumps(want)], [json.dumps(got)])
        if failed:
            break
    if not failed and len(case["events"]) != len(expect["trace"]):
        return f"{len(case['events'])} events, but {len(expect['trace'])} steps of the trace"
    return _compare_end(case, expect, driver, keys, failed)


def _compare_end(
    case: dict[str, Any], expect: dict[str, Any], driver: TopologyTestDriver, keys: set[str], failed: bool
) -> str | None:
    topics = sorted(driver.produced_topic_names())
    if topics != expect.get("topics", topics):
        return "topics differ\n" + _diff(expect["topics"], topics)
    stores = {
        name: "persistent" if store.persistent else "in-memory" for name, store in sorted(driver.all_state_stores().items())
    }
    if "stores" in expect and stores != expect["stores"]:
        return "stores differ\n" + _diff(
            [f"{k}: {v}" for k, v in expect["stores"].items()], [f"{k}: {v}" for k, v in stores.items()]
        )
    if case.get("dump") and not failed:
        for name, want in expect["dump"].items():
            if want.get("type") in ("other", "unreadable") or _internal_rows(want):
                continue
            store = driver.state_store(name)
            if not hasattr(store, "get") and not hasattr(store, "fetch"):
                continue  # private to operators (outer join): processors cannot read it
            got = _dump(store, keys)
            if got != want["rows"]:
                return f"store {name} differs\n" + _diff(
                    [json.dumps(row) for row in want["rows"]], [json.dumps(row) for row in got]
                )
    if driver.dropped != expect.get("dropped", driver.dropped):
        return f"dropped: expected {expect['dropped']}, got {driver.dropped}"
    return None


_PRIVATE = ("org.apache.kafka", "SubscriptionWrapper", "LeftOrRight", "CombinedKey", "TimestampedKeyAndJoinSide")


def _internal_rows(want: dict[str, Any]) -> bool:
    """Return whether rows of private stores (outer join, foreign key) contain Kafka Streams' own Java text; these are not
    compared."""
    return any(isinstance(cell, str) and any(name in cell for name in _PRIVATE) for row in want.get("rows", ()) for cell in row)


def _apply(driver: TopologyTestDriver, event: dict[str, Any], keys: set[str]) -> None:
    if "wall" in event:
        driver.advance_wall_clock_time(event["wall"])
        return
    key = event.get("k")
    if key is not None:
        keys.add(key)
    headers = [(name, None if value is None else value.encode()) for name, value in event.get("h", ())]
    timestamp = event["ts"] if event["ts"] >= 0 else driver.now()
    driver.pipe_bytes(event["t"], serdes.string.serialize(key), serdes.json.serialize(event.get("v")), timestamp, headers)


def _observed_serdes(types: str) -> tuple[Any, Any]:
    key, value = types.split(",")
    if key.startswith("tw:"):
        key_serde: Any = serdes.time_windowed(serdes.string, int(key[3:]))
    else:
        key_serde = {"string": serdes.string, "sw": serdes.session_windowed(serdes.string), "bytes": serdes.bytes}[key]
    return key_serde, {"any": serdes.json, "long": serdes.long, "bytes": serdes.bytes}[value]


def _shown(record: Any, types: str) -> list[Any]:
    row = [_value(record.key), _value(record.value), record.timestamp]
    if record.headers:
        row.append([[name, None if value is None else value.decode(errors="replace")] for name, value in record.headers])
    return row


def _value(item: object) -> Any:
    if isinstance(item, Windowed):
        return str(item)
    return item.hex() if isinstance(item, bytes) else item


def _dump(store: Any, keys: set[str]) -> list[list[Any]]:
    rows: list[list[Any]] = []
    if hasattr(store, "prefix_scan"):
        entries: Iterable[tuple[Any, Any]] = store.all()
    elif hasattr(store, "fetch_session") or hasattr(store, "fetch_all"):
        entries = store.all()
    else:
        entries = [(key, version) for key in sorted(keys) if (version := store.get(key)) is not None]
    for key, value in entries:
        row = [str(key.key), key.start, key.end] if isinstance(key, Windowed) else [_value(key)]
        if isinstance(value, VersionedRecord):
            row += [_value(value.value), value.timestamp]
        elif isinstance(value, tuple):
            row += [_value(value[0]), value[1]]
        else:
            row.append(_value(value))
        rows.append(row)
    return rows


def _diff(want: list[str], got: list[str]) -> str:
    return "\n".join(difflib.unified_diff(want, got, "expected (JVM)", "got", lineterm="", n=2))
