"""Calls on a thread of their own: what is done meanwhile, and what is raised."""

from __future__ import annotations

import threading

import pytest

from kstreams_repl.host.kafka.call_timeout import CallGivenUp, WatchedCalls


def test_other_work_is_done_while_a_call_is_under_way() -> None:
    calls, done, pieces = WatchedCalls("w"), threading.Event(), []

    def piece() -> bool:
        pieces.append(1)
        if len(pieces) == 3:
            done.set()
        return len(pieces) < 3

    assert calls.call(lambda: done.wait(10), 20, piece) is True
    assert len(pieces) == 3
    calls.close()


def test_what_the_other_work_raises_leaves_no_answer_behind() -> None:
    calls, release = WatchedCalls("w"), threading.Event()

    def piece() -> bool:
        release.set()
        raise ValueError("in between")

    with pytest.raises(ValueError, match="in between"):
        calls.call(lambda: release.wait(10) and "first", 20, piece)
    assert calls.call(lambda: "second", 20) == "second"
    calls.close()


def test_a_call_that_does_not_return_is_given_up() -> None:
    calls, end = WatchedCalls("w"), threading.Event()
    with pytest.raises(CallGivenUp):
        calls.call(lambda: end.wait(10), 0.01, lambda: False)
    assert calls.stuck
    end.set()
