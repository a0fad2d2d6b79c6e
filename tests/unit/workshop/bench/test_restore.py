from __future__ import annotations

import pytest

from kstreams_repl.host.spark.instance_reports import InstanceReport, TaskReport
from kstreams_repl.system.errors import KStreamsError
from workshop.bench.restore import rates_of

SIZES = {"0_0": 1000, "0_1": 3000}


def told(slot: int, at_ms: int, task: str) -> InstanceReport:
    return InstanceReport(slot, "running", 1, at_ms, tasks={task: TaskReport(task, 0, 0, 0, 0)})


def test_each_instance_has_the_rate_of_its_own_changelogs() -> None:
    ready = {0: told(0, 3000, "0_0"), 1: told(1, 2000, "0_1")}
    assert rates_of(ready, {0: 1000, 1: 1000}, SIZES) == [500.0, 3000.0]


@pytest.mark.parametrize("began", [{}, {0: 3000}])
def test_a_restore_too_short_to_be_seen_is_told_and_not_measured(began: dict[int, int]) -> None:
    with pytest.raises(KStreamsError, match="instance 0 had restored 1,000 records before its first report") as raised:
        rates_of({0: told(0, 3000, "0_0")}, began, SIZES)
    assert "--records" in str(raised.value.hint)
