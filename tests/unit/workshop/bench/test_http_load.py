"""The load of the queries benchmark, against a query server over a real state directory."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import kstreams_repl as ks
from kstreams_repl.system.errors import KStreamsError
from tests.queried import State
from tests.unit.serving.serving import Journal, Server
from workshop.bench.queries_http import STORE, key_of, requests_of
from workshop.bench.rig.http_load import Load, result_of, start_load


@pytest.mark.slow
@pytest.mark.integration
def test_a_load_counts_answers_and_fails_with_the_server(tmp_path: Path) -> None:
    state = State(tmp_path, ks.StoreBuilder(STORE, ks.StoreKind.TIMESTAMPED_KEY_VALUE))

    def fill(stores: Any) -> None:
        for number in range(10):
            stores[STORE].put(key_of(number), (number, 0))

    state.write(0, fill)
    server = Server(state, Journal().assign({"0": ("0_0",)}).claim(0, "driver")).start()
    try:
        gets, many = requests_of(server.port, server.tokens.view.reveal(), 10)
        found = result_of(start_load(Load("127.0.0.1", server.port, gets[:50], 2, 1.0, 100.0)))
        assert 0 < found.answers <= 100 * found.seconds + 1 and found.refused == 0 and 0 < found.p50 <= found.max
        assert result_of(start_load(Load("127.0.0.1", server.port, many[:1], 1, 1.0))).answers > 0
        unauthorized = [text.replace("Bearer ", "Bearer x") for text in gets[:1]]
        with pytest.raises(KStreamsError, match="another status"):
            result_of(start_load(Load("127.0.0.1", server.port, unauthorized, 1, 1.0)))
    finally:
        server.stop()
