"""The rows of a selected store in the live picture: what the front end's controls ask for."""

from __future__ import annotations

import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import kstreams_repl as ks
from kernel_ext.live.live_picture import LivePicture
from kstreams_repl.repl.session.views.stores.local_queries import queries_of
from tests.queried import State


def test_a_front_end_turns_and_filters_the_selected_store(tmp_path: Path) -> None:
    state = State(tmp_path, ks.StoreBuilder("counts", ks.StoreKind.TIMESTAMPED_KEY_VALUE))

    def fill(stores: Any) -> None:
        for number in range(30):
            stores["counts"].put(f"k{number:02d}", (number, number))

    state.write(0, fill)
    shapes = SimpleNamespace(shapes=[SimpleNamespace(id="store:counts")], clusters=[])
    app: Any = SimpleNamespace(name="queried", config=state.config, topology=state.topology, picture=lambda: shapes)
    app._core = app
    live = LivePicture(app, lambda changed: None)

    def after(message: dict[str, Any], text: str) -> str:
        live.receive(message)
        deadline = time.monotonic() + 30
        while live.state["paging"].get("text") != text:
            assert time.monotonic() < deadline, live.state
            time.sleep(0.01)
        return str(live.state["detail"])

    assert "k19" in after({"do": "select", "shape": "store:counts"}, "20 rows")
    assert "k20" in after({"do": "rows", "turn": "next"}, "page 2, 10 rows")
    assert "k05" in after({"do": "rows", "filter": "k0"}, "10 rows")
    assert "k19" in after({"do": "rows", "filter": ""}, "20 rows")
    live.receive({"do": "select", "shape": ""})
    assert live.state["paging"] == {} and live.state["detail"] == ""
    queries_of(app).close()
    state.local.close()
