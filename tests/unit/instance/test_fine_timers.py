"""Short waits of the calls' event loop: not rounded up to milliseconds, and ended by what arrives."""

from __future__ import annotations

import asyncio
import select
import socket
import threading
from typing import Any

import pytest

from kstreams_repl.instance.calls.fine_timers import FineEpollSelector, new_event_loop


@pytest.fixture
def waits(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """The timeouts that were given to `select`."""
    given: list[Any] = []
    real = select.select

    def noted(readers: Any, writers: Any, others: Any, timeout: Any) -> Any:
        given.append(timeout)
        return real(readers, writers, others, timeout)

    monkeypatch.setattr(select, "select", noted)
    return given


def test_a_short_wait_ends_within_a_fraction_of_a_millisecond(waits: list[Any]) -> None:
    with FineEpollSelector() as selector:
        for timeout in (0.0021, 0.000001, 0.0, -1.0, 0.05, None):
            ours, theirs = socket.socketpair()
            with ours, theirs:
                selector.register(ours, 1)
                theirs.send(b"!")  # else the long waits would take their time
                assert [key.fileobj for key, _ in selector.select(timeout)] == [ours]
                selector.unregister(ours)
        assert waits == [0.0021, 0.00025]


def test_a_selector_beyond_the_descriptors_of_select_waits_as_epoll_does(waits: list[Any], monkeypatch: pytest.MonkeyPatch) -> None:
    with FineEpollSelector() as selector:
        monkeypatch.setattr(selector, "fileno", lambda: 1024)
        assert selector.select(0.002) == [] and waits == []


def test_the_loop_serves_timers_sockets_and_other_threads() -> None:
    async def work() -> list[str]:
        loop, order = asyncio.get_running_loop(), []
        ours, theirs = socket.socketpair()
        ours.setblocking(False)
        with ours, theirs:
            loop.call_later(0.002, order.append, "timer")
            loop.call_later(0.004, theirs.send, b"!")
            await loop.sock_recv(ours, 1)
            order.append("socket")
            done = loop.create_future()
            thread = threading.Thread(target=lambda: loop.call_soon_threadsafe(done.set_result, "thread"))
            thread.start()
            order.append(await asyncio.wait_for(done, 10))
            thread.join()
        return order

    loop = new_event_loop()
    try:
        assert loop.run_until_complete(work()) == ["timer", "socket", "thread"]
    finally:
        loop.close()
