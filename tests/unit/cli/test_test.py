"""`./kstreams test`: what it runs, and that no failure is lost."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from kstreams_repl.cli.main import main
from workshop.commands import test as subject

PASSING = "def test_one():\n    assert True\n"
SLEEPING = """
import pathlib, pytest, time
here = pathlib.Path(__file__).parent


@pytest.fixture
def resource():
    yield
    time.sleep(0.5)  # longer than a parent that is in a hurry would wait
    (here / "cleaned-up").touch()


def test_one(resource):
    (here / "started").touch()
    time.sleep(60)
"""
FAILING = "def test_one():\n    assert False\n"


def run_on(checkout: Path, monkeypatch: pytest.MonkeyPatch, *arguments: str) -> int:
    monkeypatch.setattr(subject, "require_checkout", lambda what: checkout)
    return main(["test", *arguments])


@pytest.fixture
def checkout(tmp_path: Path, tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("MYPY_CACHE_DIR", str(tmp_path_factory.getbasetemp() / "mypy"))  # typeshed is read once
    monkeypatch.setenv("PYTEST_DISABLE_PLUGIN_AUTOLOAD", "1")  # one test in one process needs none
    monkeypatch.setattr(subject, "PROCESSES", [])
    (tmp_path / "pyproject.toml").write_text(
        '[tool.pytest.ini_options]\naddopts = ["-m", "not slow"]\nmarkers = ["slow: minutes"]\n'
        '[tool.mypy]\nfiles = ["code.py"]\nstrict = true\n'
    )
    (tmp_path / "code.py").write_text("answer: int = 42\n")
    (tmp_path / "test_it.py").write_text(PASSING)
    return tmp_path


def test_all_green_is_exit_code_0_and_pytests_line_comes_last(
    checkout: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    assert run_on(checkout, monkeypatch) == 0
    lines = capfd.readouterr().out.splitlines()
    assert lines[:2] == ["ruff: ok", "mypy: ok"]
    assert "1 passed" in lines[-1]


@pytest.mark.parametrize(
    ("name", "text"),
    [("code.py", "import os\n"), ("code.py", "answer: int = 'text'\n"), ("test_it.py", FAILING)],
    ids=["ruff", "mypy", "pytest"],
)
def test_any_failure_fails_the_whole(checkout: Path, monkeypatch: pytest.MonkeyPatch, name: str, text: str) -> None:
    (checkout / name).write_text(text)
    assert run_on(checkout, monkeypatch) == 1


def test_no_test_executed_is_a_failure(checkout: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert run_on(checkout, monkeypatch, "-k", "nothing_is_called_so") == 5


@pytest.mark.slow
def test_slow_tests_run_only_when_asked_for(checkout: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]) -> None:
    (checkout / "test_it.py").write_text("import pytest\n\n\n@pytest.mark.slow\n" + FAILING + "\n\ndef test_two():\n    assert True\n")
    assert run_on(checkout, monkeypatch) == 0
    assert "1 passed" in capfd.readouterr().out
    assert run_on(checkout, monkeypatch, "--all") == 1
    assert "1 failed, 1 passed" in capfd.readouterr().out


def test_arguments_reach_pytest(checkout: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]) -> None:
    assert run_on(checkout, monkeypatch, "-x", "--collect-only", "-q") == 0
    assert "test_it.py::test_one" in capfd.readouterr().out


@pytest.mark.slow
@pytest.mark.integration
def test_interruption_lets_the_tests_clean_up_first(checkout: Path) -> None:
    (checkout / "test_it.py").write_text(SLEEPING)
    code = f"""
import sys
from pathlib import Path
from workshop.commands import test as subject
from kstreams_repl.cli.main import main
subject.require_checkout = lambda what: Path({str(checkout)!r})
sys.exit(main(["test", "-p", "no:cacheprovider"]))
"""
    run = subprocess.Popen(
        [sys.executable, "-c", code], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, start_new_session=True
    )
    while not (checkout / "started").exists():
        assert run.poll() is None
        time.sleep(0.01)
    os.killpg(run.pid, signal.SIGINT)
    shown, _ = run.communicate()
    assert (checkout / "cleaned-up").exists(), shown
    assert run.returncode == 130
