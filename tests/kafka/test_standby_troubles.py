"""What can go wrong while standby copies are kept: a disk that gives no room, a client that fails, a task that runs where its copy is to
be. Real broker and environments; nobody runs the tasks.
"""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import KafkaError, KafkaException

from kstreams_repl import StreamsBuilder, serdes
from kstreams_repl.engine.config import StreamsConfig
from kstreams_repl.engine.stores.engine.lmdb import LmdbEnvironment
from kstreams_repl.host.instance.application_plan import ApplicationPlan
from kstreams_repl.host.instance.state import standby_task, standby_tasks
from kstreams_repl.host.instance.state.environment_attributes import AS_OF
from kstreams_repl.host.instance.state.owner_token import owner_token
from kstreams_repl.host.instance.state.standby_tasks import StandbyTasks
from kstreams_repl.host.instance.state.state_directory import task_directory, tasks_folder
from kstreams_repl.host.kafka.admin import Admin
from kstreams_repl.host.kafka.clients import ClientSettings, make_producer
from kstreams_repl.host.spark.planning.plan_builder import make_plan
from kstreams_repl.system.types import TaskId, TopicPartition
from tests.spark.hosting import cut

pytestmark = pytest.mark.kafka
PARTITIONS = 4
HANG = 30.0
RUN_ITS_TASK = """
import sys
from kstreams_repl.host.instance.state.owner_token import owner_token
from kstreams_repl.engine.stores.engine.lmdb import LmdbEnvironment
environment = LmdbEnvironment(sys.argv[1])
environment.take_ownership(owner_token(1, 0))
environment.engine("counts").put(b"k", b"v")
environment.commit({}, 1)
print("open", flush=True)
sys.stdin.read()
"""


class Copies:
    """The copies of slot 0, and what is in their changelogs."""

    def __init__(self, admin: Admin, settings: ClientSettings, name: str, directory: Path) -> None:
        self.settings, self.name, self.directory = settings, name, directory
        admin.create_topic(f"{name}-in", PARTITIONS)
        builder = StreamsBuilder()
        stream = builder.stream(f"{name}-in", key_serde=serdes.string, value_serde=serdes.string)
        stream.group_by_key(key_serde=serdes.string, value_serde=serdes.string).count(store="counts")
        config: dict[str, Any] = {"application.id": name, "bootstrap.servers": settings.bootstrap_servers, "num.standby.replicas": 1}
        config |= {"num.stream.threads": 2, "state.dir": str(directory)}
        self.plan: ApplicationPlan = make_plan(
            builder.build(), StreamsConfig(config), settings, admin=admin, generation=1, state_root=directory, remote=True
        )
        self.tasks = [spec.task_id for spec in self.plan.standbys[0]]
        self.sent = 0
        self.kept: StandbyTasks | None = None

    def start(self) -> StandbyTasks:
        self.kept = StandbyTasks(self.plan, 0, "here", {}).start()
        return self.kept

    def send(self, count: int = 50) -> None:
        """So many keys more in each changelog."""
        producer = make_producer(self.settings)
        for number in range(self.sent, self.sent + count):
            for partition in range(PARTITIONS):
                producer.produce(f"{self.name}-counts-changelog", (1).to_bytes(8, "big"), b"%d" % number, partition)
        assert producer.flush(20) == 0
        self.sent += count

    def path(self, task: TaskId) -> Path:
        return task_directory(self.directory, self.name, task, "here")

    def complete(self, *tasks: TaskId) -> bool:
        assert self.kept is not None
        return all(self.kept.updated.get(str(task), 0) >= self.sent and self.kept.lags()[str(task)] == 0 for task in tasks or self.tasks)

    def rows(self, task: TaskId) -> int:
        environment = LmdbEnvironment(self.path(task))
        try:
            return sum(1 for _ in environment.engine("counts").range())
        finally:
            environment.close()

    def close(self) -> None:
        if self.kept is not None:
            self.kept.close()


def settle(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + HANG
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.02)


@pytest.fixture
def copies(admin: Admin, settings: ClientSettings, name: str, tmp_path: Path) -> Iterator[Copies]:
    made = Copies(admin, settings, name, tmp_path)
    yield made
    made.close()


