"""Taps through the journal of a real broker."""

from __future__ import annotations

import itertools
import json
import time
from random import Random
from string import ascii_letters, digits
from typing import Any

import pytest

from kstreams_repl.host.instance.control.journal_follower import Follower
from kstreams_repl.host.instance.control.journal_taps import JournalTapClient, JournalTapServer
from kstreams_repl.host.instance.control.node_taps import TapBoard
from kstreams_repl.host.journal.journal import JournalControl, JournalReader, ensure_journal
from kstreams_repl.host.journal.journal_records import DesiredState, TapRequest
from kstreams_repl.host.kafka.admin import Admin
from kstreams_repl.host.kafka.clients import ClientSettings
from kstreams_repl.host.kafka.reading import ranges_of, read_ranges
from kstreams_repl.system.errors import BrokerUnavailableError
from tests.unit.host.instance.test_node_taps import driver, feed

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


@pytest.mark.slow
def test_a_tap_without_a_broker_is_an_error() -> None:
    with pytest.raises(BrokerUnavailableError):
        JournalTapClient(ClientSettings("127.0.0.1:1"), "app")


def rows_of(settings: ClientSettings, admin: Admin, topic: str) -> list[tuple[bytes, bytes | None]]:
    """The records of the journal that compaction has left."""
    return [
        (key or b"", value)
        for _, batch in read_ranges(settings, ranges_of(admin, topic, settled=True))
        for key, value in zip(batch.keys, batch.values, strict=True)
    ]


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_a_long_tap_leaves_a_bounded_journal(settings: ClientSettings, admin: Admin, name: str) -> None:
    """Thirty thousand values, which do not compress well, through two taps; compaction leaves the last segment, and deletions."""
    journal = ensure_journal(admin, name)
    segment = int(admin.topic_configs([journal])[journal]["segment.bytes"])
    control = JournalControl(settings, name)
    control.write(DesiredState(1, "running", 1, 1))
    follower = Follower(settings, name)
    ticks = itertools.count()  # a fifth of a second for each call: rows are not held back by the rate
    board = TapBoard(JournalTapServer(follower, 1, clock=lambda: next(ticks) / 5), 1, 0)
    random = Random(7)
    values = ["".join(random.choices(ascii_letters + digits, k=900)) for _ in range(200)]
    taken = written = 0
    with driver() as running:
        tasks: list[Any] = [running._task]
        for number in range(2):
            client = JournalTapClient(settings, name)
            request = TapRequest(1, f"{number}" * 16, "wrapped", 1_000, 10_000, 0, 0)
            deadline = time.monotonic() + 100
            sent = 0
            while sent < 15_000:
                assert time.monotonic() < deadline
                client.put(request)
                board.serve(tasks)
                if board.active:
                    feed(running, [f"{sent}{value}" for value in values])
                    sent += len(values)
                    board.serve(tasks)
                for part in client.seen(1, request.id):
                    taken += len(part["rows"])
                    written += len(json.dumps(part))
                follower.watch(0.02)
            client.close()
            while board.active:
                assert time.monotonic() < deadline
                board.serve(tasks)
                follower.watch(0.02)
    follower.close()
    control.close()
    assert taken > 10_000
    found = rows_of(settings, admin, journal)
    assert {key: value for key, value in dict(found).items() if key.startswith(b"tap")} == dict.fromkeys(
        [b"tap/" + b"0" * 16, b"tap/" + b"1" * 16, b"tapped/0"]
    ), "whatever a tap has written is deleted"
    assert written > 4 * segment
    size = sum(len(value or b"") for _, value in found)
    deadline = time.monotonic() + 120
    while size > 1.5 * segment:  # a segment is compressed
        assert time.monotonic() < deadline, f"{size:,} of {written:,} bytes are left"
        time.sleep(1)
        size = sum(len(value or b"") for _, value in rows_of(settings, admin, journal))
    print(f"\n{taken:,} values, {written:,} bytes; {size:,} bytes after compaction, of segments of {segment:,}")
