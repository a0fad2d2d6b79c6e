"""A mistyped name or an argument of the wrong kind is told where the call is made, with the nearest name."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from IPython.core.interactiveshell import InteractiveShell

import kstreams_repl as ks
from kstreams_repl.engine.call_checks import checked_calls
from kstreams_repl.repl.session.session_directory import SessionDirectory
from kstreams_repl.system.errors import CallError, KStreamsError


@pytest.fixture
def session(tmp_path: Path) -> ks.Session:
    return ks.Session(None, directory=SessionDirectory(tmp_path))


def stream() -> Any:
    return ks.StreamsBuilder().stream("in")


@pytest.mark.parametrize(
    ("call", "message", "hint"),
    [
        (lambda s: ks.StreamsBuilder().stream("in", valu_serde="json"), "no argument 'valu_serde'", "did you mean 'value_serde'?"),
        (lambda s: stream().filter(lambda k, v: True, nam="x"), "filter() has no argument 'nam'", "did you mean 'name'?"),
        (lambda s: stream().map_values(), "map_values(): missing a required argument: 'mapper'", "map_values("),
        (lambda s: stream().to("out", "string", "json"), "takes 1 argument without a name, got 3", "by name: to(topic"),
        (lambda s: stream().group_by_key().count(stor="n"), "'stor'", "did you mean 'store'?"),
        (lambda s: s.read("orders", start_at=1), "read() has no argument 'start_at'", "did you mean 'start'?"),
        (lambda s: s.produce("orders", [1], partition=3), "produce() has no argument 'partition'", "did you mean 'partitions'?"),
        (lambda s: s.deploy(stream(), "app", strat="earliest"), "deploy() has no argument 'strat'", "did you mean 'start'?"),
        (lambda s: s.deploy(stream(), "app", create_topic=True), "no argument 'create_topic'", "did you mean 'create_topics'?"),
        (lambda s: s.deploy(stream()), "deploy(): missing a required argument: 'name'", "deploy(topology, name, *, "),
    ],
)  # fmt: skip
def test_a_wrong_name_is_told_with_the_nearest(session: ks.Session, call: Callable[[ks.Session], Any], message: str, hint: str) -> None:
    with pytest.raises(KStreamsError) as caught:
        call(session)
    assert message in caught.value.message and hint in str(caught.value.hint), caught.value
    assert not session.started, "nothing is started for a call that cannot be made"


def test_settings_pass_and_mistyped_settings_are_the_settings_own(session: ks.Session) -> None:
    with pytest.raises(KStreamsError, match="unknown configuration key 'commit.intervall.ms'"):
        session.client.application_config("app", {"commit.intervall.ms": 1})


@checked_calls
class Calls:
    def add(self, topic: str, count: int | None = None, seconds: float = 1.0, anything: Any = None) -> str:
        if anything == "ours":
            raise KStreamsError("said better")
        return topic + "-" * (count or 0)

    def _inside(self) -> None: ...


@pytest.mark.parametrize(
    ("kwargs", "message"),
    [
        ({"topic": 5}, "add() cannot take topic=5: expected str, got int"),
        ({"topic": "a", "count": "4"}, "add() cannot take count='4': expected int or None, got str"),
        ({"topic": "a" * 100, "count": [1]}, "add() cannot take count=<list>: expected int or None, got list"),
    ],
)
def test_an_argument_of_the_wrong_kind_is_told_once_a_call_broke(kwargs: dict[str, Any], message: str) -> None:
    with pytest.raises(CallError) as caught:
        Calls().add(**kwargs)
    assert caught.value.message == message and isinstance(caught.value, TypeError)
    assert caught.value.hint == "add(topic, count=None, seconds=1.0, anything=None)"


def test_what_fits_and_what_says_more_itself_passes() -> None:
    assert Calls().add("a", True) == "a-" and Calls().add("a", seconds=3) == "a"
    with pytest.raises(KStreamsError, match="said better"):
        Calls().add(5, anything="ours")  # type: ignore[arg-type]


def test_a_notebook_shows_four_lines(capsys: pytest.CaptureFixture[str]) -> None:
    shell = InteractiveShell.instance() if InteractiveShell.initialized() else InteractiveShell()
    shell.run_line_magic("load_ext", "kstreams_repl")
    try:
        capsys.readouterr()
        shell.run_cell("import kstreams_repl as ks; ks.StreamsBuilder().stream('in', valu_serde='json')")
        shown = capsys.readouterr()
        lines = [line for line in (shown.out + shown.err).splitlines() if line.strip()]
        assert len(lines) == 4 and "has no argument 'valu_serde'" in lines[0] and "did you mean 'value_serde'?" in lines[2]
        assert lines[3] == "See: docs/reference/errors.md#callerror"
    finally:
        shell.run_line_magic("unload_ext", "kstreams_repl")
