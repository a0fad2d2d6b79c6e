"""The root command: what is imported when, and how errors end."""

from __future__ import annotations

import os
import subprocess
import sys
import tomllib
import types
from collections.abc import Callable
from pathlib import Path

import click
import pytest

import kstreams_repl
from kstreams_repl.cli import checkout, registry
from kstreams_repl.cli.main import describe_error, main
from kstreams_repl.system.errors import ConfigError, KStreamsError

RunBody = Callable[..., int]


@pytest.fixture
def run_body(monkeypatch: pytest.MonkeyPatch) -> RunBody:
    """Runs a command whose body is the given function."""

    def run(body: Callable[[], object], *arguments: str) -> int:
        module = types.ModuleType("command_under_test")
        module.main = click.command("body")(body)  # type: ignore[attr-defined]
        monkeypatch.setitem(sys.modules, module.__name__, module)
        monkeypatch.setitem(registry.COMMANDS, "body", registry.CommandEntry(module.__name__, "main", "For a test."))
        return main([*arguments, "body"])

    return run


def raise_error() -> None:
    raise ConfigError("num.stream.threads is 'many'.", hint="give a whole number")


def test_a_typed_error_is_three_lines_and_exit_code_1(run_body: RunBody, capsys: pytest.CaptureFixture[str]) -> None:
    assert run_body(raise_error) == 1
    lines = ("Error: num.stream.threads is 'many'.", "Hint: give a whole number", "See: docs/reference/errors.md#configerror", "")
    assert capsys.readouterr() == ("", "\n".join(lines))


@pytest.mark.parametrize("how", ["option", "variable"])
def test_debug_shows_the_traceback(
    run_body: RunBody, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, how: str
) -> None:
    monkeypatch.setenv("KSTREAMS_DEBUG", "1" if how == "variable" else "")
    assert run_body(raise_error, *(["--debug"] if how == "option" else [])) == 1
    shown = capsys.readouterr().err
    assert "in raise_error" in shown
    assert "Error: num.stream.threads is 'many'." in shown


def test_interruption_is_quiet_and_exit_code_130(run_body: RunBody, capsys: pytest.CaptureFixture[str]) -> None:
    def interrupt() -> None:
        raise KeyboardInterrupt

    assert run_body(interrupt) == 130
    assert capsys.readouterr().err.strip() == ""


def test_a_defect_of_ours_is_not_hidden(run_body: RunBody) -> None:
    def stumble() -> None:
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        run_body(stumble)


def test_a_commands_own_exit_code_is_kept(run_body: RunBody) -> None:
    def leave() -> None:
        click.get_current_context().exit(7)

    assert run_body(leave) == 7


def test_a_misspelt_command_is_guessed(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["dmeo"]) == 2
    assert "did you mean 'demo'?" in capsys.readouterr().err


def test_help_lists_every_command_without_importing_any() -> None:
    code = "import sys; from kstreams_repl.cli.main import main; main(['--help']); print(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    shown, modules = done.stdout.rsplit("\n", 2)[0], set(done.stdout.splitlines()[-1].split())
    assert all(f"\n  {name} " in shown for name in registry.COMMANDS)
    assert modules.isdisjoint(entry.module for entry in registry.COMMANDS.values())
    assert modules.isdisjoint({"pyspark", "rich", "IPython", "confluent_kafka", "pyarrow"})


@pytest.mark.parametrize("name", registry.COMMANDS)
def test_every_command_can_be_loaded_and_explains_itself(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([name, "--help"]) == 0
    assert capsys.readouterr().out.startswith(f"Usage: kstreams {name}")


def test_a_closed_pipe_is_no_traceback() -> None:
    reader, writer = os.pipe()
    os.close(reader)
    done = subprocess.run([sys.executable, "-m", "kstreams_repl.cli", "--help"], stdout=writer, stderr=subprocess.PIPE, text=True)
    os.close(writer)
    assert done.stderr == ""
    assert done.returncode != 0


def test_what_an_error_quotes_cannot_steer_the_terminal() -> None:
    shown = describe_error(KStreamsError("no topic 'a\x1b]0;owned\x07'", hint="there is 'b\x1b[2J'"))
    assert "\x1b" not in shown and "\x07" not in shown and "\\x1b]0;owned" in shown


def test_the_version_is_told_where_nothing_was_installed(capsys: pytest.CaptureFixture[str]) -> None:
    """From a checkout on PYTHONPATH it was a RuntimeError with its traceback."""
    project = tomllib.loads((Path(kstreams_repl.__file__).parents[1] / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    assert main(["--version"]) == 0
    assert capsys.readouterr().out == f"kstreams, version {project['version']}\n"


@pytest.mark.parametrize("line", [b"[tool]", b"\xff\xfe", b"[]", b'{"ops": []}'])
def test_a_file_without_cases_is_told_with_its_line(line: bytes, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "x").write_bytes(b"\n" + line)
    assert main(["conformance", str(tmp_path / "x")]) == 1
    assert "line 2 is not a conformance case\nHint: " in capsys.readouterr().err


def test_modules_of_the_checkout_are_compiled_where_python_does_not_write_them(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Each process that a command starts would compile them by itself."""
    package = tmp_path / "kstreams_repl"
    package.mkdir()
    (package / "module.py").write_text("value = 1\n")
    monkeypatch.setattr(checkout, "find_checkout", lambda: tmp_path)
    monkeypatch.setattr(sys, "dont_write_bytecode", False)
    checkout.compile_sources()
    assert not (package / "__pycache__").exists(), "Python does it itself"
    monkeypatch.setattr(sys, "dont_write_bytecode", True)
    checkout.compile_sources()
    (compiled,) = (package / "__pycache__").iterdir()
    assert compiled.name.startswith("module.") and compiled.suffix == ".pyc"
