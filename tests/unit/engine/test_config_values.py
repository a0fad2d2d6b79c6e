"""Values of the configuration: what is no whole number is refused, and not rounded."""

from __future__ import annotations

import inspect
from pathlib import Path
from typing import Any

import pytest

from kstreams_repl.engine.config import KEYS, StreamsConfig
from kstreams_repl.system.errors import ConfigError
from tests.api_coverage import all_config_keys


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


_WHOLE = ["", "x", "1.5", 2.5, True, None, 2**63, float("nan"), -(2**70), [], "1e400"]
_TEXT = [5, True, [], {}, b"x"]
_NAME = ["", "a b", "a/b", ".", "x" * 300, *_TEXT]
_CHOICE = ["", "some", 1, True, None, []]
_FLAG = ["", "yes", 1, 0, None, []]
_HANDLER = ["", "ignore", 3, {}, ["fail"]]
_URL = ["collector", "collector:4318", "ftp://collector", "http://", 4318, ""]
BAD: dict[str, list[Any]] = {
    "repl.openlineage.url": _URL, "repl.otlp.endpoint": _URL, "repl.trace.rate": [-0.1, 1.1, "x", True, [], float("nan")],
    "repl.alignment.drift.ms": [-2, *(value for value in _WHOLE if value is not None)],
    "application.id": _NAME, "bootstrap.servers": _TEXT, "commit.interval.ms": [-1, *_WHOLE],
    "num.stream.threads": [0, *_WHOLE], "num.processing.threads": [0, *_WHOLE], "num.threads.per.task": [0, *_WHOLE],
    "repl.task.scheduler": _CHOICE, "num.standby.replicas": [-1, *_WHOLE], "state.dir": _TEXT, "state.cleanup.delay.ms": [-1, *_WHOLE],
    "statestore.cache.max.bytes": [-1, *_WHOLE], "partition.grouper": ["x", 1, []], "max.task.idle.ms": [-2, *_WHOLE],
    "buffered.records.per.partition": [0, *_WHOLE], "input.buffer.max.bytes": [0, *_WHOLE],
    "auto.offset.reset": ["", "now", 1, None, "by_duration:x"], "default.timestamp.extractor": ["now", 1, []],
    "default.key.serde": ["", "nope", 1, [], str], "default.value.serde": ["", "nope", 1, [], str],
    "topology.optimization": ["al", "none,all", 3], "deserialization.exception.handler": _HANDLER,
    "production.exception.handler": _HANDLER, "processing.exception.handler": _HANDLER,
    "errors.dead.letter.queue.topic.name": _NAME,
    "repartition.purge.interval.ms": [0, *_WHOLE], "replication.factor": [0, -2, *_WHOLE], "transaction.timeout.ms": [999, *_WHOLE],
    "metrics.sample.window.ms": [0, *_WHOLE], "metrics.num.samples": [0, *_WHOLE],
    "repl.metrics.interval.ms": [99, *_WHOLE], "application.server": ["localhost", "localhost:99999", ":80", "a:b", "[::1]", 8081],
    "repl.server.certfile": _TEXT, "repl.server.keyfile": _TEXT,
    "autostop.at": ["", "soon", "records:0", "records:x", {"a": 1}, {"a": {"0": -1}}, []],
    "repl.partitions.check.ms": [99, *_WHOLE], "max.poll.interval.ms": [99, *_WHOLE],
    "repl.crash.retries": [0, *_WHOLE], "repl.skip.records": ["orders", "orders-0", "orders-x@1", 5], "repl.epoch.ms": [499, *_WHOLE],
    "repl.epoch.idle.ms": [-1, *_WHOLE],
    "repl.commit.eager.ms": [-2, *_WHOLE], "repl.async.drain.ms": [-1, *_WHOLE], "repl.snapshot.dir": _TEXT,
    "repl.snapshot.interval.ms": [99, *_WHOLE], "repl.snapshot.retention": [0, *_WHOLE], "repl.outer.join.emit.interval.ms": [-1, *_WHOLE],
    "repl.follow": _NAME,
    "repl.source.serdes": ["x", "a=b", "a=nope:json"],
}  # fmt: skip
"""By key; flags, choices and numbers that are not here have those of their parser."""


def bad_values(key: str) -> list[Any]:
    if key in BAD:
        return BAD[key]
    parser = KEYS[key].read.__qualname__.partition(".")[0]
    low = inspect.getclosurevars(KEYS[key].read).nonlocals.get("low", 0)
    return {"_boolean": _FLAG, "_one_of": _CHOICE, "_at_least": [low - 1, *_WHOLE]}[parser]


@pytest.mark.parametrize("key", sorted(KEYS))
def test_a_bad_value_is_refused_where_it_is_given_with_key_and_value(key: str) -> None:
    for value in bad_values(key):
        with pytest.raises(ConfigError) as caught:
            print(f"accepted: {key} = {StreamsConfig({key: value})[key]!r} for {value!r}")
        assert caught.value.fields["key"] == key and caught.value.hint, value
        assert f"{key} = {value!r}" in caught.value.message


def test_a_setting_and_an_argument_of_a_bounded_run_do_not_contradict_each_other() -> None:
    from kstreams_repl.repl.session.session import Session

    session: Any = object.__new__(Session)
    with pytest.raises(ConfigError, match=r"autostop\.at is '2024-01-01' in the settings and 'records:5' as argument"):
        session.run_batch(None, "a", stop_at="records:5", config={"autostop.at": "2024-01-01"})
    with pytest.raises(ConfigError, match=r"repl\.autostop\.on\.end"):
        session.run_batch(None, "a", on_end="close_windows", repl_autostop_on_end="other")


ROOT = Path(__file__).parents[3]
BY_A_CONSTANT = {"processing.guarantee", "repl.follow", "repl.skip.records", "repl.snapshot.required"}
"""Keys that the code reads by the name of a constant, or a property, of `config`."""


OF_PROPOSALS_AND_CLIENTS = {
    "auto.offset.reset", "autostop.at", "input.buffer.max.bytes", "max.poll.interval.ms", "num.processing.threads", "num.threads.per.task",
    "partition.grouper", "transaction.timeout.ms",
}  # fmt: skip
"""Keys that are not of `StreamsConfig`, but of its clients or of one of the five documents."""


def test_a_key_of_ours_has_the_prefix() -> None:
    theirs = all_config_keys()
    assert {key for key in KEYS if key not in theirs and not key.startswith("repl.")} == OF_PROPOSALS_AND_CLIENTS


def test_every_key_of_ours_is_described_in_docs_and_every_key_is_read_somewhere() -> None:
    pages = "\n".join(path.read_text(encoding="utf-8") for path in (ROOT / "docs").rglob("*.md"))
    theirs = all_config_keys()
    assert [key for key in KEYS if key not in theirs and key not in pages] == [], "also one without the prefix repl."
    tables = {"config.py", "kafka_streams_keys.py"}
    sources = [path for package in ("kstreams_repl", "kernel_ext") for path in (ROOT / package).rglob("*.py") if path.name not in tables]
    code = "\n".join(path.read_text(encoding="utf-8") for path in sources if "bench" not in path.relative_to(ROOT).parts)
    assert {key for key in KEYS if f'"{key}"' not in code} == BY_A_CONSTANT
