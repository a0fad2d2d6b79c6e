"""Values of the configuration: what is no whole number is refused, and not rounded."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from kstreams_repl.config import KEYS, StreamsConfig
from kstreams_repl.errors import ConfigError


@pytest.mark.parametrize("name", ["commit.interval.ms", "max.task.idle.ms", "replication.factor", "repl.commit.eager.ms"])
@pytest.mark.parametrize("value", [2.7, True, float("inf"), float("nan"), "2.5", 2**63, None, "abc"])
def test_what_is_no_whole_number_is_refused(name: str, value: Any) -> None:
    with pytest.raises(ConfigError):
        StreamsConfig({name: value})


@pytest.mark.parametrize("value", [3, "3", 3.0, " 3 "])
def test_what_is_one_is_read(value: Any) -> None:
    assert StreamsConfig({"commit.interval.ms": value})["commit.interval.ms"] == 3


def test_a_bounded_run_commits_less_often_unless_told() -> None:
    bounded = {"autostop.at": "eol", "processing.guarantee": "exactly_once_v2"}
    assert StreamsConfig(bounded)["commit.interval.ms"] == 2000
    assert StreamsConfig({**bounded, "commit.interval.ms": 100})["commit.interval.ms"] == 100
    assert StreamsConfig({**bounded, "transaction.timeout.ms": 1000})["commit.interval.ms"] == 500
    assert StreamsConfig()["commit.interval.ms"] == 100


ROOT = Path(__file__).parents[2]
BY_A_CONSTANT = {"processing.guarantee", "repl.skip.records"}
"""Keys that the code reads by the name of a constant, or a property, of `config`."""


def test_every_key_of_ours_is_described_in_docs_and_every_key_is_read_somewhere() -> None:
    pages = "\n".join(path.read_text(encoding="utf-8") for path in (ROOT / "docs").rglob("*.md"))
    theirs = (ROOT / "tests/data/kafka_streams_config_keys.txt").read_text(encoding="utf-8").split()
    assert [key for key in KEYS if key not in theirs and key not in pages] == [], "also one without the prefix repl."
    tables = {"config.py", "kafka_streams_keys.py"}
    sources = [path for package in ("kstreams_repl", "kernel_ext") for path in (ROOT / package).rglob("*.py") if path.name not in tables]
    code = "\n".join(path.read_text(encoding="utf-8") for path in sources if "bench" not in path.relative_to(ROOT).parts)
    assert {key for key in KEYS if f'"{key}"' not in code} == BY_A_CONSTANT
