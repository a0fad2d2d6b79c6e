"""What an epoch tells Spark."""

from __future__ import annotations

import subprocess
import sys

from kstreams_repl.host.instance.reports.epoch_result import EpochResult, TaskResult
from kstreams_repl.host.spark.epochs.epoch_rows import REPORT_SCHEMA, report_batch

TASKS = {"0_0": TaskResult(records=3, dropped=1, restored=2, lag=-1), "ü_1": TaskResult(records=2**40, lag=0)}


def test_each_task_is_a_row() -> None:
    batch = report_batch(EpochResult(1, "running", TASKS, None, True, 0.5))
    batch.validate(full=True)
    assert batch.schema == REPORT_SCHEMA
    first = {"slot": 1, "task": "0_0", "state": "running", "records": 3, "warm": True, "error": None}
    assert batch.to_pylist()[0] == first | {"dropped": 1, "restored": 2, "lag": -1, "seconds": 0.5}
    assert batch.to_pylist()[1] == first | {"task": "ü_1", "records": 2**40, "dropped": 0, "restored": 0, "lag": 0, "seconds": 0.5}


def test_more_rows_than_bits_in_a_byte() -> None:
    tasks = {f"0_{number}": TaskResult(records=number) for number in range(19)}
    batch = report_batch(EpochResult(0, "running", tasks, None, True, 0.0))
    batch.validate(full=True)
    assert batch.column("warm").to_pylist() == [True] * 19
    assert batch.column("task").to_pylist() == list(tasks)
    assert report_batch(EpochResult(0, "running", tasks, None, False, 0.0)).column("warm").to_pylist() == [False] * 19


def test_a_failure_is_told_with_the_slots_row_when_it_has_no_task() -> None:
    (row,) = report_batch(EpochResult(0, "failed", {}, {"message": "no"}, False, 0.0)).to_pylist()
    assert (row["task"], row["error"], row["lag"]) == ("", '{"message": "no"}', 0)


def test_a_report_imports_no_pandas() -> None:
    program = (
        "import sys; from kstreams_repl.host.instance.reports.epoch_result import EpochResult; "
        "from kstreams_repl.host.spark.epochs.epoch_rows import report_batch; "
        "report_batch(EpochResult(0, 'running', {}, None, False, 0.0)); print('pandas' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "False"
