"""The prebuilt side panel: what is committed was built of the sources that are committed, and JupyterLab takes it."""

from __future__ import annotations

import hashlib
import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[3]
SOURCES = ROOT / "labextension"
BUILT = ROOT / "kernel_ext" / "labextension"


def source_hash() -> str:
    """As labextension/record.mjs reckons it."""
    names = ["core/package.json", "package.json", "package-lock.json", "tsconfig.json", "record.mjs"]
    names += [f"../kstreams_repl/pictures/static/{file.name}" for file in (ROOT / "kstreams_repl" / "pictures" / "static").iterdir()]
    names += [f"{folder}/{file.name}" for folder in ("src", "style") for file in (SOURCES / folder).iterdir()]
    found = hashlib.sha256()
    for name in sorted(names):
        found.update(name.encode() + b"\0" + (SOURCES / name).read_bytes() + b"\0")
    return found.hexdigest()


def test_the_bundle_is_built_of_the_committed_sources() -> None:
    built_of = (BUILT / "sources.sha256").read_text().strip()
    assert built_of == source_hash(), "build it anew: cd labextension && npm ci --ignore-scripts && npm run build"


def test_the_bundle_names_its_entry_and_fetches_nothing_from_elsewhere() -> None:
    told = json.loads((BUILT / "package.json").read_text())
    entry = BUILT / told["jupyterlab"]["_build"]["load"]
    assert entry.is_file() and told["jupyterlab"]["_build"]["extension"] == "./extension"
    for file in BUILT.glob("static/*.js"):
        addresses = set(re.findall(r"https?://[^\"'`\s)]*", file.read_text()))
        assert addresses <= {"http://www.w3.org/2000/svg"}, (file.name, addresses)
    assert not [file for file in BUILT.rglob("*") if file.is_file() and str(ROOT) in file.read_text()]


def test_the_lock_of_the_build_names_no_registry() -> None:
    lock = json.loads((SOURCES / "package-lock.json").read_text())
    packages = [package for name, package in lock["packages"].items() if name]
    assert packages and all("resolved" not in package and package["integrity"].startswith("sha512-") for package in packages)


@pytest.mark.slow
def test_jupyterlab_lists_it_as_enabled_and_ok(tmp_path: Path) -> None:
    """Without node: the folder lies where the wheel puts it, and that is all."""
    place = tmp_path / "share" / "labextensions" / "kstreams-repl"
    shutil.copytree(BUILT, place)
    environment = {**os.environ, "JUPYTER_PATH": str(tmp_path / "share"), "JUPYTER_CONFIG_DIR": str(tmp_path / "config"), "PATH": ""}
    listed = subprocess.run(
        [sys.executable, "-m", "jupyter", "labextension", "list"], env=environment, cwd=tmp_path, capture_output=True, text=True
    )
    if "No such file" in listed.stderr or "not found" in listed.stderr:  # `jupyter` looks for its commands beside the interpreter
        listed = subprocess.run(
            [sys.executable, "-m", "jupyterlab.labextensions", "list"], env=environment, cwd=tmp_path, capture_output=True, text=True
        )
    said = re.sub(r"\x1b\[[0-9;]*m", "", listed.stdout + listed.stderr)
    line = next(line for line in said.splitlines() if "kstreams-repl" in line and "v0." in line)
    assert "enabled" in line and "OK" in line and "(python, kstreams-repl)" in line
