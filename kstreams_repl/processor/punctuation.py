"""Which clock drives a punctuation."""

from __future__ import annotations

from enum import StrEnum


class PunctuationType(StrEnum):
    """STREAM_TIME advances with the records of the task; WALL_CLOCK_TIME with the clock (mocked in the test driver)."""

    STREAM_TIME = "STREAM_TIME"
    WALL_CLOCK_TIME = "WALL_CLOCK_TIME"
