"""A tap that no instance can serve says so."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from kstreams_repl.config import StreamsConfig
from kstreams_repl.errors import TapUnavailableError
from kstreams_repl.session.views.live_taps import LiveTap, live_peek, live_tail
from kstreams_repl.spark.instance_reports import ApplicationReport, InstanceReport


def application(directory: Path, *, taps: bool) -> Any:
    config = StreamsConfig({"application.id": "counts", "bootstrap.servers": "nowhere:1", "state.dir": str(directory)})
    (directory / "counts" / "control").mkdir(parents=True, exist_ok=True)
    told = InstanceReport(0, "running", 1, 0, place="executor-far-0", taps=taps)
    reports = ApplicationReport(1, {0: told})
    return SimpleNamespace(name="counts", config=config, reports=reports, status="running", generation=1)


def test_a_tap_on_instances_that_it_does_not_reach_names_where_they_are_and_the_ways_out(tmp_path: Path) -> None:
    far = application(tmp_path, taps=False)
    with pytest.raises(TapUnavailableError, match="executor-far-0") as raised, LiveTap(far, "kept"):
        pass
    assert "session.peek('kept')" in str(raised.value)
    assert raised.value.fields["places"] == ["executor-far-0"]
    with pytest.raises(TapUnavailableError):
        live_peek(far, "kept", 1, 1.0)
    with pytest.raises(TapUnavailableError):
        next(live_tail(far, "kept", 1.0))


def test_instances_that_move_out_of_reach_end_a_tap(tmp_path: Path) -> None:
    app = application(tmp_path, taps=True)
    with LiveTap(app, "kept") as tap:
        assert tap.new() == []
        app.reports = application(tmp_path, taps=False).reports
        with pytest.raises(TapUnavailableError):
            tap.new()
