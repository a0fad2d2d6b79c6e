"""The demo's progress as a notebook shows it: a shorter line must cover the longer one before it."""

from __future__ import annotations

import io
import re
from types import SimpleNamespace
from typing import Any

from kstreams_repl.demo.screen import Screen

REPORTS = [(0, 0.0), *[(90, 12_345.0)] * 40, (95, 12.0), (100, 0.0)]
"""The largest one long enough to be drawn on a busy machine: a thread of its own draws ten times a second."""


class App:
    """An application whose next report is there at each look."""

    def __init__(self) -> None:
        self._left = [SimpleNamespace(records=records, rate=rate, lag=100, instances={}) for records, rate in REPORTS]

    @property
    def reports(self) -> Any:
        return self._left[0] if len(self._left) == 1 else self._left.pop(0)

    def wait(self, timeout: float, *, until: object) -> bool:
        return len(self._left) == 1


def test_a_line_of_progress_never_gets_shorter() -> None:
    screen = Screen(quiet=False, terminal=True, width=80)
    screen.console.file = shown = io.StringIO()
    screen.progress(App(), 100)
    frames = re.findall(r"processing[^\r\n]*", re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", shown.getvalue().replace("\x1b[2K", "\n")))
    assert any("12,345 records/s" in frame for frame in frames)
    assert len({len(frame) for frame in frames}) == 1, frames
