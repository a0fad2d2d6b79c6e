"""Environments of their own for tools that a test runs next to the project and that the project does not depend on."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest


def installed(folder: Path, *packages: str) -> Path:
    """Make a virtual environment with some packages; return its Python. Skip the test where they cannot be installed."""
    subprocess.run([sys.executable, "-m", "venv", str(folder)], check=True)
    python = folder / "bin" / "python"
    done = subprocess.run([str(python), "-m", "pip", "install", "--quiet", *packages], capture_output=True, text=True)
    if done.returncode:
        pytest.skip(f"{', '.join(packages)} cannot be installed: {done.stderr[-500:]}")
    return python