@pytest.fixture
def opened(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Tasks whose environments this process has tried to open."""
    names: list[str] = []
    original = LmdbEnvironment.__init__

    def opening(self: LmdbEnvironment, path: Any, *arguments: Any, **options: Any) -> None:
        names.append(Path(path).name)
        original(self, path, *arguments, **options)

    monkeypatch.setattr(LmdbEnvironment, "__init__", opening)
    return names


@pytest.mark.slow
def test_a_directory_that_cannot_be_made_is_tried_again(copies: Copies) -> None:
    folder = tasks_folder(copies.directory, copies.name, "here")
    folder.parent.mkdir(parents=True, exist_ok=True)
    folder.write_text("a file is in its place")
    copies.send()
    kept = copies.start()
    settle(lambda: len(kept._waits) == len(copies.tasks))
    assert kept.open == 0
    folder.unlink()
    settle(copies.complete)


@pytest.mark.slow
def test_a_copy_that_cannot_be_opened_keeps_no_other_back(copies: Copies) -> None:
    first, last = copies.tasks
    copies.path(last).parent.mkdir(parents=True, exist_ok=True)
    copies.path(last).write_text("a file is in its place")
    copies.send()
    copies.start()
    settle(lambda: copies.complete(first))
    copies.path(last).unlink()
    settle(copies.complete)


@pytest.mark.parametrize("error", [KafkaException(KafkaError(KafkaError._FAIL)), OSError("of the file system")])
def test_an_error_between_fetching_and_writing_leaves_no_hole(
    copies: Copies, error: Exception, monkeypatch: pytest.MonkeyPatch
) -> None:
    errors, original = [error], standby_tasks.columns

    def failing(*arguments: Any) -> Any:
        if errors:
            raise errors.pop()
        return original(*arguments)

    monkeypatch.setattr(standby_tasks, "columns", failing)
    copies.send()
    copies.start()
    settle(copies.complete)
    assert not errors
    copies.close()
    assert [copies.rows(task) for task in copies.tasks] == [copies.sent] * len(copies.tasks)


@pytest.mark.slow
def test_where_a_task_runs_its_copy_is_not_opened(copies: Copies, opened: list[str]) -> None:
    first, last = copies.tasks
    with subprocess.Popen(
        [sys.executable, "-c", RUN_ITS_TASK, str(copies.path(last))], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None and process.stdout.readline() == "open\n"
        copies.send()
        kept = copies.start()
        settle(lambda: copies.complete(first) and kept._waits[str(last)][1] > 1.5)
        assert opened == [str(first)]
        assert kept.lags()[str(last)] == -1
        process.kill()
    settle(copies.complete)


@pytest.mark.slow
def test_a_damaged_environment_that_somebody_has_open_is_not_thrown_away(copies: Copies) -> None:
    first, last = copies.tasks
    with subprocess.Popen(
        [sys.executable, "-c", RUN_ITS_TASK, str(copies.path(last))], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None and process.stdout.readline() == "open\n"
        data = copies.path(last) / "data.mdb"
        with data.open("r+b") as file:
            file.write(b"\xff" * 8192)
        inode = data.stat().st_ino
        copies.send()
        kept = copies.start()
        settle(lambda: copies.complete(first) and kept._waits[str(last)][1] > 1.5)
        assert data.stat().st_ino == inode
        process.kill()
    settle(copies.complete)
    assert data.stat().st_ino != inode, "nobody has it any more, and it is made anew"


@pytest.mark.slow
def test_a_copy_that_keeps_up_says_so_and_one_that_stopped_does_not(copies: Copies, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(standby_task, "_AS_OF_SECONDS", 0.0)
    copies.send()
    kept = copies.start()
    settle(copies.complete)
    copies.send()
    now = time.time()
    settle(lambda: all(_as_of(task.environment) > now for task in kept._tasks.values()))
    copies.close()
    environment = LmdbEnvironment(copies.path(copies.tasks[0]))
    environment.take_ownership(owner_token(1, 0))
    assert _as_of(environment) > now
    environment.close()


def _as_of(environment: Any) -> float:
    return int.from_bytes(environment.attribute(AS_OF) or b"", "big") / 1000


def test_no_copy_is_made_of_a_part_of_a_log(copies: Copies, admin: Admin) -> None:
    """Somebody has deleted the first records of a changelog: a take-over without a copy refuses to build the store from the rest, and one
    with a copy served that part.
    """
    first, last = copies.tasks
    at = TopicPartition(f"{copies.name}-counts-changelog", first.partition)
    copies.send()
    cut(admin, at, 20)
    admin.alter_topic_configs(at.topic, {"cleanup.policy": "compact"})
    kept = copies.start()
    settle(lambda: copies.complete(last) and (str(first) in kept._waits or kept.lags()[str(first)] == 0))
    assert kept.lags() == {str(first): -1, str(last): 0}
    copies.close()
    assert copies.rows(first) == 0
