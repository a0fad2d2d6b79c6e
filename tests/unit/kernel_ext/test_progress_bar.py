"""The progress of a bounded run as a cell shows it."""

from __future__ import annotations

import itertools
from types import SimpleNamespace
from typing import Any

import pytest

from kernel_ext.live import progress_bar
from kernel_ext.live.progress_bar import ProgressBar
from kstreams_repl.host.batch.completion import RunProgress
from kstreams_repl.repl.session.application.batch import batch_run
from kstreams_repl.repl.session.application.batch.batch_run import _Progress
from kstreams_repl.repl.session.progress_messages import default_report, progress_view, report_to, to_stderr
from kstreams_repl.system.types import TopicPartition

A, B = TopicPartition("flights", 0), TopicPartition("flights", 1)
BETWEEN = TopicPartition("daily-by-origin-repartition", 0)


class Output:
    """A cell's output: what was displayed, and each update of it."""

    def __init__(self) -> None:
        self.shown: list[dict[str, str]] = []
        self.displays = 0

    def display(self, bar: ProgressBar, display_id: bool) -> Output:
        assert display_id
        self.displays += 1
        self.update(bar)
        return self

    def update(self, bar: ProgressBar) -> None:
        self.shown.append(bar._repr_mimebundle_())


@pytest.fixture(autouse=True)
def clock(monkeypatch: pytest.MonkeyPatch) -> None:
    """Two seconds pass between two looks."""
    seconds = itertools.count(100.0, 2.0)
    monkeypatch.setattr(batch_run.time, "monotonic", lambda: next(seconds))


def run(view: Any, *, stopped: bool) -> None:
    """Show a run of four checks, as `wait_until` makes them."""
    view.seconds = 0.0
    progress = _Progress(view, "daily <b>")
    app = SimpleNamespace(status="running", batch_progress=None)
    assert not progress(app)  # type: ignore[arg-type]
    for left in ({A: 60, B: 40}, {A: 60, B: 20, BETWEEN: 7}, {A: 50}):
        app.batch_progress = RunProgress(left, 2, intermediate=frozenset({BETWEEN}))
        assert not progress(app)  # type: ignore[arg-type]
    app.status = "stopped" if stopped else "paused"
    assert progress(app)  # type: ignore[arg-type]


def test_one_display_is_updated_up_to_the_end(monkeypatch: pytest.MonkeyPatch) -> None:
    output = Output()
    monkeypatch.setattr(progress_bar, "display", output.display)
    run(ProgressBar(), stopped=True)
    assert output.displays == 1
    early, middle, last = output.shown
    # what the application writes itself is no input; the time that is left is known once offsets have been counted for a while
    assert early["text/plain"].startswith("daily <b>: 20 of 100 offsets, ") and " s left" not in early["text/plain"]
    assert early["text/plain"].endswith(", 7 to go on the application's own topics")
    assert middle["text/plain"].endswith(", 3 s left"), "30 offsets in the last 2 s"
    assert middle["text/plain"].startswith("daily <b>: 50 of 100 offsets, ") and "1 of 2 partitions done, " in middle["text/plain"]
    assert middle["text/plain"].endswith(" s left") and "daily &lt;b&gt;" in middle["text/html"]
    assert '<progress value="50" max="100"' in middle["text/html"] and '<progress value="100" max="100"' in last["text/html"]
    assert "100 of 100 offsets" in last["text/plain"] and "2 of 2 partitions done" in last["text/plain"]


def test_a_run_that_is_paused_is_not_shown_as_done(monkeypatch: pytest.MonkeyPatch) -> None:
    output = Output()
    monkeypatch.setattr(progress_bar, "display", output.display)
    run(ProgressBar(), stopped=False)
    assert [bundle["text/plain"].split(" offsets")[0] for bundle in output.shown] == ["daily <b>: 20 of 100", "daily <b>: 50 of 100"]


def test_a_session_with_a_reporter_of_its_own_gets_lines_without_the_last() -> None:
    lines: list[str] = []
    report_to(print, ProgressBar)
    try:
        run(progress_view(lines.append), stopped=True)
        assert isinstance(progress_view(default_report), ProgressBar)
    finally:
        report_to(to_stderr)
    assert [line.split(" offsets")[0] for line in lines] == ["daily <b>: 20 of 100", "daily <b>: 50 of 100"]
