"""Claims of slots through files: which worker runs which slot of an epoch."""

from __future__ import annotations

import os
from pathlib import Path

from kstreams_repl.host.instance.control.channel import EpochTask
from kstreams_repl.host.instance.control.file_channel import FileClaim


def claim(directory: Path, partition: int, epoch: int, *, held: tuple[int, ...] = (), generation: int = 1, count: int = 2) -> FileClaim:
    return FileClaim(directory, generation, count, EpochTask("run", epoch, partition, 0, held))


def test_a_slot_whose_worker_lives_is_left_to_it_while_another_is_free(tmp_path: Path) -> None:
    with claim(tmp_path, 0, 7) as slot:
        assert slot == 0
    said = (tmp_path / "claim-1-0").read_bytes()
    (tmp_path / "claim-1-0").write_bytes(said.replace(str(os.getpid()).encode(), str(os.getppid()).encode()))
    with claim(tmp_path, 0, 8) as slot:
        assert slot == 1
        with claim(tmp_path, 0, 8) as other:
            assert other == 0


def test_a_damaged_claim_holds_nobody_up(tmp_path: Path) -> None:
    (tmp_path / "claim-1-0").write_bytes(b"\xff\xfe\x80" * 30)
    mine = claim(tmp_path, 0, 8)
    assert not mine.epoch_over()
    with mine as slot:
        assert slot == 0
    assert mine.epoch_over()


def test_a_slot_that_only_an_earlier_generation_had_is_not_claimed(tmp_path: Path) -> None:
    """The worker rests warm with slot 1 of two; the new generation has one instance."""
    with claim(tmp_path, 0, 0, held=(1,), generation=2, count=1) as slot:
        assert slot == 0


def test_an_epoch_is_over_for_a_slot_as_soon_as_another_one_has_ended_it(tmp_path: Path) -> None:
    with claim(tmp_path, 0, 7), claim(tmp_path, 1, 7):
        pass
    with claim(tmp_path, 0, 8) as slot:
        other = claim(tmp_path, 1, 8)
        with other as theirs:
            assert (slot, theirs) == (0, 1)
            assert not other.epoch_over()
        assert claim(tmp_path, 0, 8).epoch_over()
        assert not claim(tmp_path, 0, 9).epoch_over()
