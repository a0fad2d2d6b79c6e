"""The documentation runs: every example in docs/ and in docstrings, every link, and a page for every operator."""

from __future__ import annotations

import ast
import doctest
import importlib
import inspect
import re
import textwrap
from enum import Enum
from pathlib import Path
from typing import Any

import pytest

import kstreams_repl as ks
from kstreams_repl.engine import dsl
from kstreams_repl.system.facade import doors
from tests.unit.public_api import classes, methods

ROOT = Path(__file__).resolve().parents[2]
DOCS = ROOT / "docs"
PAGES = sorted(page for page in DOCS.rglob("*.md") if not {"notebooks", "design"} & set(page.relative_to(DOCS).parts))
OPERATORS = sorted(page for page in (DOCS / "reference" / "operators").glob("*.md") if page.name != "README.md")
# Their examples need a broker or Spark; tests/kafka and tests/spark run what they show.
NEED_A_CLUSTER = tuple(f"kstreams_repl.{part}." for part in ("host", "repl.session", "cli", "demo"))
OPTIONS = doctest.NORMALIZE_WHITESPACE | doctest.ELLIPSIS
_LINK = re.compile(r"\[[^\]]+\]\(([^)#]+)(?:#[^)]*)?\)")


def modules_with_examples() -> list[str]:
    found = []
    for path in sorted((ROOT / "kstreams_repl").rglob("*.py")):
        name = ".".join(path.relative_to(ROOT).with_suffix("").parts)
        if not name.startswith(NEED_A_CLUSTER) and ">>> " in path.read_text(encoding="utf-8"):
            found.append(name.removesuffix(".__init__"))
    return found


def run(test: doctest.DocTest) -> None:
    report: list[str] = []
    results = doctest.DocTestRunner(optionflags=OPTIONS).run(test, out=report.append)
    assert results.failed == 0, "".join(report)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(DOCS)))
def test_the_examples_of_a_page_run(page: Path) -> None:
    text = re.sub(r"^```.*$", "", page.read_text(encoding="utf-8"), flags=re.MULTILINE)  # a fence is no expected output
    run(doctest.DocTestParser().get_doctest(text, {}, page.name, str(page), 0))


@pytest.mark.parametrize("page", [*PAGES, DOCS.parent / "README.md"], ids=lambda page: str(page.name))
def test_a_table_of_results_stands_below_the_statement_that_computes_it(page: Path) -> None:
    """A table in a block without `>>>` is run by no test."""
    blocks = re.findall(r"^```.*\n([\s\S]*?)^```", page.read_text(encoding="utf-8"), re.MULTILINE)
    assert not [block for block in blocks if re.search(r"^ *─+(  ─+)* *$", block, re.MULTILINE) and ">>> " not in block]


@pytest.mark.parametrize("page", [*PAGES, DOCS.parent / "README.md"], ids=lambda page: str(page.name))
def test_a_code_block_of_a_page_fits_its_width(page: Path) -> None:
    blocks = re.findall(r"^```.*\n([\s\S]*?)^```", page.read_text(encoding="utf-8"), re.MULTILINE)
    assert not [line for block in blocks for line in block.splitlines() if len(line) > 88]


@pytest.mark.parametrize("module", modules_with_examples())
def test_the_examples_of_a_module_run(module: str) -> None:
    loaded = importlib.import_module(module)
    for test in doctest.DocTestFinder().find(loaded):
        if test.examples and not needs_a_cluster(test.docstring or ""):
            run(test)


def needs_a_cluster(text: str) -> bool:
    """Whether an example uses a `session` or an `app`; tests/session/test_examples.py runs those."""
    return re.search(r"(>>>|\.\.\.) .*\b(session|app)\.", text) is not None


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(DOCS)))
def test_the_links_of_a_page_lead_somewhere(page: Path) -> None:
    targets = _LINK.findall(page.read_text(encoding="utf-8"))
    gone = [target for target in targets if "://" not in target and not (page.parent / target).exists()]
    assert not gone


