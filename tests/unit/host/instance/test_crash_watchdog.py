"""What the next process finds out about one that died in user code."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from kstreams_repl import StreamsBuilder
from kstreams_repl.engine.config import StreamsConfig
from kstreams_repl.engine.runtime.task import TaskSpec
from kstreams_repl.host.instance.application_plan import ApplicationPlan
from kstreams_repl.host.instance.failures.crash_location import WorkerCrash, crash_of_stack
from kstreams_repl.host.instance.failures.crash_watchdog import CALM_SECONDS, CrashWatchdog
from kstreams_repl.host.kafka.clients import ClientSettings
from kstreams_repl.system.errors import WorkerDiedError
from kstreams_repl.system.types import TaskId, TopicPartition

ROOT = Path(__file__).parents[4]
IN = TopicPartition("in", 0)
DIE = """
import os, signal, sys, pickle
from pyspark import cloudpickle
from kstreams_repl.host.instance.failures.crash_watchdog import CrashWatchdog
plan = cloudpickle.loads(bytes.fromhex(sys.argv[1]))
watch = CrashWatchdog(plan, 0, "driver")
watch.begin()
task = watch.task("0_0", 0)
for step in sys.argv[2].split():
    if step == "begin": task.begin()
    elif step == "end": task.end()
    elif step == "close": watch.close()
    elif step == "outside": task.at(None, None, -1, -1)
    else: task.at("user", "in", 0, int(step))
print("careful" if watch.careful else "usual", flush=True)
if "stay" in sys.argv: sys.stdin.read()
os.kill(os.getpid(), signal.SIGKILL)
"""


def plan_in(directory: Path, generation: int = 1) -> ApplicationPlan:
    builder = StreamsBuilder()
    builder.stream("in").map_values(str, name="user").to("out")
    (part,) = builder.build().subtopologies()
    config = StreamsConfig({"application.id": "app"})
    spec = TaskSpec("app", part, TaskId(0, 0), {IN: part.nodes[0].name}, config)
    return ApplicationPlan("app", generation, config, ClientSettings("nowhere:1"), ((spec,),), str(directory), str(directory / "control"))


def process(plan: ApplicationPlan, steps: str, *more: str) -> subprocess.Popen[str]:
    from pyspark import cloudpickle

    return subprocess.Popen(
        [sys.executable, "-c", DIE, cloudpickle.dumps(plan).hex(), steps, *more],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=os.environ | {"PYTHONPATH": str(ROOT)},
    )  # fmt: skip


def die(plan: ApplicationPlan, steps: str) -> str:
    """A process that takes these steps and is killed; how it worked."""
    with process(plan, steps) as running:
        assert running.stdout is not None
        said = running.stdout.read().strip()
    assert running.returncode == -signal.SIGKILL
    return said


@pytest.fixture
def watch(tmp_path: Path) -> Iterator[CrashWatchdog]:
    made = CrashWatchdog(plan_in(tmp_path), 0, "driver")
    yield made
    made.close()


def test_a_death_with_an_open_commit_is_followed_by_careful_work(watch: CrashWatchdog, tmp_path: Path) -> None:
    die(plan_in(tmp_path), "begin")
    watch.begin()
    assert watch.careful and watch.task("0_0", 0).traced


@pytest.mark.parametrize("steps", ["", "begin end", "begin close"])
def test_a_death_without_an_open_commit_is_of_no_interest(watch: CrashWatchdog, tmp_path: Path, steps: str) -> None:
    die(plan_in(tmp_path), steps)
    watch.begin()
    assert not watch.careful


@pytest.mark.slow
def test_the_third_death_at_one_record_is_the_last(watch: CrashWatchdog, tmp_path: Path) -> None:
    plan = plan_in(tmp_path)
    assert [die(plan, steps) for steps in ("begin", "begin 7", "begin 7", "begin 7")] == ["usual", "careful", "careful", "careful"]
    with pytest.raises(WorkerDiedError, match="in node user, task 0_0, at in-0 offset 7") as caught:
        watch.begin()
    assert (caught.value.node, caught.value.topic, caught.value.partition, caught.value.offset) == ("user", "in", 0, 7)
    assert caught.value.deaths == 3


@pytest.mark.slow
def test_deaths_at_different_records_are_not_one(watch: CrashWatchdog, tmp_path: Path) -> None:
    for steps in ("begin 7", "begin 8", "begin 9", "begin 7"):
        die(plan_in(tmp_path), steps)
    watch.begin()
    assert watch.careful


@pytest.mark.slow
def test_a_death_outside_of_user_code_has_no_place(watch: CrashWatchdog, tmp_path: Path) -> None:
    for _ in range(4):
        die(plan_in(tmp_path), "begin 7 outside")
    watch.begin()
    assert watch.careful


@pytest.mark.slow
def test_deaths_of_another_generation_do_not_count(watch: CrashWatchdog, tmp_path: Path) -> None:
    for _ in range(3):
        die(plan_in(tmp_path, generation=7), "begin 7")
    watch.begin()
    assert not watch.careful


def test_a_process_that_lives_has_not_died(watch: CrashWatchdog, tmp_path: Path) -> None:
    with process(plan_in(tmp_path), "begin 7", "stay") as running:
        assert running.stdout is not None and running.stdin is not None
        assert running.stdout.readline() == "usual\n"
        watch.begin()
        running.stdin.close()
    assert not watch.careful


def test_after_a_calm_stretch_the_deaths_are_forgotten(watch: CrashWatchdog, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    die(plan_in(tmp_path), "begin 7")
    watch.begin()
    assert watch.bound(1e18) < 1e18 and not watch.calm()
    monkeypatch.setattr("time.monotonic", lambda real=time.monotonic: real() + CALM_SECONDS)
    assert watch.calm()
    watch.begin()
    assert not watch.careful and watch.bound(1e18) == 1e18


def test_a_directory_that_cannot_be_written_stops_nothing(tmp_path: Path) -> None:
    (tmp_path / "app").write_text("in the way")
    watch = CrashWatchdog(plan_in(tmp_path), 0, "driver")
    watch.begin()
    task = watch.task("0_0", 0)
    task.begin()
    task.end()
    watch.close()


def test_files_of_another_kind_are_passed_over(watch: CrashWatchdog, tmp_path: Path) -> None:
    (tmp_path / "app" / "tasks").mkdir(parents=True)
    (tmp_path / "app" / "tasks" / ".working-0").write_bytes(os.urandom(20_000))
    watch.begin()
    assert not watch.careful


STACK = """Fatal Python error: Segmentation fault

