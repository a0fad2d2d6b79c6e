"""CONTRIBUTING.md is followed by people who do not know better: every file, folder and test that it names exists."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from kstreams_repl.engine.topology.store_builder import StoreKind

ROOT = Path(__file__).resolve().parents[2]
TEXT = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
BUILT = {"build/docs"}
"""Made by a command that the page names."""
NEW = {
    "engine/operators/streams/stream_deduplicate.py", "docs/reference/operators/deduplicate.md",
    "tests/unit/engine/operators/test_stream_deduplicate.py",
}  # fmt: skip
"""The files of its example, which is not there yet."""


def named_paths() -> list[str]:
    quoted = [word for code in re.findall(r"`([^`\n]+)`", TEXT) for word in code.split()]
    return sorted({word for word in quoted if re.fullmatch(r"[\w./]+/[\w.*/]*|\S+\.(py|md)", word.partition("::")[0])} - NEW - BUILT)


@pytest.mark.parametrize("path", named_paths())
def test_a_path_that_it_names_exists(path: str) -> None:
    file = path.partition("::")[0]
    assert [found for top in (ROOT, ROOT / "kstreams_repl") for found in top.glob(file.removeprefix("./"))]


@pytest.mark.parametrize(("file", "test"), re.findall(r"`(tests/\S+\.py)::(\w+?)_?…?`", TEXT))
def test_a_test_that_it_names_exists(file: str, test: str) -> None:
    assert f"def {test}" in (ROOT / file).read_text(encoding="utf-8")


def test_every_package_has_its_row_of_tests() -> None:
    floors = {path.parent.name for path in (ROOT / "kstreams_repl").glob("*/__init__.py")} - {"test_driver"}
    assert floors <= set(re.findall(r"(\w+)/", " ".join(re.findall(r"`([^`\n]+)`", TEXT))))


def test_every_kind_of_store_has_a_row() -> None:
    assert [kind.name for kind in StoreKind if f"`{kind.name}`" not in TEXT] == []


def test_the_hooks_before_a_commit_are_local_and_run_what_exists() -> None:
    hooks = (ROOT / ".pre-commit-config.yaml").read_text(encoding="utf-8")
    assert re.findall(r"repo: (\S+)", hooks) == ["local"]
    for file in re.findall(r"tests/\S+\.py", hooks):
        assert (ROOT / file).exists()
