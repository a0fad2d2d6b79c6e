"""Taps through the journal of a real broker."""

from __future__ import annotations

import time
from typing import Any

import pytest

from kstreams_repl.errors import BrokerUnavailableError
from kstreams_repl.instance.control.journal_follower import Follower
from kstreams_repl.instance.control.journal_taps import JournalTapClient, JournalTapServer
from kstreams_repl.instance.control.node_taps import TapBoard
from kstreams_repl.kafka.admin import Admin
from kstreams_repl.kafka.clients import ClientSettings
from kstreams_repl.kafka.journal import JournalControl, JournalReader, ensure_journal
from kstreams_repl.kafka.journal_records import DesiredState, TapRequest
from tests.unit.instance.test_node_taps import driver, feed

pytestmark = pytest.mark.kafka
ID = "ab" * 8
REQUEST = TapRequest(1, ID, "wrapped", 100, 200, 0, 0)


def test_a_clients_tap_reaches_the_instance_and_values_come_back(settings: ClientSettings, admin: Admin, name: str) -> None:
    ensure_journal(admin, name)
    control = JournalControl(settings, name)
    control.write(DesiredState(1, "running", 1, 1))
    follower, client = Follower(settings, name), JournalTapClient(settings, name)
    board = TapBoard(JournalTapServer(follower, 1), 1, 0)
    found: list[dict[str, Any]] = []

    def until(count: int, tasks: list[Any]) -> None:
        deadline = time.monotonic() + 20
        while not found or found[-1]["count"] < count:
            assert time.monotonic() < deadline, found
            board.serve(tasks)
            found.extend(client.seen(1, ID))
            time.sleep(0.02)

    with driver() as running:
        tasks: list[Any] = [running._task]
        client.put(REQUEST)
        until(0, tasks)
        feed(running, ["to", "be"])
        until(2, tasks)
        assert [row[3] for part in found for row in part["rows"]] == [{"text": "to"}, {"text": "be"}]
        client.put(REQUEST)  # its lease goes on
        feed(running, ["or"])
        until(3, tasks)
        client.close()
        deadline = time.monotonic() + 20
        while board.active:
            assert time.monotonic() < deadline
            board.serve(tasks)
            time.sleep(0.02)
    follower.close()
    control.write(DesiredState(1, "running", 1, 2))  # not fenced by any of it
    control.close()
    reader = JournalReader(settings, name)
    state = reader.catch_up(admin)
    reader.close()
    assert state.desired == DesiredState(1, "running", 1, 2) and not state.taps
    assert not state.tapped, "who asked for no values skips them"


def test_a_tap_without_a_broker_is_an_error() -> None:
    with pytest.raises(BrokerUnavailableError):
        JournalTapClient(ClientSettings("127.0.0.1:1"), "app")
