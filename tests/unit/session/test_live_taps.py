"""A tap that this session may not request says so, and one without instances waits for them."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from kstreams_repl.config import StreamsConfig
from kstreams_repl.errors import AuthorizationError, TapUnavailableError
from kstreams_repl.kafka.clients import ClientSettings
from kstreams_repl.session.views import live_taps
from kstreams_repl.session.views.live_taps import LiveTap, live_peek, live_tail
from kstreams_repl.spark.instance_reports import ApplicationReport, InstanceReport


def application(directory: Path, *places: str | None) -> Any:
    config = StreamsConfig({"application.id": "counts", "bootstrap.servers": "nowhere:1", "state.dir": str(directory)})
    (directory / "counts" / "control").mkdir(parents=True, exist_ok=True)
    reports = ApplicationReport(1, {slot: InstanceReport(slot, "running", 1, 0, place=place) for slot, place in enumerate(places)})
    client = SimpleNamespace(settings=ClientSettings("nowhere:1"))
    return SimpleNamespace(name="counts", config=config, reports=reports, status="running", generation=1, client=client)


class Refused:
    """A client whose user has no right to write to the journal."""

    def __init__(self) -> None:
        self.closed = 0

    def put(self, request: Any) -> None:
        raise AuthorizationError("no right to do this on topic counts-journal", hint="ask for it")

    def drop(self, request_id: str) -> None: ...

    def close(self) -> None:
        self.closed += 1


def test_a_tap_without_the_right_to_write_to_the_journal_names_the_right_and_the_ways_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    far, refused = application(tmp_path, "executor-far-0"), Refused()
    monkeypatch.setattr(live_taps, "open_taps", lambda *where, remote: refused)
    with pytest.raises(TapUnavailableError, match="on other hosts, and no right") as raised, LiveTap(far, "kept"):
        pass
    assert "session.peek('kept')" in str(raised.value) and "WRITE on topic counts-journal" in str(raised.value)
    assert raised.value.fields["topic"] == "counts-journal" and refused.closed == 1
    with pytest.raises(TapUnavailableError):
        live_peek(far, "kept", 1, 1.0)
    with pytest.raises(TapUnavailableError):
        next(live_tail(far, "kept", 1.0))
    assert refused.closed == 3


def test_a_tap_begins_when_it_is_known_where_the_instances_run(tmp_path: Path) -> None:
    app = application(tmp_path)
    requests = tmp_path / "counts" / "control" / "taps"
    with LiveTap(app, "kept") as tap:
        assert tap.new() == [] and not requests.exists()
        app.reports = application(tmp_path, None).reports
        assert tap.new() == [] and len(list(requests.iterdir())) == 1
    assert list(requests.iterdir()) == []
