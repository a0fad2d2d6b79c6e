"""House rules that a machine can hold: the direction of imports, types, style, what importing the package costs."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
HEAVY = {
    "IPython", "anywidget", "asyncio", "click", "confluent_kafka", "duckdb", "graphviz", "ipywidgets", "jgo", "jupyterlab", "lmdb",
    "numpy", "pandas", "py4j", "pyarrow", "pyspark", "rich",
}  # fmt: skip
PRINT_WHAT_IMPORT_BRINGS = """
import sys, threading
import kstreams_repl
print(*sys.modules)
assert threading.active_count() == 1
"""


def run(*command: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, *command], cwd=ROOT, capture_output=True, text=True)


def test_imports_point_inward() -> None:
    done = run("-c", "import sys; from importlinter.cli import lint_imports; sys.exit(lint_imports(no_cache=True))")
    assert done.returncode == 0, done.stdout + done.stderr
    kept = re.search(r"Contracts: (\d+) kept, 0 broken", done.stdout)
    assert kept and int(kept.group(1)) >= 9, done.stdout


def test_types_are_strict_and_sound() -> None:
    done = run("-m", "mypy")
    assert done.returncode == 0, done.stdout + done.stderr


def test_style_is_clean() -> None:
    done = run("-m", "ruff", "check", "--output-format", "concise", ".")
    assert done.returncode == 0, done.stdout + done.stderr


def test_importing_the_package_brings_nothing_heavy_and_starts_nothing() -> None:
    done = run("-c", PRINT_WHAT_IMPORT_BRINGS)
    assert done.returncode == 0, done.stderr
    assert HEAVY.isdisjoint(module.partition(".")[0] for module in done.stdout.split())


def test_importing_the_package_loads_few_modules() -> None:
    """The load of a machine moves a clock, not a count: 400 modules are what 150 ms allow on one slow core."""
    done = run("-c", PRINT_WHAT_IMPORT_BRINGS)
    assert len(done.stdout.split()) < 400


@pytest.mark.parametrize("path", sorted((ROOT / "kstreams_repl").rglob("*.py")), ids=lambda path: str(path.relative_to(ROOT)))
def test_module_is_at_most_500_lines(path: Path) -> None:
    assert len(path.read_text(encoding="utf-8").splitlines()) <= 500
