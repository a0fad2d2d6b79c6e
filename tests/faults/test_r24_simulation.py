"""R24: the commit and take-over protocols under a seeded clock, network, disk and scheduler."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.faults.counts import ALIGNED_SEEDS, CALL_SEEDS, SEEDS, SQL_SEEDS, full
from tests.faults.reliability import note
from tests.faults.simulation.seed import run_seed
from tests.faults.simulation.steps import STEPS

ROOT = Path(__file__).parents[2]


def _run(first: int, count: int, *options: str) -> list[str]:
    """What went wrong in these seeds, run by two processes."""
    halves = [(first, count // 2), (first + count // 2, count - count // 2)]
    command = [sys.executable, "-m", "tests.faults.simulation", *options]
    environment = os.environ | {"PYTHONPATH": str(ROOT)}
    running = [
        subprocess.Popen([*command, str(start), str(many)], cwd=ROOT, env=environment, stdout=subprocess.PIPE, text=True)
        for start, many in halves
    ]
    told = [process.communicate()[0] for process in running]
    return [text for process, text in zip(running, told, strict=True) if process.returncode]


@pytest.mark.timeout(600)
def test_no_seed_breaks_a_guarantee() -> None:
    wrong = _run(0, SEEDS)
    note("R24", "simulated runs", SEEDS, len(wrong))
    assert not wrong, "\n".join(wrong[:5])


@pytest.mark.slow
@pytest.mark.timeout(3600)
def test_no_seed_of_very_many_breaks_a_guarantee() -> None:
    count = full(10_000)
    wrong = _run(SEEDS, count)
    note("R24", "simulated runs, further seeds", count, len(wrong))
    assert not wrong, "\n".join(wrong[:5])


@pytest.mark.timeout(600)
def test_no_seed_with_asynchronous_calls_breaks_order_state_or_output() -> None:
    """Calls that take time, fail and run into their limit, while instances are killed, stopped, replaced and cut off."""
    wrong = _run(0, CALL_SEEDS, "--calls")
    note("R24", "simulated runs with asynchronous calls", CALL_SEEDS, len(wrong))
    assert not wrong, "\n".join(wrong[:5])


@pytest.mark.slow
@pytest.mark.timeout(3600)
def test_no_seed_of_very_many_with_asynchronous_calls_breaks_order_state_or_output() -> None:
    count = full(1_000)
    wrong = _run(CALL_SEEDS, count, "--calls")
    note("R24", "simulated runs with asynchronous calls, further seeds", count, len(wrong))
    assert not wrong, "\n".join(wrong[:5])


@pytest.mark.timeout(600)
def test_no_seed_with_an_aggregate_by_sql_breaks_its_state() -> None:
    """Partials go through a repartition topic, while instances are killed, stopped, replaced and cut off."""
    wrong = _run(0, SQL_SEEDS, "--sql")
    note("R24", "simulated runs with an aggregate by SQL", SQL_SEEDS, len(wrong))
    assert not wrong, "\n".join(wrong[:5])


@pytest.mark.slow
@pytest.mark.timeout(3600)
def test_no_seed_of_very_many_with_an_aggregate_by_sql_breaks_its_state() -> None:
    count = full(500)
    wrong = _run(SQL_SEEDS, count, "--sql")
    note("R24", "simulated runs with an aggregate by SQL, further seeds", count, len(wrong))
    assert not wrong, "\n".join(wrong[:5])


@pytest.mark.timeout(600)
def test_no_seed_with_alignment_in_event_time_deadlocks() -> None:
    """Instances that wait for each other's partitions, while some are killed, stopped, replaced and cut off."""
    wrong = _run(0, ALIGNED_SEEDS, "--aligned")
    note("R24", "simulated runs with alignment in event time", ALIGNED_SEEDS, len(wrong))
    assert not wrong, "\n".join(wrong[:5])


@pytest.mark.slow
@pytest.mark.timeout(3600)
def test_no_seed_of_very_many_with_alignment_in_event_time_deadlocks() -> None:
    count = full(500)
    wrong = _run(ALIGNED_SEEDS, count, "--aligned")
    note("R24", "simulated runs with alignment in event time, further seeds", count, len(wrong))
    assert not wrong, "\n".join(wrong[:5])


def test_a_partial_that_is_merged_in_a_wrong_way_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    """The newest partial takes the place of what was counted before."""
    monkeypatch.setattr("kstreams_repl.engine.operators.batches.merged_columns._Column._sum", lambda column, old, new, both: new)
    merging = "kstreams_repl.engine.operators.batches.stream_sql_aggregate.MergePartials.__call__"
    monkeypatch.setattr(merging, lambda merge, key, partial, row: partial[0])
    wrong = [verdict.violations for seed in range(2) if (verdict := run_seed(seed, sql=True)).violations]
    assert any("totals changelog" in text for texts in wrong for text in texts), wrong


def test_a_commit_that_forgets_what_waits_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    """The naive commit: it covers the offsets of records whose calls have not ended."""
    monkeypatch.setattr("kstreams_repl.engine.runtime.calls.async_node.AsyncNode.write", lambda node: None)
    wrong = [verdict.violations for seed in range(4) if (verdict := run_seed(seed, calls=True)).violations]
    assert any("lost" in text for texts in wrong for text in texts), wrong


@pytest.mark.slow
def test_a_seed_replays_byte_for_byte_in_another_process() -> None:
    def trace(hash_seed: str) -> bytes:
        environment = os.environ | {"PYTHONHASHSEED": hash_seed, "PYTHONPATH": str(ROOT)}
        command = [sys.executable, "-m", "tests.faults.simulation", "--trace", "7", "3"]
        done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, check=True)
        return done.stdout.partition(b" seeds, ")[0]

    first = trace("1")
    assert first.count(b"\n") > 100
    assert trace("2") == first


@pytest.mark.parametrize("name", STEPS)
def test_step_of_the_take_over(name: str) -> None:
    STEPS[name]()
