"""What `kept.json` means: whose process it names, and what the command makes of a keeper that dies."""

from __future__ import annotations

import json
import os
from dataclasses import replace
from pathlib import Path
from typing import Any

import psutil
import pytest
from click.testing import CliRunner

from kstreams_repl.demo import background as keeping
from kstreams_repl.demo.background import Kept, keep, read_kept, refuse_kept, stop
from kstreams_repl.demo.main import main
from kstreams_repl.errors import KStreamsError


@pytest.fixture
def here(tmp_path: Path) -> Kept:
    """A record that names this very process."""
    return Kept(os.getpid(), psutil.Process().create_time(), str(tmp_path), keeping.READY, "127.0.0.1:1", "flights-demo")


def test_a_living_keeper_refuses_another_demo(here: Kept, tmp_path: Path) -> None:
    here.write()
    with pytest.raises(KStreamsError, match=f"a demo is kept there already: process {os.getpid()}, broker 127.0.0.1:1") as caught:
        refuse_kept(tmp_path)
    assert caught.value.hint.endswith(f"./kstreams demo --stop --directory {tmp_path}")


def test_a_keeper_that_is_still_starting_refuses_too(here: Kept, tmp_path: Path) -> None:
    replace(here, state=keeping.STARTING).write()
    with pytest.raises(KStreamsError, match="is being started there"):
        refuse_kept(tmp_path)


def test_another_process_with_the_number_is_not_the_keeper_and_is_not_ended(here: Kept, tmp_path: Path) -> None:
    replace(here, born=here.born - 3600).write()
    refuse_kept(tmp_path)
    kept, stopped = stop(tmp_path)
    assert kept is not None and not stopped
    assert read_kept(tmp_path) is None


def test_stopping_where_nothing_is_kept_does_nothing_and_says_so(tmp_path: Path) -> None:
    told = CliRunner().invoke(main, ["--stop", "--directory", str(tmp_path)])
    assert (told.exit_code, told.output) == (0, f"no demo is kept in {tmp_path}\n")
    assert json.loads(CliRunner().invoke(main, ["--stop", "--json", "--directory", str(tmp_path)]).output) == {
        "ok": True,
        "stopped": False,
    }


def test_a_damaged_record_is_none(tmp_path: Path) -> None:
    (tmp_path / keeping.RECORD).write_text("{")
    assert read_kept(tmp_path) is None
    (tmp_path / keeping.RECORD).write_text('{"else": 1}')
    assert read_kept(tmp_path) is None


def test_the_keepers_own_error_is_the_commands_and_nothing_stays_behind(tmp_path: Path) -> None:
    request: dict[str, Any] = {
        "directory": str(tmp_path), "instances": 1, "resume": False, "quiet": True,
        "file": str(tmp_path / "missing.csv"), "topic": "rows", "key": None,
    }  # fmt: skip
    shown: list[bytes] = []
    with pytest.raises(KStreamsError, match=r"there is no file .*missing\.csv") as caught:
        keep(tmp_path, request, relay=shown.append)
    assert caught.value.hint == "--input takes a .csv, .jsonl or .ndjson file"
    assert shown == []  # the command tells it, once
    assert list(tmp_path.iterdir()) == []


def test_a_keeper_that_ends_without_a_word_is_told_with_its_log(tmp_path: Path) -> None:
    shown: list[bytes] = []
    with pytest.raises(KStreamsError, match="ended with status 1 before the demo was ready") as caught:
        keep(tmp_path, {"directory": str(tmp_path)}, relay=shown.append)
    assert b"KeyError" in b"".join(shown)
    assert caught.value.path == str(tmp_path / keeping.LOG)


@pytest.mark.parametrize(
    "arguments",
    [["--stop", "--keep"], ["--stop", "--resume"], ["--topic", "t"], ["--key", "k"], ["--instances", "0"], ["--nothing"]],
)
def test_flags_that_do_not_go_together_are_wrong_usage(arguments: list[str]) -> None:
    told = CliRunner().invoke(main, arguments)
    assert told.exit_code == 2
    assert "Error:" in told.output and "Traceback" not in told.output
