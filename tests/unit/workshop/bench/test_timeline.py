"""Where the time of a record goes."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from kstreams_repl.engine.commit import failpoints
from workshop.bench.rig.timeline import STEPS, Stamps, medians, read_stamps, slowest


@pytest.fixture(autouse=True)
def no_hooks_remain() -> Iterator[None]:
    yield
    for point in ("F1", "F3", "F4", "F5", "F7", "F8"):
        failpoints.hook(point, None)


def test_stamps_of_a_record_are_in_the_order_of_its_steps(tmp_path: Path) -> None:
    passed = Stamps(tmp_path)
    passed(b"1")  # the first one hooks the process's failpoints
    for sent in (b"2", b"3"):
        for point in ("F1", "", "F3", "F4", "F5", "F7", "F8"):
            assert passed(sent) == sent if not point else failpoints.failpoint(point) is None
    times = read_stamps(tmp_path, {2: 2**62, 3: 2**62})
    assert [row["sent"] for row in times] == [2, 3]
    assert all(list(row) == list(STEPS) and sorted(row.values()) == list(row.values()) for row in times)


def test_records_that_did_not_arrive_have_no_times(tmp_path: Path) -> None:
    (tmp_path / "7").write_text("10 20 30 40 50 60 70\n11 21 31 41 51 61 71\n", encoding="ascii")
    assert read_stamps(tmp_path, {11: 90}) == [dict(zip(STEPS, (11, 21, 31, 41, 51, 61, 71, 90), strict=True))]


def test_a_step_is_measured_from_the_one_before_that_happened() -> None:
    rows = [{"sent": 1, "polled": 1_000_001, "committed": latest, "read": latest} for latest in (3_000_001, 5_000_001, 9_000_001)]
    assert medians(rows) == {"polled": 1.0, "committed": 4.0, "read": 0.0}


def test_the_slowest_are_those_that_took_longest_from_sent_to_read() -> None:
    rows = [{"sent": number, "read": 2 * number} for number in range(200)]
    assert [row["sent"] for row in slowest(rows)] == [198, 199]
    assert len(slowest(rows[:5])) == 1
