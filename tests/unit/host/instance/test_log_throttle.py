"""What comes again and again is told at most once a minute, with how often it came."""

from __future__ import annotations

from kstreams_repl.engine.calls.log_throttle import LogThrottle


def test_the_first_is_told_and_then_one_a_minute_with_how_many_there_were() -> None:
    complaints = LogThrottle()
    assert [complaints.due("away", float(now)) for now in (0, 2, 4, 59, 60, 61, 120)] == [1, None, None, None, 4, None, 2]


def test_causes_are_told_apart() -> None:
    complaints = LogThrottle()
    assert [complaints.due(what, 1.0) for what in ("away", "fenced", "away")] == [1, 1, None]


def test_what_was_silent_for_a_minute_is_told_as_the_first() -> None:
    complaints = LogThrottle()
    complaints.due("away", 0.0)
    assert complaints.due("fenced", 500.0) == 1 and complaints.due("away", 501.0) == 1
