"""The same results on the stores of a deployed application: LMDB, and values kept as objects until the flush."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from kstreams_repl.runtime import fused_queue
from kstreams_repl.stores.engine.lmdb import LmdbEnvironment
from kstreams_repl.testing import driver
from kstreams_repl.testing.conformance import runner
from kstreams_repl.testing.conformance.runner import read_cases, run_case

CASES = Path(__file__).parent / "cases"
FILES = sorted(CASES.glob("*.jsonl"))
WITHOUT_DUMPS = [path for path in FILES if path.stem != "store_dump"]  # the JVM shows expired rows while its cache still has them


@pytest.fixture
def on_lmdb(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Each driver gets an LMDB environment of its own."""
    opened: list[LmdbEnvironment] = []

    def environment() -> LmdbEnvironment:
        opened.append(LmdbEnvironment(tmp_path / str(len(opened)), map_bytes=1 << 24))
        return opened[-1]

    monkeypatch.setattr(driver, "MemoryEnvironment", environment)
    yield
    for each in opened:
        each.close()


@pytest.fixture
def deferred(monkeypatch: pytest.MonkeyPatch) -> None:
    """As deployed: one changelog record per key and commit, so that immutable values are serialized when they are flushed."""
    monkeypatch.setitem(runner.BASE_CONFIG, "repl.changelog.suppression", "true")


@pytest.fixture
def deployed_cache(monkeypatch: pytest.MonkeyPatch) -> None:
    """The record cache of deployed tasks instead of the exact one."""
    task = partial(driver.StreamTask)

    def deployed(*arguments: Any, **options: Any) -> Any:
        return task(*arguments, **options | {"exact_cache": False})

    monkeypatch.setattr(driver, "StreamTask", deployed)


@pytest.fixture
def loops(monkeypatch: pytest.MonkeyPatch) -> None:
    """Sources run their loops for single records too, which the test driver feeds a task."""
    monkeypatch.setattr(fused_queue, "LEAST", 1)


def differences(path: Path, *, with_changelogs: bool) -> list[str]:
    outcomes = [run_case(case if with_changelogs else without_changelogs(case)) for case in read_cases(path)]
    assert outcomes
    return [f"{outcome.case_id}\n{outcome.difference}" for outcome in outcomes if outcome.difference is not None and outcome.waived is None]


def without_changelogs(case: dict[str, Any]) -> dict[str, Any]:
    """What a changelog holds between two commits is not fixed; everything else is."""
    observed = {topic: types for topic, types in case.get("observe", {}).items() if not topic.endswith("-changelog")}
    trace = [{topic: seen for topic, seen in step.items() if not topic.endswith("-changelog")} for step in case["expect"].get("trace", ())]
    return {**case, "observe": observed, "expect": {**case["expect"], "trace": trace} if trace else case["expect"]}


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
@pytest.mark.usefixtures("on_lmdb")
def test_cases_on_lmdb_equal_the_jvm(path: Path) -> None:
    assert differences(path, with_changelogs=True) == []


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
@pytest.mark.usefixtures("deferred")
def test_cases_with_deferred_writes_equal_the_jvm(path: Path) -> None:
    assert differences(path, with_changelogs=False) == []


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
@pytest.mark.usefixtures("on_lmdb", "deferred")
def test_cases_on_lmdb_with_deferred_writes_equal_the_jvm(path: Path) -> None:
    assert differences(path, with_changelogs=False) == []


@pytest.mark.parametrize("path", WITHOUT_DUMPS, ids=lambda path: path.stem)
@pytest.mark.usefixtures("on_lmdb", "deployed_cache")
def test_cases_with_the_deployed_cache_equal_the_jvm(path: Path) -> None:
    assert differences(path, with_changelogs=False) == []


@pytest.mark.parametrize("path", WITHOUT_DUMPS, ids=lambda path: path.stem)
@pytest.mark.usefixtures("loops", "deployed_cache")
def test_cases_in_loops_over_columns_equal_the_jvm(path: Path) -> None:
    assert differences(path, with_changelogs=False) == []