Thread 0x00007f (most recent call first):
  File "/usr/lib/python3/threading.py", line 1 in run

Current thread 0x00007e (most recent call first):
  File "{native}", line 5 in string_at
  File "/home/me/mine.py", line 42 in broken
  File "{package}/operators/mapping.py", line 9 in user
  File "/home/me/other.py", line 1 in user
"""


def stack() -> str:
    import ctypes

    import kstreams_repl

    return STACK.format(native=ctypes.__file__, package=Path(kstreams_repl.__file__).parent)


def test_a_stack_tells_the_node_and_the_users_line() -> None:
    death = crash_of_stack(stack(), {"user"})
    assert (death.node, death.file, death.line) == ("user", "/home/me/mine.py", 42)
    assert str(death) == "died while processing (Segmentation fault) in node user"


def test_a_stack_outside_of_nodes_tells_the_cause_alone() -> None:
    assert crash_of_stack(stack(), {"another"}) == WorkerCrash(cause="died while processing (Segmentation fault)")


def test_the_timer_of_a_call_that_lets_nobody_else_run_is_told_as_such() -> None:
    assert "held the interpreter lock" in crash_of_stack("Timeout (0:00:01)!\nThread 0x1 (most recent call first):\n", ()).cause


def test_what_is_known_of_a_place_comes_from_both() -> None:
    placed, seen = WorkerCrash("0_0", "user", "in", 0, 7), WorkerCrash(node="other", cause="fell", file="f.py", line=3)
    assert placed.merged(seen) == WorkerCrash("0_0", "user", "in", 0, 7, "fell", "f.py", 3)
