"""Failpoints do nothing unless armed, and then act where and when they were told to."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from kstreams_repl.engine.commit import failpoints
from kstreams_repl.engine.commit.failpoints import failpoint
from kstreams_repl.system.errors import ConfigError


@pytest.fixture(autouse=True)
def disarmed() -> Iterator[None]:
    yield
    failpoints.arm("")
    for name in failpoints.NAMES:
        failpoints.hook(name, None)


def test_unarmed_failpoint_does_nothing() -> None:
    failpoint("F1")
    assert not failpoints.active


def test_armed_failpoint_acts_at_its_hit_only() -> None:
    failpoints.arm("F5=raise@2")
    failpoint("F5")
    with pytest.raises(RuntimeError, match="F5"):
        failpoint("F5")
    failpoint("F5")


def test_star_acts_at_every_passage() -> None:
    failpoints.arm("F5=raise@*")
    for _ in range(2):
        with pytest.raises(RuntimeError):
            failpoint("F5")


def test_once_file_lets_the_next_process_live(tmp_path: Path) -> None:
    once = tmp_path / "once"
    failpoints.arm(f"F5=raise@*!{once}")
    with pytest.raises(RuntimeError):
        failpoint("F5")
    failpoint("F5")
    assert once.exists()


def test_hook_is_called_and_taken_away() -> None:
    calls: list[str] = []
    failpoints.hook("F2", lambda: calls.append("F2"))
    failpoint("F2")
    failpoints.hook("F2", None)
    failpoint("F2")
    assert calls == ["F2"]
    assert not failpoints.active


@pytest.mark.parametrize("text", ["F99=kill", "F1=explode", "F1"])
def test_unknown_failpoint_or_action_is_refused(text: str) -> None:
    with pytest.raises(ConfigError):
        failpoints.arm(text)
