"""What processing loses to queries, and whose processor time it was."""

from __future__ import annotations

import os
from contextlib import nullcontext
from types import SimpleNamespace
from typing import Any

import psutil
import pytest

from workshop.bench import queries_http
from workshop.bench.queries_http import _Processed, _used, emit_slowdown
from workshop.bench.rig.http_load import Loaded


def test_processor_time_is_told_by_part_and_each_process_counts_once() -> None:
    me, parent = psutil.Process(), psutil.Process(os.getppid())
    testbed: Any = SimpleNamespace(own_processes=lambda: [me, parent], broker_processes=list)
    used = _used(testbed, {"server": parent.pid})
    assert used["application"] == {} and used["broker"] == {}  # the benchmark itself is no part
    assert list(used["server"]) == [parent.pid] and used["server"][parent.pid] >= 0


def test_the_loss_is_also_told_without_the_load_s_share(monkeypatch: pytest.MonkeyPatch) -> None:
    loaded = Loaded(1000, 0, 1.0, 1, 2, 3, 4, 0.3)

    def processed(testbed: Any, app: Any, server: Any, topic: str, records: int, gets: Any, cores: list[int]) -> _Processed:
        parts = {"application": 1.5, "broker": 0.4, "server": 0.1 if gets else 0.0, "load": len(cores) / 5 if gets else 0.0}
        return _Processed(72_000.0 if gets else 100_000.0, parts, 20.0, loaded if gets else None)

    monkeypatch.setattr(queries_http, "_processed", processed)
    testbed: Any = SimpleNamespace(own_processes=list, broker_processes=list)
    server: Any = SimpleNamespace(_record=SimpleNamespace(pid=os.getpid()))
    lines: list[dict[str, Any]] = []
    monkeypatch.setattr(queries_http, "pinned", lambda processes, cores: nullcontext())
    emit_slowdown(lambda case, value, unit, **more: lines.append(more | {"value": value}), testbed, None, server, "t", 9, ["get"], 2)  # type: ignore[arg-type]
    shared = lines[0]
    assert (shared["value"], shared["without_load"]) == (28.0, 10.0)
    assert (shared["server_cores"], shared["application_cores"], shared["us_per_record"]) == (0.1, [1.5, 1.5], [20.0, 20.0])
