"""docs/reference/api-coverage.md says of every public name of Kafka Streams what stands for it here, and what it says is there."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from kstreams_repl.system.facade import doors, exports
from tests import api_coverage as coverage
from workshop.bench.peers.kafka_streams import find_jdk
from workshop.conformance.oracle import VERSIONS

ENTRIES = list(coverage.entries())
TARGETS = sorted({each.here for each in ENTRIES if each.kind in (coverage.SAME, coverage.OTHER) and " " not in each.here})


def test_every_class_and_member_has_an_answer() -> None:
    assert len(ENTRIES) > 1_200
    assert [each.name for each in ENTRIES if each.kind == "?" or not each.here] == []


@pytest.mark.parametrize("path", TARGETS)
def test_what_stands_for_a_name_is_there(path: str) -> None:
    coverage.lookup(path)


def test_no_line_is_about_a_name_that_kafka_streams_does_not_have() -> None:
    names = {each.name for each in ENTRIES} | {f"{name}.*" for name in coverage.api()}
    assert set(coverage.table()) <= names


def test_each_configuration_key_is_answered() -> None:
    keys = list(coverage.keys())
    assert len(keys) > 70 and all(each.here for each in keys)


def test_the_lists_are_of_the_jars_that_the_oracle_runs() -> None:
    """Without a JVM: the lists name the jars by their checksums. Read them again: python -m tests.api_coverage --jars."""
    jars = coverage.streams_jars(VERSIONS[-1])
    heading = [line for line in coverage.API.read_text(encoding="utf-8").splitlines() if line.startswith("#")]
    assert heading[1:] == [f"# {jar.file_name} {jar.sha256}" for jar in jars] and len(jars) == 2
    assert f"Kafka Streams {VERSIONS[-1]} " in heading[0] and f"new since {VERSIONS[-2]}." in heading[0]
    assert coverage.CONFIG_KEYS.read_text(encoding="utf-8").startswith(f"# Configuration keys of Kafka Streams {VERSIONS[-1]},")


@pytest.mark.slow
@pytest.mark.integration
@pytest.mark.timeout(600)
@pytest.mark.skipif(find_jdk() is None, reason="no JDK (javac 17 or newer)")
def test_the_lists_are_what_the_jars_have(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    committed = [path.read_text(encoding="utf-8") for path in (coverage.API, coverage.CONFIG_KEYS)]
    monkeypatch.setattr(coverage, "API", tmp_path / "api")
    monkeypatch.setattr(coverage, "CONFIG_KEYS", tmp_path / "keys")
    coverage.read_jars()
    assert [path.read_text(encoding="utf-8") for path in (coverage.API, coverage.CONFIG_KEYS)] == committed


def test_what_is_new_is_on_the_page_with_its_answer() -> None:
    recent = coverage.new_names()
    assert {"TimestampedKeyWithHeadersQuery", "TestRecord.equalsIgnorePartition", "enable.transactional.statestores"} <= recent
    entries = [each for each in (*ENTRIES, *coverage.keys()) if each.name in recent]
    assert len(entries) == len(recent) and all(each.here for each in entries)
    section = coverage.page().partition("## New in 4.4.0")[2].partition("\n## ")[0]
    assert [each.name for each in entries if f"`{coverage.shown(each.name)}`" not in section] == []


def test_a_name_that_is_gone_is_noticed() -> None:
    for gone in ("dsl.KStream.no_such_method", "dsl.KStream.to(topics=)", "dsl.Nothing"):
        with pytest.raises(LookupError, match=re.escape(gone.partition("(")[0])):
            coverage.lookup(gone)


def test_the_page_is_current() -> None:
    assert coverage.PAGE.read_text(encoding="utf-8") == coverage.page(), "write it again: python -m tests.api_coverage"


def test_nothing_that_is_exported_here_under_the_same_name_is_said_to_be_left_out() -> None:
    """A list that was right once goes stale silently: a class by its name, a member by its name in the class that stands for its class."""
    stand_ins = {name: what for name, (sign, what) in coverage.table().items() if sign == "=" and "(" not in what}
    public = {name for door in doors("kstreams_repl") for name in exports(door)}
    stale = []
    for each in ENTRIES:
        owner, _, member = each.name.rpartition(".")
        if each.kind != coverage.LEFT_OUT:
            continue
        if each.name in public or (owner in stand_ins and coverage.has(coverage.lookup(stand_ins[owner]), coverage.snake(member))):
            stale.append(each.name)
    assert set(stale) == {"ApplicationState"}  # of a task assignor there, of `Application.status` here
