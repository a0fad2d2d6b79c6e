"""Nexmark's events and queries, as far as they need no broker."""

from __future__ import annotations

import json
from collections import Counter
from functools import cache
from importlib.resources import files
from typing import Any

import pytest
from click.testing import CliRunner

from kstreams_repl import serdes
from kstreams_repl.testing import TopologyTestDriver
from workshop.bench.main import main
from workshop.bench.rig.nexmark_events import records_of, rows_of
from workshop.bench.rig.nexmark_queries import OWN, QUERIES
from workshop.bench.rig.nexmark_values import Values
from workshop.bench.rig.outputs import Output
from workshop.bench.rig.workloads import Row

EVENTS, FIRST_MS = 600, 1_700_000_000_000
EVENTS_OF = {"q2": 2500, "q3": 2500}
"""They take few of the auctions."""


@cache
def rows(kind: str, events: int) -> list[Row]:
    return list(rows_of(kind, events, first_ms=FIRST_MS))


def values(kind: str) -> list[Any]:
    return [json.loads(value) for _, value, _ in rows(kind, EVENTS)]


def values_in(format: str) -> Values:
    return Values(format, f"mock://nexmark-{format}")


def output_of(query: str, format: str = "json") -> list[tuple[bytes | None, bytes | None]]:
    """Return the output of a query whose input is in order of time."""
    chosen, form = QUERIES[query], values_in(format)
    kinds = [*(["side"] if query == "q13" else []), *chosen.reads]
    events = EVENTS_OF.get(query, EVENTS)
    encoded = {kind: form.encoded(kind, f"nexmark-{kind}", rows(kind, events)) for kind in kinds}
    inputs = [(at_ms, kind, key, value) for kind in kinds for key, value, at_ms in encoded[kind]]
    topology = chosen.topology("nexmark", "out", form)
    with TopologyTestDriver(topology, {"application.id": f"nexmark-{query}", "schema.registry.url": form.registry}) as driver:
        topics = {kind: driver.create_input_topic(f"nexmark-{kind}", serdes.bytes, serdes.bytes) for kind in kinds}
        for at_ms, kind, key, value in sorted(inputs, key=lambda row: row[0]):
            topics[kind].pipe_input(key, value, at_ms)
        records = driver.create_output_topic("out", serdes.bytes, serdes.bytes).read_records()
    return [(record.key, record.value) for record in records]


def test_of_fifty_events_one_is_a_person_three_are_auctions_and_the_others_bids() -> None:
    assert [records_of(kind, 100) for kind in ("person", "auction", "bid")] == [2, 6, 92]
    assert [len(list(rows_of(kind, 77, first_ms=0))) for kind in ("person", "auction", "bid")] == [2, 6, 69]
    assert [records_of(kind, 77) for kind in ("person", "auction", "bid")] == [2, 6, 69]


@pytest.mark.parametrize("kind", ["person", "auction", "bid", "orders", "side"])
def test_events_are_the_same_in_every_run(kind: str) -> None:
    assert list(rows_of(kind, 200, first_ms=5)) == list(rows_of(kind, 200, first_ms=5))


def test_every_second_bid_is_for_the_hot_auction_and_every_bid_is_close_to_its_auction() -> None:
    bids = values("bid")
    (_, hot), *_ = Counter(bid["auction"] for bid in bids).most_common()
    assert 0.4 < hot / len(bids) < 0.65
    created = {auction["id"]: auction["dateTime"] for auction in values("auction")}
    assert all(abs(bid["dateTime"] - created[bid["auction"]]) < 1000 for bid in bids if bid["auction"] in created)


@pytest.mark.parametrize("query", list(QUERIES))
def test_query_has_output_and_a_twin(query: str) -> None:
    assert output_of(query)
    assert f'case "{query}" ->' in files("workshop.bench.peers").joinpath("NexmarkTwins.java").read_text(encoding="utf-8")


@pytest.mark.parametrize("format", ["avro", "protobuf"])
@pytest.mark.parametrize("kind", ["person", "auction", "bid"])
def test_events_with_a_schema_are_the_json_events(kind: str, format: str) -> None:
    form = values_in(format)
    read = form(kind).for_topic(f"nexmark-{kind}").deserialize
    found = [(key, read(value), at_ms) for key, value, at_ms in form.encoded(kind, f"nexmark-{kind}", rows(kind, EVENTS))]
    expected = [(key, json.loads(value), at_ms) for key, value, at_ms in rows(kind, EVENTS)]
    assert found == expected
    assert [list(value) for _, value, _ in found] == [list(value) for _, value, _ in expected], "fields are in the same order"


@pytest.mark.slow
@pytest.mark.parametrize("format", ["avro", "protobuf"])
@pytest.mark.parametrize("query", [name for name, query in QUERIES.items() if query.reads != OWN and name != "q12"])
def test_output_does_not_depend_on_the_format_of_the_values(query: str, format: str) -> None:
    """q12 counts by the wall clock, so two runs of it differ."""
    assert output_of(query, format) == output_of(query)


def test_a_query_of_our_own_topic_has_json_values_only() -> None:
    done = CliRunner().invoke(main, ["nexmark", "--values", "avro", "--query", "q1", "--query", "hopping"])
    assert done.exit_code == 2
    assert "hopping read a topic of JSON values" in done.output


def test_best_bids_are_those_of_a_plain_loop_over_all_pairs() -> None:
    best: dict[int, Any] = {}
    bids = values("bid")
    for auction in values("auction"):
        offers = [bid for bid in bids if bid["auction"] == auction["id"] and auction["dateTime"] <= bid["dateTime"] <= auction["expires"]]
        if offers:
            best[auction["id"]] = max(offers, key=lambda bid: (bid["price"], -bid["dateTime"], bid["bidder"]))
    found = {serdes.long.deserialize(key or b""): json.loads(value or b"") for key, value in output_of("q9")}
    assert {key: (sale["price"], sale["bidder"]) for key, sale in found.items()} == {
        key: (bid["price"], bid["bidder"]) for key, bid in best.items()
    }


def test_auctions_with_the_most_bids_are_those_of_a_plain_count() -> None:
    counts: dict[int, Counter[int]] = {}
    for bid in values("bid"):
        for start in range((bid["dateTime"] - 10_000) // 2000 * 2000 + 2000, bid["dateTime"] + 1, 2000):
            counts.setdefault(start, Counter())[bid["auction"]] += 1
    expected = {start: max(counted.values()) for start, counted in counts.items()}
    found = {serdes.long.deserialize(key or b""): json.loads(value or b"") for key, value in output_of("q5")}
    assert {start: top["num"] for start, top in found.items()} == expected
    assert all(counts[start][auction] == top["num"] for start, top in found.items() for auction in top["auctions"])


def test_windows_of_processing_time_are_summed_by_key() -> None:
    rows = {b"key" + start.to_bytes(8, "big"): count.to_bytes(8, "big") for start, count in ((1, 2), (9, 5))}
    assert Output(2, rows).summed().last == {b"key": (7).to_bytes(8, "big")}
