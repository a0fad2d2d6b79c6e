"""Which worker runs which slot of an epoch, on the driver's host; files, no Spark."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

from kstreams_repl.spark.slot_assignment import FileClaim


def claim(directory: Path, partition: int, epoch: str) -> FileClaim:
    plan: Any = SimpleNamespace(control_directory=str(directory), generation=1, instances=2)
    return FileClaim(plan, partition, epoch, ())


def test_a_slot_that_only_an_earlier_generation_had_is_not_claimed(tmp_path: Path) -> None:
    """The worker rests warm with slot 1 of two; the new generation has one instance."""
    plan: Any = SimpleNamespace(control_directory=str(tmp_path), generation=2, instances=1)
    with FileClaim(plan, 0, "0", (1,)) as slot:
        assert slot == 0


def test_an_epoch_is_over_for_a_slot_as_soon_as_another_one_has_ended_it(tmp_path: Path) -> None:
    with claim(tmp_path, 0, "7"), claim(tmp_path, 1, "7"):
        pass
    with claim(tmp_path, 0, "8") as slot:
        other = claim(tmp_path, 1, "8")
        with other as theirs:
            assert (slot, theirs) == (0, 1)
            assert not other.epoch_over()
        assert claim(tmp_path, 0, "8").epoch_over()
        assert not claim(tmp_path, 0, "9").epoch_over()
