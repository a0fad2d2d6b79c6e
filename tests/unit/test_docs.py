"""The documentation runs: every example in docs/ and in docstrings, every link, and a page for every operator."""

from __future__ import annotations

import doctest
import importlib
import inspect
import re
from enum import Enum
from pathlib import Path
from typing import Any

import pytest

import kstreams_repl as ks
from kstreams_repl import dsl
from kstreams_repl.dsl.examples import EXAMPLES

ROOT = Path(__file__).resolve().parents[2]
DOCS = ROOT / "docs"
PAGES = sorted(page for page in DOCS.rglob("*.md") if not {"notebooks", "design"} & set(page.relative_to(DOCS).parts))
OPERATORS = sorted((DOCS / "operators").glob("*.md"))
# Their examples need a broker or Spark; tests/kafka and tests/spark run what they show.
NEED_A_CLUSTER = {"kafka", "spark", "session", "instance", "cli", "demo"}
OPTIONS = doctest.NORMALIZE_WHITESPACE | doctest.ELLIPSIS
_LINK = re.compile(r"\[[^\]]+\]\(([^)#]+)(?:#[^)]*)?\)")


def modules_with_examples() -> list[str]:
    found = []
    for path in sorted((ROOT / "kstreams_repl").rglob("*.py")):
        parts = path.relative_to(ROOT).with_suffix("").parts
        if parts[1] not in NEED_A_CLUSTER and ">>> " in path.read_text(encoding="utf-8"):
            found.append(".".join(parts).removesuffix(".__init__"))
    return found


def run(test: doctest.DocTest) -> None:
    report: list[str] = []
    results = doctest.DocTestRunner(optionflags=OPTIONS).run(test, out=report.append)
    assert results.failed == 0, "".join(report)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(DOCS)))
def test_the_examples_of_a_page_run(page: Path) -> None:
    text = re.sub(r"^```.*$", "", page.read_text(encoding="utf-8"), flags=re.MULTILINE)  # a fence is no expected output
    run(doctest.DocTestParser().get_doctest(text, {}, page.name, str(page), 0))


@pytest.mark.parametrize("module", modules_with_examples())
def test_the_examples_of_a_module_run(module: str) -> None:
    loaded = importlib.import_module(module)
    for test in doctest.DocTestFinder().find(loaded):
        if test.examples:
            run(test)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(DOCS)))
def test_the_links_of_a_page_lead_somewhere(page: Path) -> None:
    targets = _LINK.findall(page.read_text(encoding="utf-8"))
    gone = [target for target in targets if "://" not in target and not (page.parent / target).exists()]
    assert not gone


@pytest.mark.parametrize("page", OPERATORS, ids=lambda page: page.stem)
def test_an_operators_page_has_its_counterpart_its_semantics_and_an_example(page: Path) -> None:
    text = page.read_text(encoding="utf-8")
    for part in ("**Kafka Streams**", "| nulls |", "| time |", "| emits |", "| state |", "```python\n>>> "):
        assert part in text, part


CALLED_BY_USERS = ("K", "Time", "Session", "Sliding", "Cogrouped", "Branched", "StreamsBuilder")


def public_methods() -> list[str]:
    """`Class.method` of everything the DSL exports that a user calls on a stream, table or grouping."""
    found = []
    for name in dsl.__all__:
        kind = getattr(dsl, name)
        if inspect.isclass(kind) and name.startswith(CALLED_BY_USERS) and not name.endswith("Windows"):
            found += [f"{name}.{method}" for method, value in vars(kind).items() if not method.startswith("_") and callable(value)]
    return found


def test_every_method_of_the_dsl_has_an_example() -> None:
    lacking = []
    for kind in (getattr(dsl, name) for name in dsl.__all__):
        for name, value in vars(kind).items() if inspect.isclass(kind) and not issubclass(kind, Enum) else ():
            method = getattr(value, "__func__", value)
            if not name.startswith("_") and inspect.isfunction(method) and ">>>" not in (inspect.getdoc(method) or ""):
                lacking.append(f"{kind.__name__}.{name}")
    assert lacking == []


@pytest.mark.parametrize("place", EXAMPLES)
def test_the_example_of_a_method_runs_and_what_it_builds_is_a_topology(place: str) -> None:
    kind, _, name = place.partition(".")
    member = vars(getattr(dsl, kind))[name]
    text = inspect.getdoc(getattr(member, "__func__", member)) or ""
    test = doctest.DocTestParser().get_doctest(text, {}, place, None, 0)
    report: list[str] = []
    results = doctest.DocTestRunner(optionflags=OPTIONS).run(test, out=report.append, clear_globs=False)
    assert results.attempted > 1 and results.failed == 0, "".join(report)
    if "builder" in test.globs:
        test.globs["builder"].build()


WITH_EXAMPLES = (ks.Topology, ks.ProcessorContext, ks.TopologyTestDriver, ks.MockProcessorContext)


def members(kind: type) -> dict[str, Any]:
    """What a user meets on a class, by `Class.name` of the class that defines it."""
    owners = [owner for owner in kind.__mro__ if owner.__module__.startswith("kstreams_repl")]
    return {
        f"{owner.__name__}.{name}": member
        for owner in owners
        for name, member in vars(owner).items()
        if not name.startswith("_") and (inspect.isfunction(member) or isinstance(member, property))
    }


@pytest.mark.parametrize(("place", "member"), [pair for kind in WITH_EXAMPLES for pair in members(kind).items()])
def test_every_method_of_a_topology_a_context_and_a_driver_has_an_example_that_runs(place: str, member: Any) -> None:
    test = doctest.DocTestParser().get_doctest(inspect.getdoc(member) or "", {}, place, None, 0)
    report: list[str] = []
    results = doctest.DocTestRunner(optionflags=OPTIONS).run(test, out=report.append)
    assert results.attempted > 1 and results.failed == 0, "".join(report)


def described() -> str:
    return "".join(page.read_text(encoding="utf-8") for page in PAGES)


@pytest.mark.parametrize("method", public_methods())
def test_every_operator_is_described(method: str) -> None:
    name = method.partition(".")[2]
    assert re.search(rf"\b{name}\(", described()), f"no page of docs/ shows {method}()"


def test_every_page_is_in_the_index() -> None:
    index = (DOCS / "README.md").read_text(encoding="utf-8")
    listed: set[Any] = {(DOCS / target).resolve() for target in _LINK.findall(index) if "://" not in target}
    assert not [str(page.relative_to(DOCS)) for page in PAGES if page.resolve() not in listed and page.name != "README.md"]
