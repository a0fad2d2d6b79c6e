"""Entries of ``KSTREAMS_FAILPOINTS`` that kill a process."""

from __future__ import annotations


def kill_at(point: str, passage: int = 1) -> str:
    """Kill at the given passage of a point. F6 is passed as the commit is asked for: a millisecond later its request is under way."""
    return f"{point}=kill{':0.001' if point == 'F6' else ''}@{passage}"
