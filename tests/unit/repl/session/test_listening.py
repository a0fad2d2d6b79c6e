"""What listeners are told of an application's reports and failures, with the application's answers given by hand."""

from __future__ import annotations

import threading
from types import SimpleNamespace
from typing import Any

import pytest

from kstreams_repl.repl.session.application.life.listeners import Listeners

_SECONDS = 10


class Application:
    """The parts that listeners look at."""

    name = "app"
    error = "ValueError: poison"
    started = 0

    def __init__(self, status: str) -> None:
        self.status = status
        self.client = SimpleNamespace(closed=False)
        self.current = self
        self.reports = SimpleNamespace(instances={})

    def start(self) -> None:
        self.started += 1
        self.status = "running"


def ended(listening: Listeners) -> bool:
    listening._thread.join(_SECONDS)
    return not listening._thread.is_alive()


def test_restore_and_standby_listeners_are_told_of_each_change_and_of_the_end() -> None:
    app: Any = Application("running")
    told: list[tuple[object, ...]] = []
    came = threading.Event()

    def restored(slot: int, done: int, remaining: int) -> None:
        told.append((slot, done, remaining))
        app.reports.instances[0] = SimpleNamespace(restored=50, restore_remaining=0, standbys={"0_1": 7})
        if remaining == 0:
            came.set()

    app.reports.instances[0] = SimpleNamespace(restored=20, restore_remaining=30, standbys={})
    copies: list[tuple[object, ...]] = []
    seen = threading.Event()

    def behind(*about: object) -> None:
        copies.append(about)
        seen.set()

    listening = Listeners(app, restore=restored, standby=behind)
    assert came.wait(_SECONDS) and seen.wait(_SECONDS)
    listening.close()
    assert told == [(0, 20, 30), (0, 50, 0)] and copies == [(0, "0_1", 7)]


@pytest.mark.parametrize(("answer", "starts"), [("replace_thread", 1), ("shutdown_client", 0), (None, 0), ("replace", 0)])
def test_a_failure_is_answered_once_and_starts_the_application_only_when_asked_to(
    answer: str | None, starts: int, caplog: pytest.LogCaptureFixture
) -> None:
    app: Any = Application("failed")  # before `listen`
    errors: list[object] = []
    asked, later = threading.Event(), threading.Event()

    def uncaught(error: object) -> str | None:
        errors.append(error)
        asked.set()
        return answer

    listening = Listeners(app, uncaught=uncaught, state=lambda new, old: later.set())
    assert asked.wait(_SECONDS)
    if not starts:
        app.status = "stopped"
    assert later.wait(_SECONDS)
    listening.close()
    assert errors == ["ValueError: poison"] and app.started == starts
    assert ("expected replace_thread" in caplog.text) == (answer == "replace")


def test_a_failure_of_the_start_that_a_handler_asked_for_is_a_failure_of_its_own() -> None:
    app: Any = Application("failed")
    app.start = lambda: None  # fails again before anybody looks
    twice = threading.Event()
    errors: list[object] = []

    def uncaught(error: object) -> str:
        errors.append(error)
        if len(errors) == 2:
            twice.set()
            return "shutdown_client"
        return "replace_thread"

    listening = Listeners(app, uncaught=uncaught)
    assert twice.wait(_SECONDS)
    listening.close()
    assert len(errors) == 2


def test_the_thread_ends_with_the_session_with_its_successor_and_with_another_object_of_the_application() -> None:
    app: Any = Application("running")
    first = Listeners(app)
    second = Listeners(app, first)
    assert not first._thread.is_alive()
    app.current = Application("running")
    assert ended(second)
    third = Listeners(Application("running"))  # type: ignore[arg-type]
    third._application.client.closed = True
    assert ended(third)
    inside = Application("running")
    listening: list[Listeners] = []
    listening.append(Listeners(inside, state=lambda new, old: listening[0].close()))  # type: ignore[arg-type]
    inside.status = "stopped"
    assert ended(listening[0])
