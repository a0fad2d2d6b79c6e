"""The division of the tests over processes, as a small suite with the folders of this one is run."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

from tests.by_file import LONGEST_FIRST

ROOT = Path(__file__).resolve().parents[2]
TEST = """
import json, os, time
from pathlib import Path
import pytest

@pytest.mark.parametrize("number", range({count}))
def test_it(number):
    begin = time.monotonic()
    while {scope!r} == "spark" and Path("{log}").read_text().count("unit") < {cheap}:
        time.sleep(0.01)  # so that something is left when the other process has no cheap file any more
    with Path("{log}").open("a") as log:
        print(json.dumps([{scope!r}, os.environ["PYTEST_XDIST_WORKER"], begin, time.monotonic()]), file=log)
"""


def test_a_file_stays_in_one_process_and_expensive_ones_meet_only_when_nothing_cheap_is_left(tmp_path: Path) -> None:
    log = tmp_path / "log"
    log.touch()
    files = dict.fromkeys((f"tests/{folder}/test_{folder}.py" for folder in ("browser", "cluster", "spark")), 4)
    files |= dict.fromkeys((f"tests/unit/test_{number}.py" for number in range(3)), 3)
    for name, count in files.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(TEST.format(count=count, cheap=9, log=log, scope=name.split("/")[1]))
    (tmp_path / "tests/conftest.py").write_text(
        "def pytest_xdist_make_scheduler(config, log):\n"
        "    from tests.by_file import ByFile\n"
        "    return ByFile(config, log)\n"
    )
    (tmp_path / "tests/by_file.py").write_text((ROOT / "tests/by_file.py").read_text())
    (tmp_path / "pytest.ini").write_text("[pytest]\npythonpath = .\naddopts = --import-mode=importlib\n")
    command = [sys.executable, "-m", "pytest", "-q", "-p", "xdist", "-n", "2", "-p", "no:cacheprovider", "tests"]
    alone = {**os.environ, "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"}
    done = subprocess.run(command, cwd=tmp_path, env=alone, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    ran = [json.loads(line) for line in log.read_text().splitlines()]
    assert len(ran) == sum(files.values())
    processes = {folder: {worker for scope, worker, *_ in ran if scope == folder} for folder in ("browser", "cluster", "spark", "unit")}
    assert [len(processes[folder]) for folder in ("browser", "cluster", "spark")] == [1, 1, 1]
    assert processes["spark"] | processes["cluster"] | processes["browser"] == {"gw0", "gw1"}, "one process was idle"
    (first,) = processes["cluster"]
    assert [scope for scope, worker, *_ in ran if worker == first][:4] == ["cluster"] * 4
    last_cheap = max(begin for scope, _, begin, _ in ran if scope == "unit")
    early = {worker for scope, worker, begin, _ in ran if scope != "unit" and begin < last_cheap}
    assert early == {first}


def test_every_folder_of_tests_is_cheap_or_has_its_turn() -> None:
    folders = {path.parent.relative_to(ROOT / "tests").parts[0] for path in (ROOT / "tests").rglob("test_*.py")}
    assert folders == {*LONGEST_FIRST, "unit", "conformance"}
