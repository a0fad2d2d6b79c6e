"""`autostop.at`: what it takes, and what it refuses."""

from __future__ import annotations

from datetime import date, datetime
from typing import Any

import pytest

from kstreams_repl.engine.config import StreamsConfig
from kstreams_repl.engine.topology.bounds.stop_at import StopAt, checked
from kstreams_repl.system.errors import ConfigError


@pytest.mark.parametrize(
    ("value", "wanted"),
    [
        ("eol", StopAt()),
        ("records:1_000", StopAt(records=1000)),
        ("1970-01-02", StopAt(time_ms=86_400_000)),
        (date(1970, 1, 2), StopAt(time_ms=86_400_000)),
        (datetime(1970, 1, 1, 0, 1), StopAt(time_ms=60_000)),
        ("1970-01-01T01:00+01:00", StopAt(time_ms=0)),
        (1500, StopAt(time_ms=1500)),
        ({"a": {0: 7}}, StopAt(offsets={"a": {0: 7}})),
    ],
)
def test_each_kind_is_read_back_as_it_was_given(value: Any, wanted: StopAt) -> None:
    text = StreamsConfig({"autostop.at": value})["autostop.at"]
    assert isinstance(text, str) and StopAt.parse(text) == wanted and checked(text) == text


@pytest.mark.parametrize("value", ["end", "records:0", "records:x", {"a": {0: -1}}, {"a": 7}, {"a": {"x": 1}}, "{", "2013-13-01"])
def test_what_is_none_of_them_is_refused_with_what_it_takes(value: Any) -> None:
    with pytest.raises(ConfigError, match=r"autostop\.at") as caught:
        StreamsConfig({"autostop.at": value})
    assert "eol" in str(caught.value.hint)


def test_a_stream_has_none() -> None:
    assert StreamsConfig()["autostop.at"] is None and checked(None) is None
