"""The copy of the tutorial in the user's folder."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import click.testing
import pytest

from kstreams_repl.cli import lab
from kstreams_repl.cli.tutorial import main

ROOT = Path(__file__).resolve().parents[3]


@pytest.fixture
def started(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> list[list[str]]:
    """The command lines that would replace this process."""
    commands: list[list[str]] = []
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(os, "execve", lambda program, command, environment: commands.append(command))
    monkeypatch.setattr(lab, "lab_environment", dict)
    return commands


def test_the_tutorial_opens_a_copy_in_a_folder_of_its_own(started: list[list[str]], tmp_path: Path) -> None:
    done = click.testing.CliRunner().invoke(main, ["--no-browser"])
    copy = tmp_path / "kstreams-tutorial" / "tutorial.ipynb"
    assert done.exit_code == 0 and copy.read_bytes() == (ROOT / "notebooks" / "tutorial.ipynb").read_bytes()
    (command,) = started
    assert f"--ServerApp.root_dir={copy.parent}" in command and command[-2:] == [str(copy), "--no-browser"]
    assert "--LabApp.default_url=/lab/tree/tutorial.ipynb" in command, "the address that is printed opens it, too"


def test_pytest_finds_tests_in_the_folder_whatever_the_settings_above_it(started: list[list[str]], tmp_path: Path) -> None:
    """In a checkout it took those of the project: "Unknown config option: timeout"."""
    (tmp_path / "pyproject.toml").write_text("[tool.pytest.ini_options]\nunknown = 1\nstrict = true\naddopts = '--no-such-option'\n")
    click.testing.CliRunner().invoke(main)
    folder = tmp_path / "kstreams-tutorial"
    (folder / "test_alerts.py").write_text("def test_it() -> None: pass\n")
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider"]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
    assert "1 passed" in done.stdout, done.stdout + done.stderr


def test_what_the_user_has_written_is_never_overwritten(started: list[list[str]], tmp_path: Path) -> None:
    runner = click.testing.CliRunner()
    runner.invoke(main)
    copy = tmp_path / "kstreams-tutorial" / "tutorial.ipynb"
    copy.write_text("mine")
    done = runner.invoke(main)
    assert copy.read_text() == "mine" and "was there before, and is unchanged" in done.output and len(started) == 2
