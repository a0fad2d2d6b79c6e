"""The page of the fault tests' figures."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.faults import mutants
from tests.faults.reliability import VARIABLE, note, page


def test_the_last_note_of_each_fault_is_on_the_page(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    notes = tmp_path / "notes"
    monkeypatch.setenv(VARIABLE, str(notes))
    note("R10", "restores", 1, 1)
    note("R10", "restores", 50, 0, longest_s=3)
    note("R2", "kills", 7, 0)
    text = page([json.loads(line) for line in notes.read_text().splitlines()])
    assert "| R10 | restores; longest s 3 | 50 | 0 |" in text and "| R10 | restores | 1 | 1 |" not in text
    assert text.index("| R2 |") < text.index("| R10 |")


def test_what_was_not_tried_again_stays_on_the_page(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(VARIABLE, str(tmp_path / "notes"))
    note("R10", "restores", 50, 0, longest_s=3)
    note("R2", "kills", 7, 0)
    first = page([json.loads(line) for line in (tmp_path / "notes").read_text().splitlines()])
    (tmp_path / "notes").unlink()
    note("R2", "kills", 9, 1)
    second = page([json.loads(line) for line in (tmp_path / "notes").read_text().splitlines()], first)
    assert "| R10 | restores; longest s 3 | 50 | 0 |" in second
    assert "| R2 | kills | 9 | 1 |" in second and "| R2 | kills | 7 |" not in second


def test_the_page_names_the_file_of_the_mutants() -> None:
    assert f"`{'/'.join(mutants.__name__.split('.'))}.py`" in page([]) and mutants.MUTANTS


def test_nothing_is_noted_without_the_variable(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(VARIABLE, raising=False)
    monkeypatch.chdir(tmp_path)
    note("R1", "kills", 1, 0)
    assert not list(tmp_path.iterdir())
