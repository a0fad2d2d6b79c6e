"""Lines of the log name application, instance and task; workers write them to stderr when asked."""

from __future__ import annotations

import logging
import threading

import pytest

from kstreams_repl import StreamsBuilder, serdes
from kstreams_repl.host.instance.epochs.lifecycle import TaskLifecycle, TaskState
from kstreams_repl.system.log_context import about, carried, write_to_stderr
from kstreams_repl.system.types import TaskId
from kstreams_repl.testing import TopologyTestDriver

LOG = logging.getLogger("kstreams_repl.host.instance")


def in_thread(work: object) -> None:
    thread = threading.Thread(target=work)  # type: ignore[arg-type]
    thread.start()
    thread.join()


def test_a_line_is_about_what_its_thread_said_and_a_thread_that_it_starts_goes_on(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "kstreams_repl")

    def work() -> None:
        about("orders%", 3)
        LOG.info("100 %% of %s", "it")
        LOG.info("restored", extra={"task": "0_1"})
        in_thread(carried(lambda: LOG.info("carried")))
        in_thread(lambda: LOG.info("alone"))

    in_thread(work)
    assert [record.getMessage() for record in caplog.records] == [
        "orders%[3]: 100 % of it", "orders%[3] 0_1: restored", "orders%[3]: carried", "alone",
    ]  # fmt: skip
    fields = [(record.application, record.instance, record.task) for record in caplog.records]  # type: ignore[attr-defined]
    assert fields == [("orders%", 3, None), ("orders%", 3, "0_1"), ("orders%", 3, None), (None, None, None)]


def test_steps_of_a_task_are_info_those_of_a_commit_debug_and_a_failure_an_error(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG, "kstreams_repl")
    life = TaskLifecycle(TaskId(0, 1))
    for state in (TaskState.RUNNING, TaskState.COMMITTING, TaskState.RUNNING, TaskState.COMMITTING, TaskState.FAILED, TaskState.CLOSED):
        life.enter(state, "why")
    levels = [record.levelname for record in caplog.records]
    assert levels == ["INFO", "DEBUG", "DEBUG", "DEBUG", "ERROR", "INFO"]
    assert caplog.messages[0] == "0_1: created -> running (why)"


def test_no_record_writes_a_line(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    builder = StreamsBuilder()
    builder.stream("in", key_serde=serdes.string, value_serde=serdes.string).group_by_key().count(store="counts")
    with TopologyTestDriver(builder.build()) as driver:
        driver.create_input_topic("in", serdes.string, serdes.string).pipe_records([("a", "b", number) for number in range(100)])
    assert not [record for record in caplog.records if record.name.startswith("kstreams_repl")]


def test_lines_of_a_level_go_to_stderr_once_and_off_ends_it(capsys: pytest.CaptureFixture[str]) -> None:
    try:
        write_to_stderr("WARNING")
        write_to_stderr("INFO")
        LOG.info("shown", extra={"application": "orders", "instance": 0, "task": "0_1"})
        LOG.debug("not shown")
        shown = capsys.readouterr().err
        write_to_stderr("OFF")
        LOG.info("no more")
    finally:
        write_to_stderr("OFF")
    assert shown.count("\n") == 1 and shown.endswith("INFO kstreams_repl.host.instance orders[0] 0_1: shown\n")
    assert capsys.readouterr().err == ""
