"""The classes of errors: what a program can tell apart without reading messages."""

from __future__ import annotations

import ast
import functools
import pickle
import re
from pathlib import Path

import pytest

import kstreams_repl as ks
from kstreams_repl import errors
from kstreams_repl.host.kafka.transactional import TransactionDoubtError
from kstreams_repl.system.extras import missing

ROOT = Path(ks.__file__).parent
COMMANDS = {"bench", "cli", "conformance", "demo", "workshop"}
"""Folders whose errors end a command: they are printed, and nothing catches them."""
BARE = {
    "export.py": "the text of a version cannot be run alone: only its author can mend that",
    "failures.py": "a code of the client that has no class of its own",
    "instance_tables.py": "a failure of a table's library, named in the message",
    "stream_sliding_window_aggregate.py": "as Kafka Streams, at the first record",
    "table_repartition_map.py": "as Kafka Streams, at the record",
}


@functools.cache
def trees() -> dict[Path, ast.Module]:
    return {path: ast.parse(path.read_text("utf-8")) for path in ROOT.rglob("*.py")}


def test_only_commands_raise_the_root_class() -> None:
    bare = set()
    for path, tree in trees().items():
        if not COMMANDS & set(path.relative_to(ROOT).parts):
            calls = (node for node in ast.walk(tree) if isinstance(node, ast.Call))
            if any(isinstance(call.func, ast.Name) and call.func.id == "KStreamsError" for call in calls):
                bare.add(path.name)
    assert bare == set(BARE)


TEXT_OF_OTHERS = {
    "disk_errors.py": "of libraries", "error_source.py": "to point at a line", "failures.py": "LMDB's", "lmdb.py": "LMDB's",
    "query.py": "DuckDB's", "result.py": "DuckDB's", "schema_registry.py": "the registry's and httpx's", "task_errors.py": "Python's",
}  # fmt: skip
"""Modules that read the text of an error: one of another library, which has no field for it."""


def test_what_happens_next_depends_on_no_text_of_an_error() -> None:
    """Neither a comparison nor a pattern reads the text of what `except … as` or an annotated argument names."""
    readers = set()
    for path, tree in trees().items():
        names = {node.name for node in ast.walk(tree) if isinstance(node, ast.ExceptHandler) and node.name}
        given = (node for node in ast.walk(tree) if isinstance(node, ast.arg) and node.annotation is not None)
        names |= {node.arg for node in given if re.search(r"(Error|Exception)\b", ast.unparse(node.annotation or node))}
        text = re.compile(rf"(str\()?({'|'.join(names)})(\)|\.message)")
        for node in ast.walk(tree) if names else ():
            compared = [*node.comparators, node.left] if isinstance(node, ast.Compare) else []
            compared += node.args if isinstance(node, ast.Call) and ast.unparse(node.func).startswith("re.") else []
            if any(isinstance(part, ast.Call | ast.Attribute) and text.match(ast.unparse(part)) for part in compared):
                readers.add(path.name)
    assert readers == set(TEXT_OF_OTHERS), "give the error a field, or a class of its own"


@pytest.mark.parametrize("kind", [errors.ProductionError, TransactionDoubtError])
@pytest.mark.parametrize("refused", [True, False])
def test_a_rejected_transaction_says_so(kind: type[errors.ProductionError], refused: bool) -> None:
    found = pickle.loads(pickle.dumps(kind("no", refused=refused)))
    assert found.refused is refused and kind("no").refused is False


def test_the_fields_that_decide_are_typed() -> None:
    error = errors.ProductionError("no", retriable=True)
    assert (error.retriable, error.final, error.node) == (True, False, None)
    assert errors.StreamsProcessingError("no", node="n").node == "n"
    assert errors.EmbeddedBrokerError("full", free_bytes=1, needed_bytes=2).disk_is_full
    assert not errors.EmbeddedBrokerError("gone").disk_is_full


def test_a_missing_package_is_told_from_other_errors() -> None:
    error = missing(ModuleNotFoundError("no", name="pyspark"))
    assert isinstance(error, errors.MissingPackageError) and error.module == "pyspark"


def test_a_wrong_call_is_told_from_a_wrong_state() -> None:
    driver = ks.testing.TopologyTestDriver(_counting(), {"metrics.recording.level": "DEBUG"})
    with pytest.raises(errors.IllegalStateError, match="no unread record"):
        driver.create_output_topic("out").read_record()
    with pytest.raises(errors.CallError, match="got int"):
        ks.testing.Recording([], {}).replay(1)  # type: ignore[arg-type]


CLASSES = {name: kind for name, kind in vars(errors).items() if isinstance(kind, type) and issubclass(kind, BaseException)}


def test_each_class_has_its_section_with_what_to_look_at_a_fix_and_an_example() -> None:
    page = (ROOT.parent / "docs" / "reference" / "errors.md").read_text(encoding="utf-8")
    sections = {head.partition("\n")[0]: head for head in re.split(r"^### ", page, flags=re.MULTILINE)[1:]}
    assert sorted(sections) == sorted(CLASSES)
    parts = (r"\*\*Look\*\*", r"\*\*Fix\*\*", r"\*\*Example\*\*|^>>> ")
    lacking = [name for name, text in sections.items() if not all(re.search(part, text, re.MULTILINE) for part in parts)]
    assert lacking == []


@pytest.mark.parametrize(("name", "kind"), CLASSES.items(), ids=CLASSES)
def test_an_error_leads_to_its_section_where_it_is_shown(name: str, kind: type[BaseException]) -> None:
    if issubclass(kind, errors.KStreamsError) and kind is not errors.KStreamsError:
        said = [f"See: docs/reference/errors.md#{name.lower()}"]
        assert kind("no").advice == said and kind("no", hint="yes").advice == ["Hint: yes", *said]


def test_an_error_of_an_internal_class_leads_to_the_public_one_and_the_root_alone_nowhere() -> None:
    class Refusal(errors.ConfigError):
        pass

    assert Refusal("no").see == "docs/reference/errors.md#configerror"
    assert errors.KStreamsError("no").advice == []


def _counting() -> ks.Topology:
    builder = ks.StreamsBuilder()
    builder.stream("in").to("out")
    return builder.build()
