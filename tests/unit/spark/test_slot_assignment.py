"""Claims of slots through files: who gets which."""

from __future__ import annotations

import os
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from kstreams_repl.spark.slot_assignment import FileClaim


@pytest.fixture
def plan(tmp_path: Path) -> Any:
    return SimpleNamespace(control_directory=str(tmp_path), generation=1, instances=2)


def test_a_slot_whose_worker_lives_is_left_to_it_while_another_is_free(plan: Any, tmp_path: Path) -> None:
    with FileClaim(plan, 0, "7", ()) as slot:
        assert slot == 0
    said = (tmp_path / "claim-1-0").read_bytes()
    (tmp_path / "claim-1-0").write_bytes(said.replace(str(os.getpid()).encode(), str(os.getppid()).encode()))
    with FileClaim(plan, 0, "8", ()) as slot:
        assert slot == 1
        with FileClaim(plan, 0, "8", ()) as other:
            assert other == 0


def test_a_damaged_claim_holds_nobody_up(plan: Any, tmp_path: Path) -> None:
    (tmp_path / "claim-1-0").write_bytes(b"\xff\xfe\x80" * 30)
    claim = FileClaim(plan, 0, "8", ())
    assert not claim.epoch_over()
    with claim as slot:
        assert slot == 0
    assert claim.epoch_over()
