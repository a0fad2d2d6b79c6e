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
