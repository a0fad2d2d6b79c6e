"""Theodolite's and ShuffleBench's queries, as far as they need no broker."""

from __future__ import annotations

import json
import pickle
import statistics
import struct
from collections import Counter, defaultdict
from functools import cache
from importlib.resources import files

import pytest

from kstreams_repl import serdes
from kstreams_repl.testing import TopologyTestDriver
from workshop.bench.rig.theodolite_queries import QUERIES, EventRouter, group_rows, rows_of
from workshop.bench.rig.workloads import Row

FIRST_MS, SENSORS, ROUNDS = 1_700_000_000_000, 16, 100
RECORDS = {"shuffle-100000": 20_000, "shuffle-1000000": 20_000}


@cache
def rows(query: str) -> list[Row]:
    return list(rows_of(query, SENSORS, first_ms=FIRST_MS, records=RECORDS.get(query, SENSORS * ROUNDS)))


@cache
def output_of(query: str) -> list[tuple[str, bytes]]:
    chosen = QUERIES[query]
    with TopologyTestDriver(chosen.topology("t", "out")) as driver:
        if chosen.tables:
            groups = driver.create_input_topic("t-groups", serdes.bytes, serdes.bytes)
            groups.pipe_records(group_rows(SENSORS, at_ms=FIRST_MS - 1))
        driver.create_input_topic("t-input", serdes.bytes, serdes.bytes).pipe_records(rows(query))
        records = driver.create_output_topic("out", serdes.string, serdes.bytes).read_records()
    return [(record.key, record.value) for record in records]


@pytest.mark.slow
@pytest.mark.parametrize("query", list(QUERIES))
def test_query_has_output_and_a_twin(query: str) -> None:
    assert output_of(query)
    assert f'case "{query}" ->' in files("workshop.bench.peers").joinpath("TheodoliteTwins.java").read_text(encoding="utf-8")


def test_each_sensor_has_one_record_a_second_and_the_last_round_comes_a_minute_later() -> None:
    measured = [(json.loads(value), at_ms) for _, value, at_ms in rows("uc1")]
    of_one = [at_ms for row, at_ms in measured if row["identifier"] == "s_3"]
    assert {row["identifier"] for row, _ in measured} == {f"s_{number}" for number in range(SENSORS)}
    assert {later - before for before, later in zip(of_one, of_one[1:-1], strict=False)} == {1000}
    assert of_one[-1] - of_one[-2] == 61_000
    assert all(row["timestamp"] == at_ms for row, at_ms in measured)


def test_sixteen_sensors_have_four_groups_and_these_one() -> None:
    groups = {key.decode(): value.decode() for key, value, _ in group_rows(SENSORS, at_ms=0)}
    assert [groups["s_0"], groups["s_15"], groups["g_1_0"], groups["g_1_3"]] == ["g_1_0", "g_1_3", "g_2_0", "g_2_0"]
    assert len(groups) == 20
    assert group_rows(1, at_ms=0) == [(b"s_0", b"g_1_0", 0)]


def test_statistics_are_those_of_the_values_of_a_window() -> None:
    values = defaultdict(list)
    for _, value, at_ms in rows("uc2"):
        row = json.loads(value)
        values[f"{row['identifier']}@{at_ms // 60_000 * 60_000}"].append(row["valueInW"])
    found = {key: dict(part.split("=") for part in text.decode().split(", ")) for key, text in output_of("uc2")}
    assert found.keys() == values.keys()
    for key, watts in values.items():
        assert [int(found[key][name]) for name in ("count", "min", "max")] == [len(watts), min(watts), max(watts)]
        assert int(found[key]["mean"]) == pytest.approx(statistics.fmean(watts) * 1000, abs=1)
        assert int(found[key]["populationVariance"]) == pytest.approx(statistics.pvariance(watts) * 1000, rel=1e-6, abs=1)


def test_a_record_counts_in_thirty_windows_of_its_hour() -> None:
    found = {key: text for key, text in output_of("uc3") if key.startswith("s_3@")}
    assert len({key.rpartition("@")[2] for key in found}) == 30
    counts = Counter(at_ms // 3_600_000 % 24 for _, value, at_ms in rows("uc3") if b'"s_3"' in value)
    assert {int(key.split("@")[1]) for key in found} == set(counts)
    assert all(text.startswith(f"count={counts[int(key.split('@')[1])]},".encode()) for key, text in found.items())


@pytest.mark.slow
def test_a_group_of_groups_has_the_sum_of_the_last_values_of_its_sensors() -> None:
    last: dict[int, dict[str, int]] = defaultdict(dict)
    before_the_last_round = rows("uc4")[:-SENSORS]
    for _, value, at_ms in before_the_last_round:
        row = json.loads(value)
        last[at_ms // 5000 * 5000][row["identifier"]] = row["valueInW"]
    totals = {key: json.loads(value) for key, value in output_of("uc4")}
    of_all = {key: total for key, total in totals.items() if key.startswith("g_2_0@")}
    assert {key: total["sumInW"] for key, total in of_all.items()} == {f"g_2_0@{start}": sum(of.values()) for start, of in last.items()}
    assert all(total["count"] == 4 and total["averageInW"] == total["sumInW"] // 4 for total in of_all.values())


def test_a_record_matches_the_consumers_whose_range_contains_it_also_across_zero() -> None:
    router = EventRouter(3)
    last = router._offsets[-1]
    assert last + router._width > 2**63
    for at in (*(number * (2**63 // 500) for number in range(500)), (last + router._width - 1) % 2**63, last, last - 1):
        expected = {f"consumer_{i}" for i, begin in enumerate(router._offsets) if (at - begin) % 2**63 < router._width}
        assert {key for key, _ in router(None, (at << 1).to_bytes(8, "big"))} == expected


def test_a_router_is_pickled_without_its_rules() -> None:
    assert len(pickle.dumps(EventRouter(100_000))) < 200
    assert pickle.loads(pickle.dumps(EventRouter(1000)))._offsets == EventRouter(1000)._offsets


@pytest.mark.slow
def test_every_fifth_record_reaches_a_consumer_and_the_tenth_of_a_consumer_is_written() -> None:
    router, matches = EventRouter(100_000), Counter[str]()
    for _, data, _ in rows("shuffle-100000"):
        matches.update(key for key, _ in router(None, data))
    assert 3_700 < matches.total() < 4_300
    expected = {key: (int(key[9:]) % 10 + number) // 10 for key, number in matches.items()}
    assert Counter(key for key, _ in output_of("shuffle-100000")) == Counter(expected)
    assert {struct.unpack(">qQqq", value)[0] for _, value in output_of("shuffle-100000")} == {10}
