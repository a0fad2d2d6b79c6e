"""Spark's log: each process has its own, and those of processes that have ended go in time."""

from __future__ import annotations

import os
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from kstreams_repl.engine.config import StreamsConfig
from kstreams_repl.host.spark.startup.spark_session import KEPT_LOGS, _forget_old_logs, spark_log
from kstreams_repl.repl.session.application.detached.mailbox import DriverRecord, Mailbox
from kstreams_repl.repl.session.logs import session_logs


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KSTREAMS_CACHE", str(tmp_path))
    spark_log().parent.mkdir(parents=True)


def test_the_spark_of_another_process_has_a_log_of_its_own() -> None:
    """A second notebook emptied the log of the first, and its lines were shown in the first as well."""
    assert spark_log() == spark_log(os.getpid()) != spark_log(os.getppid())


def test_the_last_logs_of_processes_that_have_ended_are_kept() -> None:
    ended = [spark_log(2**22 + number) for number in range(KEPT_LOGS + 3)]  # beyond the largest process id
    for age, path in enumerate(reversed(ended)):
        path.write_text("")
        os.utime(path, (1_000_000 - age, 1_000_000 - age))
    living = spark_log(os.getppid())
    living.write_text("")
    os.utime(living, (1, 1))
    _forget_old_logs()
    assert sorted(spark_log().parent.iterdir()) == sorted([living, *ended[3:]])


def test_what_a_detached_applications_functions_print_is_in_the_log_of_its_process(tmp_path: Path) -> None:
    spark_log(4711).write_text("seen: a\n")
    config = StreamsConfig({"application.id": "words", "state.dir": str(tmp_path)})
    Mailbox(tmp_path, "words").make().write(DriverRecord("words", 4711, 0.0))
    log = spark_log().parent / "driver.log"
    app: Any = SimpleNamespace(
        name="words", restarts=[], log=log, detached=True, config=config, reports=SimpleNamespace(instances={}), error=None
    )
    client: Any = SimpleNamespace(broker=None, spark=SimpleNamespace(used=False))
    table = session_logs(client, {"words": app}, "words", 5)
    assert table.rows == (("words, Spark", "seen: a"),) and str(spark_log(4711)) in table.note
