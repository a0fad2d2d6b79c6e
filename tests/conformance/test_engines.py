"""The same results on the stores of a deployed application: LMDB, and values kept as objects until the flush."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from kstreams_repl.engine.stores.engine.lmdb import LmdbEnvironment
from kstreams_repl.test_driver import driver
from kstreams_repl.test_driver.driver import Mode
from workshop.conformance.runner import read_cases, run_case

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


def differences(path: Path, *, mode: Mode = "exact", every_update: bool = True) -> list[str]:
    """
    Args:
        every_update: the changelogs hold each of them, so they are compared, too.
    """
    config = {"repl.changelog.suppression": str(not every_update).lower()}
    compared = read_cases(path) if mode == "exact" else map(without_changelogs, read_cases(path))
    outcomes = [run_case({**case, "config": config | case.get("config", {})}, mode=mode) for case in compared]
    assert outcomes
    return [f"{outcome.case_id}\n{outcome.difference}" for outcome in outcomes if outcome.difference is not None and outcome.waived is None]


def without_changelogs(case: dict[str, Any]) -> dict[str, Any]:
    """What a changelog holds between two commits is not fixed; everything else is."""
    observed = {topic: types for topic, types in case.get("observe", {}).items() if not topic.endswith("-changelog")}
    trace = [{topic: seen for topic, seen in step.items() if not topic.endswith("-changelog")} for step in case["expect"].get("trace", ())]
    return {**case, "observe": observed, "expect": {**case["expect"], "trace": trace} if trace else case["expect"]}


@pytest.mark.slow  # the default tests compare each case twice: exact, and as deployed, which uses LMDB, too
@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
@pytest.mark.usefixtures("on_lmdb")
def test_cases_on_lmdb_equal_the_jvm(path: Path) -> None:
    assert differences(path) == []


@pytest.mark.parametrize(
    "every_update", [pytest.param(False, id="suppressed"), pytest.param(True, id="every update", marks=pytest.mark.slow)]
)
@pytest.mark.parametrize("path", WITHOUT_DUMPS, ids=lambda path: path.stem)
def test_cases_as_deployed_equal_the_jvm(path: Path, every_update: bool) -> None:
    """Loops over columns, stores in LMDB, the deployed record cache."""
    assert differences(path, mode="deployed", every_update=every_update) == []
