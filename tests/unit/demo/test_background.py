"""What `background.json` means: whose process it names, and what the command makes of a driver that dies."""

from __future__ import annotations

import json
import os
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from kstreams_repl.demo import background
from kstreams_repl.demo.background import BackgroundDemo, read_background_demo, refuse_background_demo, start, stop
from kstreams_repl.demo.main import main
from kstreams_repl.system.errors import KStreamsError
from kstreams_repl.system.processes import ProcessMark


@pytest.fixture
def here(tmp_path: Path) -> BackgroundDemo:
    """A record that names this very process."""
    return BackgroundDemo(os.getpid(), ProcessMark.own().born, str(tmp_path), background.READY, "127.0.0.1:1", "flights-demo")


def test_a_living_driver_refuses_another_demo(here: BackgroundDemo, tmp_path: Path) -> None:
    here.write()
    with pytest.raises(KStreamsError, match=f"a background demo runs there: process {os.getpid()}, broker 127.0.0.1:1") as caught:
        refuse_background_demo(tmp_path)
    assert caught.value.hint.endswith(f"./kstreams demo --stop --directory {tmp_path}")


def test_a_driver_that_is_still_starting_refuses_too(here: BackgroundDemo, tmp_path: Path) -> None:
    replace(here, state=background.STARTING).write()
    with pytest.raises(KStreamsError, match="a background demo starts there"):
        refuse_background_demo(tmp_path)


def test_another_process_with_the_number_is_not_the_driver_and_is_not_ended(here: BackgroundDemo, tmp_path: Path) -> None:
    replace(here, born=ProcessMark.of(1).born).write()
    refuse_background_demo(tmp_path)
    demo, stopped = stop(tmp_path)
    assert demo is not None and not stopped
    assert read_background_demo(tmp_path) is None


def test_stopping_where_nothing_is_kept_does_nothing_and_says_so(tmp_path: Path) -> None:
    result = CliRunner().invoke(main, ["--stop", "--directory", str(tmp_path)])
    assert (result.exit_code, result.output) == (0, f"no background demo runs in {tmp_path}\n")
    assert json.loads(CliRunner().invoke(main, ["--stop", "--json", "--directory", str(tmp_path)]).output) == {
        "ok": True,
        "stopped": False,
    }


def test_a_damaged_record_is_none(tmp_path: Path) -> None:
    (tmp_path / background.RECORD).write_text("{")
    assert read_background_demo(tmp_path) is None
    (tmp_path / background.RECORD).write_text('{"else": 1}')
    assert read_background_demo(tmp_path) is None


def test_the_drivers_own_error_is_the_commands_and_nothing_stays_behind(tmp_path: Path) -> None:
    request: dict[str, Any] = {
        "directory": str(tmp_path), "instances": 1, "resume": False, "quiet": True,
        "file": str(tmp_path / "missing.csv"), "topic": "rows", "key": None,
    }  # fmt: skip
    shown: list[bytes] = []
    with pytest.raises(KStreamsError, match=r"no file .*missing\.csv") as caught:
        start(tmp_path, request, relay=shown.append)
    assert caught.value.hint == "--input takes a .csv, .jsonl or .ndjson file"
    assert shown == []  # the command tells it, once
    assert list(tmp_path.iterdir()) == []


def test_a_driver_that_ends_without_a_word_is_told_with_its_log(tmp_path: Path) -> None:
    shown: list[bytes] = []
    with pytest.raises(KStreamsError, match="ended with status 1 before it was ready") as caught:
        start(tmp_path, {"directory": str(tmp_path)}, relay=shown.append)
    assert b"KeyError" in b"".join(shown)
    assert caught.value.path == str(tmp_path / background.LOG)


@pytest.mark.parametrize(
    "arguments",
    [["--stop", "--keep"], ["--stop", "--resume"], ["--topic", "t"], ["--key", "k"], ["--instances", "0"], ["--nothing"]],
)
def test_flags_that_do_not_go_together_are_wrong_usage(arguments: list[str]) -> None:
    result = CliRunner().invoke(main, arguments)
    assert result.exit_code == 2
    assert "Error:" in result.output and "Traceback" not in result.output
