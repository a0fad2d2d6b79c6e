"""Ports of servers that restart at the address that their clients have."""

from __future__ import annotations

import random

import pytest

from kstreams_repl.host.kafka.embedded import broker
from kstreams_repl.system.errors import EmbeddedBrokerError


def test_no_outgoing_connection_and_no_server_on_port_0_gets_the_port_of_a_stopped_broker() -> None:
    assert all(20_000 <= broker.free_port() < 32_768 for _ in range(50))  # systems choose from 32768 on, unless they are tuned


def test_processes_with_the_same_seed_do_not_choose_the_same_ports() -> None:
    def chosen() -> list[int]:
        random.seed(0)  # as hypothesis does in every test process
        return [broker.free_port() for _ in range(4)]

    assert chosen() != chosen()


def test_a_taken_port_is_passed_over_and_none_left_is_a_typed_error(monkeypatch: pytest.MonkeyPatch) -> None:
    taken = broker.free_port()
    monkeypatch.setattr(broker, "_PORTS", range(taken, taken + 200))
    assert taken not in {broker.free_port(taken) for _ in range(20)}
    monkeypatch.setattr(broker, "is_free_port", lambda port: False)
    with pytest.raises(EmbeddedBrokerError, match=f"no free port on 127.0.0.1 in {taken} to {taken + 199}\nHint: "):
        broker.free_port()
