"""What the issues ask for, and whether a measurement has it."""

from __future__ import annotations

import json
from typing import Any

import click
import pytest
from click.testing import CliRunner

from kstreams_repl.engine.config import AT_LEAST_ONCE, EXACTLY_ONCE_V2
from kstreams_repl.system.errors import KStreamsError
from workshop.bench.rig import json_output
from workshop.bench.rig.targets import TARGETS, judged, targets_of
from workshop.bench.rig.testbed import where
from workshop.bench.rig.workloads import WORKLOADS


def verdict(bench: str, case: str, value: float, **fields: Any) -> Any:
    return judged({"bench": bench, "case": case, "value": value, "unit": "s", **fields}).get("met")


@pytest.mark.parametrize(
    ("bench", "case", "enough", "short"),
    [
        ("throughput", "stateless exactly_once_v2 ratio", 1.47, 1.46),
        ("throughput", "count exactly_once_v2 ratio", 2.71, 2.7),
        ("throughput", "sum exactly_once_v2 ratio", 2.28, 2.27),
        ("throughput", "window exactly_once_v2 ratio", 3.01, 3.0),
        ("throughput", "join exactly_once_v2 ratio", 1.7, 1.69),
        ("throughput", "stateless at_least_once ratio", 1.05, 1.04),
        ("throughput", "count at_least_once ratio", 2.2, 2.19),
        ("throughput", "sum at_least_once ratio", 1.8, 1.79),
        ("throughput", "window at_least_once ratio", 1.6, 1.59),
        ("throughput", "join at_least_once ratio", 1.2, 1.19),
        ("python-peers", "sum ratio", 1.01, 1.0),
        ("control", "deploy to first record", 1.2, 1.3),
        ("control", "pause", 0.3, 0.31),
        ("control", "resume to first record", 0.8, 0.81),
        ("control", "resume to first record after 75 s", 0.8, 0.81),
        ("control", "stop", 0.5, 0.51),
        ("many-applications", "all run, own pool", 30, 30.1),
        ("many-applications", "idle processor, shared pool", 15, 15.1),
        ("engine", "avro", 150_000, 149_999),
        ("engine", "protobuf", 150_000, 149_999),
        ("restore", "count, one instance", 500_000, 499_999),
        ("restore", "count, each of 2 instances", 500_000, 499_999),
        ("state-growth", "count, 10,000,000 keys", 5, 5.1),
        ("many-applications", "memory, own pool", 1200, 1201),
        ("first-result", "deploy to first result", 6, 6.1),
        ("state-growth", "count, 10,000,000 keys, kill -9 to ready", 5, 5.1),
        ("notebook", "edit to first record", 2, 2.1),
        ("notebook", "picture update", 0.1, 0.11),
    ],
)
def test_a_value_is_judged_by_the_figure_asked_for(bench: str, case: str, enough: float, short: float) -> None:
    assert verdict(bench, case, enough) is True
    assert verdict(bench, case, short) is False


@pytest.mark.parametrize(
    ("case", "enough", "short"),
    [
        ("50/s within an epoch", {"p50": 5, "p99": 20, "max": 400}, {"p50": 4, "p99": 21, "max": 60}),
        ("50/s within an epoch", {"of_floor": 1.3, "p99": 20}, {"of_floor": 1.31, "p99": 20}),
        ("50/s within an epoch", {"of_peer": 0.9, "p99": 20}, {"of_peer": 1.01, "p99": 20}),
        ("50/s at least once", {"p50": 3}, {"p50": 3.1}),
        ("50/s over 20 epoch turns", {"p95": 300, "max": 1000, "turns": 20}, {"p95": 301, "max": 400, "turns": 20}),
        ("50/s over 20 epoch turns", {"p95": 300, "max": 1000, "turns": 20}, {"p95": 20, "max": 1001, "turns": 20}),
        ("50/s over 20 epoch turns", {"p95": 300, "max": 1000, "turns": 20}, {"p95": 20, "max": 30, "turns": 19}),
        ("20000/s within an epoch", {"p99": 80}, {"p99": 81}),
    ],
)
def test_latency_is_judged_by_its_quantiles_and_the_turns_there_were(
    case: str, enough: dict[str, float], short: dict[str, float]
) -> None:
    assert verdict("latency", case, 1, **enough) is True
    assert verdict("latency", case, 1, **short) is False


def test_every_workload_has_a_floor_under_both_guarantees() -> None:
    assert all(targets_of("throughput", f"{one} {mode} ratio") for one in WORKLOADS for mode in (EXACTLY_ONCE_V2, AT_LEAST_ONCE))


def test_a_ratio_of_different_outputs_is_no_ratio() -> None:
    assert verdict("throughput", "count exactly_once_v2 ratio", 9.0, same_output=False) is False
    assert verdict("throughput", "count exactly_once_v2 ratio", 9.0, same_output=True) is True


def test_a_large_store_must_also_cost_half_of_the_peers_where_that_was_measured() -> None:
    assert verdict("state-growth", "count, 10,000,000 keys", 4.9) is True
    assert verdict("state-growth", "count, 10,000,000 keys", 4.9, of_peer=0.51) is False
    assert verdict("state-growth", "count, 10,000,000 keys", 4.9, of_peer=0.5) is True


def test_nothing_is_asked_of_a_peer_or_of_a_rate() -> None:
    assert judged({"bench": "throughput", "case": "count exactly_once_v2", "value": 1}) == {}
    assert judged({"bench": "state-growth", "case": "count, 10,000,000 keys kafka-streams", "value": 9}) == {}
    assert judged({"bench": "state-growth", "case": "count, 10,000 keys", "value": 9}) == {}


def test_a_line_tells_its_target_in_words(capsys: pytest.CaptureFixture[str]) -> None:
    json_output.emit("latency", "50/s over 20 epoch turns", 8, "ms", p95=17.0, max=94.5, turns=21)
    told = json.loads(capsys.readouterr().out)
    assert (told["target"], told["met"]) == ("p95 <= 300, max <= 1,000, turns >= 20", True)
    json_output.emit("throughput", "count exactly_once_v2 ratio", 2.0, "x", same_output=True)
    told = json.loads(capsys.readouterr().out)
    assert (told["target"], told["met"]) == (">= 2.71, same output", False)


def test_no_figure_is_asked_for_twice() -> None:
    assert all(len({(target.of, target.comparison) for target in asked}) == len(asked) for asked in TARGETS.values())


@click.command()
@click.option("--seconds", type=float, default=0.1)
@where
def pausing(seconds: float, bootstrap: str | None, directory: Any) -> None:
    json_output.emit("control", "pause", seconds, "s")
    json_output.emit("control", "stop", 0.1, "s")


def test_a_missed_target_is_told_and_fails_only_a_strict_command() -> None:
    run = CliRunner().invoke
    assert run(pausing, ["--seconds", "0.9"]).exit_code == 0
    assert run(pausing, ["--strict"]).exit_code == 0
    strict = run(pausing, ["--strict", "--seconds", "0.9"])
    assert strict.exit_code == 1
    assert isinstance(strict.exception, KStreamsError)
    assert "control: pause is 0.9 s, not <= 0.3" in str(strict.exception)
    assert "stop" not in str(strict.exception)
