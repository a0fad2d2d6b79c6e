"""What `session.values?` shows runs: the examples of a session on a real broker, those of an application on real Spark."""

from __future__ import annotations

import doctest
import inspect
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import kstreams_repl as ks
from tests.unit.public_api import members

pytestmark = [pytest.mark.kafka, pytest.mark.timeout(300)]
RESULTS_OF_A_SESSION = (ks.reports.SqlResult, ks.reports.Cleanup, ks.reports.Admin)
RESULTS_OF_AN_APPLICATION = (ks.queries.StoreView, ks.reports.MetricsView, ks.reports.Applications)
AFTER_AN_APPLICATION = (ks.reports.EditPlan, ks.reports.Listeners, ks.reports.Savepoint)  # they pause it, which begins its counts again
ON_SPARK = {"Session.attach", "Session.deploy", "Session.run_batch", "Session.spark_frame"}
AT_REST = ("Session.reset",)
AT_THE_END = ("Session.close", "Application.edit", "Application.rollback", "Application.pause", "Application.stop")


def places(kind: type) -> list[str]:
    """Methods and properties that a user meets, those that end something last."""
    names = [name for name, value in members(kind) if callable(value) or isinstance(value, property)]
    found = [f"{kind.__name__}.{name}" for name in names]
    return sorted(found, key=lambda place: AT_THE_END.index(place) if place in AT_THE_END else -1)


def run(place: str, names: dict[str, Any]) -> str:
    """Return what goes wrong."""
    kind, _, name = place.partition(".")
    owner = next(getattr(room, kind) for room in (ks, ks.reports, ks.queries) if hasattr(room, kind))
    text = inspect.getdoc(getattr(owner, name)) or ""
    test = doctest.DocTestParser().get_doctest(text, names, place, None, 0)
    report: list[str] = []
    options = doctest.NORMALIZE_WHITESPACE | doctest.ELLIPSIS | doctest.REPORT_ONLY_FIRST_FAILURE
    for example in test.examples:
        if not example.want and _is_expression(example.source):  # what it shows is looked at elsewhere; here it has to run
            example.source = f"_ = ({example.source.strip()})\n"
    doctest.DocTestRunner(verbose=False, optionflags=options).run(test, out=report.append, clear_globs=False)
    return "".join(report)


def _is_expression(source: str) -> bool:
    try:
        compile(source.strip(), "example", "eval")
    except SyntaxError:
        return False
    return True


@pytest.fixture
def names(tmp_path: Path) -> Iterator[dict[str, Any]]:
    """`session` and `builder`, on a broker of their own: the examples have plain names."""
    with ks.connect(directory=tmp_path, report=lambda line: None) as session:
        session.produce("words", [(key, word, 1000 + n) for n, (key, word) in enumerate(WORDS)], partitions=2)
        builder = ks.StreamsBuilder()
        words = builder.stream("words", key_serde="string", value_serde="string", name="words")
        kept = words.filter(lambda key, word: True, name="long")
        kept.group_by_key(key_serde="string", value_serde="string").count(store="counts")
        yield {"session": session, "builder": builder, "kstreams_repl": ks, "ks": ks}


WORDS = [("a", "to"), ("b", "be"), ("b", "or"), ("b", "not"), ("a", "to")]


@pytest.mark.slow
def test_the_examples_of_a_session_run(names: dict[str, Any]) -> None:
    found = [*(place for kind in RESULTS_OF_A_SESSION for place in places(kind)), *places(ks.Session)]
    wrong = [run(place, names) for place in found if place not in ON_SPARK and place not in AT_REST and place != "Session.spark"]
    assert not any(wrong), "".join(wrong)


@pytest.mark.spark
@pytest.mark.slow
def test_the_examples_of_an_application_run(names: dict[str, Any]) -> None:
    session, builder = names["session"], names["builder"]
    names["app"] = session.deploy(builder, "word-count", processing_guarantee="exactly_once_v2")
    assert names["app"].wait(120)
    results = [place for kind in RESULTS_OF_AN_APPLICATION for place in places(kind)]
    later = [place for kind in AFTER_AN_APPLICATION for place in places(kind)]
    wrong = [run(place, names) for place in (*results, *places(ks.Application), *later, *sorted(ON_SPARK))]
    names["app"].stop()
    wrong += [run(place, names) for place in AT_REST]
    assert not any(wrong), "".join(wrong)


@pytest.mark.parametrize("kind", [ks.Session, ks.Application])
def test_every_method_has_an_example(kind: type) -> None:
    lacking = [place for place in places(kind) if ">>>" not in (inspect.getdoc(getattr(kind, place.partition(".")[2])) or "")]
    assert [place for place in lacking if place != "Session.spark"] == []