TAUGHT = set(doors("kstreams_repl"))
"""Modules that a program of a user imports from; every other module is internal."""


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(DOCS)))
def test_a_page_teaches_no_internal_import(page: Path) -> None:
    text = page.read_text(encoding="utf-8")
    assert set(re.findall(r"^(?:>>> |\.\.\. )?(?:from|import) (kstreams_repl\.[\w.]+|kernel_ext)\b", text, re.MULTILINE)) <= TAUGHT


@pytest.mark.parametrize("page", OPERATORS, ids=lambda page: page.stem)
def test_an_operators_page_has_its_counterpart_its_semantics_and_an_example(page: Path) -> None:
    text = page.read_text(encoding="utf-8")
    for part in ("**Kafka Streams**", "- **nulls**: ", "- **time**: ", "- **emits**: ", "- **state**: ", "```python\n>>> "):
        assert part in text, part


CALLED_BY_USERS = ("K", "Time", "Session", "Sliding", "Cogrouped", "Branched", "StreamsBuilder")


DSL = {name: getattr(dsl, name) for name in dsl.__all__ if not issubclass(getattr(dsl, name), Enum)}


def public_methods() -> list[str]:
    """`Class.method` of everything the DSL exports that a user calls on a stream, table or grouping."""
    called = [name for name in DSL if name.startswith(CALLED_BY_USERS) and not name.endswith("Windows")]
    return [f"{name}.{method}" for name in called for method in methods(DSL[name])]


@pytest.mark.parametrize("place", [f"{name}.{method}" for name, kind in DSL.items() for method in methods(kind)])
def test_every_method_of_the_dsl_has_an_example_that_runs_and_builds_a_topology(place: str) -> None:
    kind, _, name = place.partition(".")
    text = inspect.getdoc(methods(DSL[kind])[name]) or ""
    test = doctest.DocTestParser().get_doctest(text, {}, place, None, 0)
    report: list[str] = []
    results = doctest.DocTestRunner(optionflags=OPTIONS).run(test, out=report.append, clear_globs=False)
    assert results.attempted > 1 and results.failed == 0, "".join(report)
    if "builder" in test.globs:
        test.globs["builder"].build()


WITH_EXAMPLES = (ks.Topology, ks.ProcessorContext, ks.testing.TopologyTestDriver, ks.testing.MockProcessorContext)


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


def examples_of(function: Any) -> str:
    text = inspect.getdoc(function) or ""
    return text if ">>>" in text else ""


def test_every_public_method_has_an_example() -> None:
    lacking = [f"{kind}.{name}" for kind, cls in classes().items() for name, function in methods(cls).items() if not examples_of(function)]
    assert lacking == []


_AS_ELSEWHERE = re.compile(r"(?:\bas(?:\s+for)?|arguments of|those of)\s+`[\w.]+`")
"""A reference to the arguments of another method, such as "arguments as for `join`"."""


def described_methods() -> dict[str, tuple[Any, str]]:
    """Each public method and its docstring before the example, by name."""
    found = {}
    for kind, cls in classes().items():
        for name, method in methods(cls).items():
            function: Any = inspect.unwrap(method)
            if not function.__code__.co_filename.startswith("<"):  # made by dataclasses
                found[f"{kind}.{name}"] = (function, (inspect.getdoc(function) or "").partition("Example:")[0])
    return found


def test_every_argument_of_a_public_method_is_described() -> None:
    lacking = {}
    for name, (function, text) in described_methods().items():
        arguments = [one for one in inspect.signature(function).parameters if one not in ("self", "cls")]
        undescribed = [one for one in arguments if not re.search(rf"\b{one}\b", text)]
        if undescribed and not _AS_ELSEWHERE.search(text):
            lacking[name] = undescribed
    assert lacking == {}


