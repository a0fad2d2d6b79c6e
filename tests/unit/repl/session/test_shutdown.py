"""How a session's parts end: all of them, whatever one of them raises, and two of them at the same time."""

from __future__ import annotations

import threading
from collections.abc import Callable

import pytest

from kstreams_repl.repl.session.shutdown import end_all, meanwhile


def raising(name: str, said: list[str]) -> Callable[[], None]:
    def end() -> None:
        said.append(name)
        raise RuntimeError(name)

    return end


def test_every_step_is_made_and_the_first_error_is_raised() -> None:
    said: list[str] = []
    with pytest.raises(RuntimeError, match="a"):
        end_all([raising("a", said), raising("b", said), lambda: said.append("c")])
    assert said == ["a", "b", "c"]


def test_the_other_call_is_made_while_the_steps_last() -> None:
    begun, go_on = threading.Event(), threading.Event()

    def step() -> None:
        begun.set()
        assert go_on.wait(30)

    def other() -> None:
        assert begun.wait(30)
        go_on.set()

    meanwhile([step], other)()


@pytest.mark.parametrize("failing", ["steps", "other"])
def test_an_error_of_one_does_not_keep_the_other_from_ending(failing: str) -> None:
    said: list[str] = []
    steps = [raising("steps", said) if failing == "steps" else lambda: said.append("steps")]
    other = raising("other", said) if failing == "other" else lambda: said.append("other")
    with pytest.raises(RuntimeError, match=failing):
        meanwhile(steps, other)()
    assert sorted(said) == ["other", "steps"]


def test_one_ends_after_the_other_where_no_thread_can_be_started(monkeypatch: pytest.MonkeyPatch) -> None:
    """Python 3.12 and later start none while they exit, and an open session is closed then."""

    def refuse(thread: threading.Thread) -> None:
        raise RuntimeError("can't create new thread at interpreter shutdown")

    monkeypatch.setattr(threading.Thread, "start", refuse)
    said: list[str] = []
    meanwhile([lambda: said.append("steps")], lambda: said.append("other"))()
    assert said == ["steps", "other"]
