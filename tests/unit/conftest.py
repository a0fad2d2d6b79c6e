"""What the unit tests share."""

from __future__ import annotations

import signal
from collections.abc import Iterator

import pytest


@pytest.fixture(params=["Python's handler", "a handler that restarts the wait"])
def sigint(request: pytest.FixtureRequest) -> Iterator[None]:
    """A SIGINT handler as Python installs it, and one with ``SA_RESTART``, as Polars leaves it behind when it is imported."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    if request.param != "Python's handler":
        signal.siginterrupt(signal.SIGINT, False)
    yield
    signal.signal(signal.SIGINT, before)


@pytest.fixture(autouse=True)
def one_processor(monkeypatch: pytest.MonkeyPatch) -> None:
    """What an application without ``num.stream.threads`` has, and a deploy reports, does not depend on the machine of the tests."""
    monkeypatch.setattr("kstreams_repl.host.spark.planning.instance_count.processors", lambda: 1)