def test_every_error_that_a_public_method_raises_itself_is_described() -> None:
    lacking = {}
    for name, (function, text) in described_methods().items():
        tree = ast.parse(textwrap.dedent(inspect.getsource(function)))
        raised = {node.exc.func for node in ast.walk(tree) if isinstance(node, ast.Raise) and isinstance(node.exc, ast.Call)}
        errors = {error.id for error in raised if isinstance(error, ast.Name) and error.id[0].isupper()}
        if undescribed := [error for error in errors if error not in text]:
            lacking[name] = undescribed
    assert lacking == {"Savepoint.load": ["ValueError"]}, "caught by the method itself"


def test_a_method_that_refuses_what_is_not_callable_says_so() -> None:
    checked = {name: text for name, (function, text) in described_methods().items() if "check_callable(" in inspect.getsource(function)}
    assert len(checked) > 10
    assert [name for name, text in checked.items() if "TopologyError" not in text] == []


def test_an_example_calls_what_it_is_the_example_of() -> None:
    examples = {name: text.partition("Example:")[2] for name, (_, text) in described_methods().items()}
    assert [name for name, example in examples.items() if example and name.rpartition(".")[2] not in example] == []


def in_a_module_that_needs_a_cluster() -> dict[str, str]:
    """Examples that need none themselves, of modules whose other examples do."""
    found = {}
    for kind, cls in classes().items():
        for name, function in methods(cls).items():
            text = examples_of(function)
            here = f"{inspect.unwrap(function).__module__}.".startswith(NEED_A_CLUSTER)
            if here and text and not needs_a_cluster(text):
                found[f"{kind}.{name}"] = text
    return found


@pytest.mark.parametrize(("place", "text"), in_a_module_that_needs_a_cluster().items())
def test_an_example_that_needs_no_cluster_runs(place: str, text: str) -> None:
    run(doctest.DocTestParser().get_doctest(text, {}, place, None, 0))


def described() -> str:
    return "".join(page.read_text(encoding="utf-8") for page in PAGES)


@pytest.mark.parametrize("method", public_methods())
def test_every_operator_is_described(method: str) -> None:
    name = method.partition(".")[2]
    assert re.search(rf"\b{name}\(", described()), f"no page of docs/ shows {method}()"


def test_every_page_is_on_the_front_page_or_in_an_index() -> None:
    listed = {DOCS / "README.md"}
    for index in (DOCS / "README.md", DOCS / "recipes" / "README.md", DOCS / "reference" / "operators" / "README.md"):
        assert index in listed, f"the front page does not link to {index}"
        targets = [target for target in _LINK.findall(index.read_text(encoding="utf-8")) if "://" not in target]
        listed |= {(index.parent / target).resolve() for target in targets}
    assert not [str(page.relative_to(DOCS)) for page in PAGES if page.resolve() not in listed]


def test_the_front_page_shows_the_program_of_the_readme() -> None:
    """tests/integration/test_readme.py runs it."""
    front_page, readme = ((folder / "README.md").read_text(encoding="utf-8") for folder in (DOCS, ROOT))
    program = re.findall(r"```python\n(.*?)```", readme, re.DOTALL)[0]
    assert re.findall(r"```python\n(.*?)```", front_page, re.DOTALL) == [program]


@pytest.mark.parametrize("page", [*DOCS.rglob("*.md"), *ROOT.glob("*.md")], ids=lambda page: str(page.relative_to(ROOT)))
def test_every_file_that_a_page_names_exists(page: Path) -> None:
    """`runtime/task.py`, from the package's folder or from the checkout's; CONTRIBUTING.md adds an operator `deduplicate`."""
    named = re.findall(r"`([\w./-]+/[\w.-]+\.(?:py|js|ts))`", page.read_text(encoding="utf-8"))
    folders = (ROOT, ROOT / "kstreams_repl", ROOT / "kernel_ext")
    missing = [name for name in named if not any((folder / name).is_file() for folder in folders)]
    assert [name for name in missing if "deduplicate" not in name] == []
