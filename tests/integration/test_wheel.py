"""The wheel in a clean environment: installed without node, JupyterLab lists the side panel as enabled and OK, the parts import."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import sysconfig
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]

pytestmark = [pytest.mark.slow, pytest.mark.integration, pytest.mark.timeout(300)]


def run(*command: str | Path, **environment: str) -> str:
    done = subprocess.run(command, env={**os.environ, **environment}, cwd=Path(sys.prefix).root, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout + done.stderr


def test_a_wheel_without_node_brings_the_side_panel(tmp_path: Path) -> None:
    built = subprocess.run(
        [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(tmp_path)], cwd=ROOT, capture_output=True, text=True
    )
    assert built.returncode == 0, built.stdout + built.stderr
    (wheel,) = tmp_path.glob("*.whl")
    venv = tmp_path / "venv"
    run(sys.executable, "-m", "venv", venv)
    python = venv / "bin" / "python"
    run(python, "-m", "pip", "install", "--no-deps", "--no-index", wheel)
    # what the wheel depends on is lent by this environment; the wheel itself and its data are in the clean one alone
    (site,) = venv.glob("lib/python*/site-packages")
    (site / "lent.pth").write_text(sysconfig.get_paths()["purelib"] + "\n")
    clean = {"PYTHONPATH": "", "PATH": "/nonexistent", "JUPYTER_PATH": "", "HOME": str(tmp_path), "JUPYTER_PREFER_ENV_PATH": "1"}
    listed = re.sub(r"\x1b\[[0-9;]*m", "", run(python, "-m", "jupyterlab.labextensions", "list", **clean))
    assert str(venv / "share" / "jupyter" / "labextensions") in listed
    line = next(line for line in listed.splitlines() if "kstreams-repl v" in line)
    assert "enabled" in line and "OK" in line and "(python, kstreams-repl)" in line
    where = run(python, "-c", "import kstreams_repl, kernel_ext.extension, kernel_ext.live.panel; print(kernel_ext.__file__)", **clean)
    assert str(site) in where
