"""What librdkafka logs, as a notebook shows it: each kind once a minute, and no retry that is over in a moment."""

from __future__ import annotations

import logging

import pytest

from kstreams_repl.host.kafka import clients

RETRY = ("GETPID", "rdkafka#producer-7", "[thrd:main]: Failed to acquire idempotence PID: Coordinator load in progress: retrying")
REFUSED = ("FAIL", "rdkafka#producer-7", "[thrd:main]: Connect to ipv4#127.0.0.1:1 failed: Connection refused")


class Clock:
    now = 1_000.0

    def monotonic(self) -> float:
        return self.now


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    clock = Clock()
    monkeypatch.setattr(clients, "time", clock)
    return clock


def passes(log_filter: clients._AtMostOnceAMinute, arguments: tuple[str, str, str]) -> bool:
    """As confluent_kafka calls its logger: the same format for each message."""
    return log_filter.filter(logging.LogRecord("librdkafka", logging.WARNING, "", 0, "%s [%s] %s", arguments, None))


def test_each_kind_of_message_passes_once_a_minute(clock: Clock) -> None:
    log_filter = clients._AtMostOnceAMinute()
    assert passes(log_filter, REFUSED) and not passes(log_filter, REFUSED)
    assert passes(log_filter, ("MAXPOLL", *REFUSED[1:])), "one kind does not hide the others"
    clock.now += 60
    assert passes(log_filter, REFUSED)


def test_a_retry_is_logged_when_it_goes_on_for_ten_seconds(clock: Clock) -> None:
    log_filter = clients._AtMostOnceAMinute()
    assert not passes(log_filter, RETRY)
    clock.now += 300  # another start, another coordinator
    assert not passes(log_filter, RETRY)
    for _ in range(9):
        clock.now += 1
        assert not passes(log_filter, RETRY)
    clock.now += 1
    assert passes(log_filter, RETRY) and not passes(log_filter, RETRY)
