"""What a consumer waits for: the settings that depend on what its application reads."""

from __future__ import annotations

from typing import Any

import pytest

from kstreams_repl.host.kafka import clients
from kstreams_repl.host.kafka.clients import ClientSettings, make_consumer


@pytest.fixture
def made(monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.setattr(clients, "_make", lambda kind, settings, *rest: settings)

    def wait(properties: dict[str, Any] | None = None, **given: Any) -> Any:
        settings: Any = make_consumer(ClientSettings("b:1", properties or {}), group_id="g", **given)
        return settings["fetch.wait.max.ms"]

    return wait


def test_only_a_consumer_that_waits_for_no_end_of_a_partition_lets_the_broker_wait_long(made: Any) -> None:
    """The ends that a join, a bounded run or a restore waits for come with the next answer, also if there is no record."""
    assert made(role="main") == 500
    assert [made(role="main", enable_partition_eof=True), made(role="restore"), made(role="global"), made()] == [100] * 4


def test_a_user_s_own_setting_wins(made: Any) -> None:
    assert made({"fetch.wait.max.ms": 7}, role="main") == 7
    assert made({"main.consumer.fetch.wait.max.ms": 8, "consumer.fetch.wait.max.ms": 9}, role="main") == 8
