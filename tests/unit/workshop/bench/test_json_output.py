"""What a benchmark prints."""

from __future__ import annotations

import json

import pytest

from workshop.bench.rig import json_output


def test_a_measurement_is_one_json_line_without_empty_fields(capsys: pytest.CaptureFixture[str]) -> None:
    json_output.emit("throughput", "count", 5, "records/s", runs=3, peer=None)
    assert json.loads(capsys.readouterr().out) == {"bench": "throughput", "case": "count", "value": 5, "unit": "records/s", "runs": 3}


def test_quantiles_are_values_that_were_measured() -> None:
    found = json_output.quantiles([float(number) for number in range(1, 101)])
    assert found == {"p50": 51.0, "p95": 96.0, "p99": 100.0, "max": 100.0}


def test_quantiles_of_one_value_are_that_value() -> None:
    assert set(json_output.quantiles([7.0]).values()) == {7.0}


def test_spread_and_median_are_whole_unless_digits_are_asked_for() -> None:
    assert json_output.spread([1.4, 2.6]) == {"min": 1, "max": 3, "runs": 2}
    assert json_output.median([0.1234, 0.5], digits=2) == 0.31


def test_machine_line_tells_cores_load_and_versions(capsys: pytest.CaptureFixture[str]) -> None:
    line = json_output.emit_machine()
    assert json.loads(capsys.readouterr().out) == line
    assert line["value"] >= 1
    assert len(line["load"]) == 3
    assert "python" in line["versions"]
