"""Values of the configuration: what is no whole number is refused, and not rounded."""

from __future__ import annotations

from typing import Any

import pytest

from kstreams_repl.config import StreamsConfig
from kstreams_repl.errors import ConfigError


@pytest.mark.parametrize("name", ["commit.interval.ms", "max.task.idle.ms", "replication.factor", "repl.commit.eager.ms"])
@pytest.mark.parametrize("value", [2.7, True, float("inf"), float("nan"), "2.5", 2**63, None, "abc"])
def test_what_is_no_whole_number_is_refused(name: str, value: Any) -> None:
    with pytest.raises(ConfigError):
        StreamsConfig({name: value})


@pytest.mark.parametrize("value", [3, "3", 3.0, " 3 "])
def test_what_is_one_is_read(value: Any) -> None:
    assert StreamsConfig({"commit.interval.ms": value})["commit.interval.ms"] == 3
