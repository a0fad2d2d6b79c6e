"""The page of the fault tests' figures."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.faults import mutants, reliability
from tests.faults.reliability import VARIABLE, note, page


def test_the_last_note_of_each_fault_is_on_the_page(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    notes = tmp_path / "notes"
    monkeypatch.setenv(VARIABLE, str(notes))
    note("R10", "restores", 1, 1)
    note("R10", "restores", 50, 0, longest_s=3)
    note("R2", "kills", 7, 0)
    text = page([json.loads(line) for line in notes.read_text().splitlines()])
    assert "- **R10** restores (50)\n" in text and "VIOLATIONS" not in text
    assert text.index("**R2**") < text.index("**R10**")


def test_what_was_not_tried_again_stays_on_the_page(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reliability, "KEPT", tmp_path / "kept")
    monkeypatch.setattr(reliability, "PAGE", tmp_path / "page")
    monkeypatch.setenv(VARIABLE, str(tmp_path / "notes"))
    (tmp_path / "kept").touch()
    note("R10", "restores", 50, 0, longest_s=3)
    note("R2", "kills", 7, 0)
    reliability.main([str(tmp_path / "notes")])
    (tmp_path / "notes").unlink()
    note("R2", "kills", 9, 1)
    reliability.main([str(tmp_path / "notes")])
    second = (tmp_path / "page").read_text()
    assert "- **R10** restores (50)\n" in second
    assert "- **R2** kills (9, **1 VIOLATIONS**)\n" in second and "(7" not in second


def test_faults_with_the_same_result_share_a_row() -> None:
    one = {"number": "R1", "runs": 40, "violations": 0, "date": "2026-01-02", "load": 3.5, "more": {}}
    notes = [one | {"what": f"kill -9 at {place}, exactly once", "load": load} for place, load in (("F1", 3.5), ("F2", 4.0))]
    assert "- **R1** kill -9 at F1, F2, exactly once (40 each)\n" in page(notes) and "Runs of 2026-01-02, violations: **0**" in page(notes)
    differing = page([notes[0], notes[1] | {"violations": 1}])
    assert "- **R1** kill -9 at F1, exactly once (40); kill -9 at F2, exactly once (40, **1 VIOLATIONS**)\n" in differing


def test_the_page_is_what_the_kept_results_say() -> None:
    written = reliability.PAGE.read_text(encoding="utf-8")
    assert written == page(reliability.read(reliability.KEPT)), "run python -m tests.faults.reliability"


def test_the_page_names_the_file_of_the_mutants() -> None:
    assert f"`{'/'.join(mutants.__name__.split('.'))}.py`" in page([]) and mutants.MUTANTS


def test_the_text_that_a_mutant_changes_stands_once_in_its_module() -> None:
    root = Path(mutants.__file__).parents[2]
    source_of = {mutant.module: (root / f"{mutant.module.replace('.', '/')}.py").read_text() for mutant in mutants.MUTANTS.values()}
    changes = [(name, mutant.module, text) for name, mutant in mutants.MUTANTS.items() for text, _ in mutant.changes]
    assert [(name, text) for name, module, text in changes if source_of[module].count(text) != 1] == []


def test_nothing_is_noted_without_the_variable(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(VARIABLE, raising=False)
    monkeypatch.chdir(tmp_path)
    note("R1", "kills", 1, 0)
    assert not list(tmp_path.iterdir())
