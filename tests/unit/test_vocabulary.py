"""One word per concept: no private or riddling word, no word with a second meaning, and a glossary that lists each word once.

`docs/glossary.md` says what to write instead. Checked are the names of modules, classes, functions, parameters and variables, the
docstrings, comments and messages of both packages, the documentation, the notebooks and the front end's sources.
"""

from __future__ import annotations

import ast
import io
import json
import re
import tokenize
from collections import Counter, defaultdict
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PYTHON = sorted(path for package in ("kstreams_repl", "kernel_ext") for path in (ROOT / package).rglob("*.py"))
FRONT_END = sorted([*(ROOT / "kernel_ext" / "static").glob("*.js"), *(ROOT / "labextension" / "src").glob("*.ts")])
PAGES = sorted([*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")])
NOTEBOOKS = sorted((ROOT / "notebooks").glob("*.ipynb"))
GLOSSARY = ROOT / "docs" / "glossary.md"

BANNED = {
    r"\bwhoever\b": "anyone who, or the name of the actor",
    r"\bnobody\b|\bsomebody\b": "no process, no front end: name the actor",
    r"\banew\b": "again; recreate, rebuild, restart",
    r"(?<!there )\b(is|are) no (?!longer\b|more\b|later\b|earlier\b)": "is not a, has no, expected ..., got ...",
    r"\blet(s|ting)? go of\b": "release, close",
    r"\b(hangs?|left) in the air\b": "name what is missing",
    r"\blooks? closer\b": "reprocess record by record; check",
    r"\bso often\b": "this many times",
    r"\bof one moment\b": "consistent",
    r"\btold\b": "reported, returned, shown",
    r"\bbeside\b": "next to, compared with, in addition to, concurrently with",
    r"\bhow far apart\b": "interval",
    r"\bis yet to\b|\bhas yet to\b": "not yet",
    r"\bwhat it came to\b": "result",
    r"\bgo(es)? on with it\b": "continue",
}
"""Regular expressions of words that are not used, and what to write."""

BANNED_NAMES = {
    "anew": "recreated", "beside": "concurrent, additional", "look": "check, read, poll", "looks": "checks, samples", "nobody": "unowned",
    "said": "message, text, reported", "told": "report, reported", "whoever": "owner",
}  # fmt: skip
"""Words that are no part of a name (of a module, class, function, parameter, attribute or variable)."""

ONE_MEANING = {
    "cell": ("a notebook cell", (
        "kernel_ext/", "kstreams_repl/repl/session/source/", "kstreams_repl/engine/dsl/", "kstreams_repl/engine/topology/")),
    "engine": (
        "the ordered map of bytes of a store",
        ("kstreams_repl/engine/stores/", "workshop/bench/engine.py", "kstreams_repl/serving/task_view.py"),
    ),
    "place": ("a verb", ("kstreams_repl/pictures/layout.py", "workshop/conformance/behaviours.py")),
    "slot": ("the number of an instance in its application", ("kstreams_repl/host/instance/", "kstreams_repl/host/spark/")),
}  # fmt: skip
"""Words that had several meanings: the one that is left, and the packages in which a module, class or function may have it in its name."""

SAME_BASENAME: set[str] = set()
"""Basenames that two modules of one package may share."""


@cache
def texts(path: Path) -> tuple[tuple[int, str], ...]:
    """Return (line, text) of everything in a file that a person reads."""
    source = path.read_text(encoding="utf-8")
    if path.suffix == ".ipynb":
        cells = json.loads(source)["cells"]
        return tuple((number, "".join(cell["source"])) for number, cell in enumerate(cells, 1))
    if path.suffix != ".py":
        return tuple(joined(source.splitlines()))
    lines = [""] * (source.count("\n") + 1)
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type == tokenize.COMMENT:
            lines[token.start[0] - 1] = token.string
    comments = joined(lines)
    strings = ((node.lineno, node.value) for node in ast.walk(tree(path)) if isinstance(node, ast.Constant) and isinstance(node.value, str))
    return (*comments, *((line, re.sub(r"\s+", " ", text)) for line, text in strings if " " in text))


def joined(lines: list[str]) -> Iterator[tuple[int, str]]:
    """Yield each paragraph, or block of comments, on one line."""
    start, block = 0, ""
    for number, line in enumerate([*lines, ""], 1):
        text = re.sub(r"^\s*(#|//)?\s*", "", line)
        if text:
            start, block = (start, f"{block} {text}") if block else (number, text)
        elif block:
            yield start, block
            block = ""


@cache
def tree(path: Path) -> ast.Module:
    return ast.parse(path.read_text(encoding="utf-8"))


def words_of(name: str) -> list[str]:
    return [word.lower() for word in re.findall(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+", name)]


def definitions(path: Path) -> Iterator[str]:
    """Yield the names of a file's module, classes and functions."""
    yield path.stem
    for node in ast.walk(tree(path)):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            yield node.name


def names(path: Path) -> Iterator[str]:
    yield from definitions(path)
    for node in ast.walk(tree(path)):
        if isinstance(node, ast.arg):
            yield node.arg
        elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            yield node.id
        elif isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store):
            yield node.attr


def relative(path: Path) -> str:
    return path.relative_to(ROOT).as_posix()


def banned_words(path: Path) -> list[str]:
    found = []
    for line, text in texts(path):
        for pattern, instead in BANNED.items():
            found += [f"{relative(path)}:{line}: {match[0]!r}: {instead}" for match in re.finditer(pattern, text, re.IGNORECASE)]
    return found


def banned_names(path: Path) -> list[str]:
    found = [(name, word) for name in sorted(set(names(path))) for word in words_of(name) if word in BANNED_NAMES]
    return [f"{relative(path)}: {name}: {BANNED_NAMES[word]}" for name, word in found]


def second_meanings(path: Path) -> list[str]:
    found = []
    for name in sorted(set(definitions(path))):
        for word, (meaning, packages) in ONE_MEANING.items():
            if {word, f"{word}s"} & set(words_of(name)) and not relative(path).startswith(packages):
                found.append(f"{relative(path)}: {name}: {word!r} means {meaning} only")
    return found


def package_of(path: Path) -> str:
    return "/".join(relative(path).split("/")[:2])


@pytest.mark.parametrize("package", sorted({package_of(path) for path in PYTHON}))
def test_names_and_prose_of_a_package_use_the_fields_words(package: str) -> None:
    paths = [path for path in PYTHON if package_of(path) == package]
    found = [line for path in paths for line in (*banned_words(path), *banned_names(path), *second_meanings(path))]
    assert not found, "\n".join(found)


@pytest.mark.parametrize("path", [*FRONT_END, *PAGES, *NOTEBOOKS], ids=relative)
def test_prose_of_pages_notebooks_and_front_end_uses_the_fields_words(path: Path) -> None:
    assert banned_words(path) == []


def test_no_two_modules_of_one_package_share_a_basename() -> None:
    modules = defaultdict(list)
    for path in PYTHON:
        if path.stem not in ("__init__", "__main__"):
            modules[package_of(path), path.name].append(relative(path))
    assert [paths for (_, name), paths in modules.items() if len(paths) > 1 and name not in SAME_BASENAME] == []


def glossary_words() -> list[str]:
    rows = re.findall(r"^\| ([^|]+) \|", GLOSSARY.read_text(encoding="utf-8"), re.MULTILINE)
    return [word.strip() for row in rows[1:] for word in re.split(", | / ", row)]


def test_the_glossary_lists_each_word_once() -> None:
    words = Counter(glossary_words())
    assert len(words) >= 40 and [word for word, count in words.items() if count > 1] == []


@pytest.mark.parametrize("word", ["cell", "engine", "slot", "session", "peek"])
def test_the_glossary_explains_a_word_that_had_several_meanings(word: str) -> None:
    assert word in glossary_words()


@pytest.mark.parametrize(
    ("text", "banned"),
    [
        ("n is no number of records", True), ("there is no topic 'x'", False), ("it is no longer listed", False), ("restored anew", True),
        ("tasks that were told", True), ("outside", False), ("besides", False), ("stored", False), ("closed and let go of", True),
    ],
)  # fmt: skip
def test_a_banned_word_is_found_and_nothing_else(text: str, banned: bool) -> None:
    assert any(re.search(pattern, text, re.IGNORECASE) for pattern in BANNED) is banned
