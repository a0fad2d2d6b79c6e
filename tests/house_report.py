"""A report on the code, for a reader to judge: ``python -m tests.house_report [CHECKOUT]``. Nothing here fails a build.

Code lines by floor, arrows between folders, large modules, classes and folders, names that modules or classes share, and words that
`docs/reference/glossary.md` replaces. Code lines are lines with a token other than a comment or docstring.
"""

from __future__ import annotations

import ast
import io
import json
import re
import sys
import tokenize
from collections import Counter, defaultdict
from collections.abc import Iterator
from functools import cache
from pathlib import Path

ROOT = Path(sys.argv[1] if __name__ == "__main__" and len(sys.argv) > 1 else Path(__file__).parents[1]).resolve()
PACKAGES = ("kstreams_repl", "kernel_ext", "workshop")
PYTHON = sorted(path for package in PACKAGES for path in (ROOT / package).rglob("*.py"))
PROSE = [
    *sorted([*(ROOT / "kstreams_repl" / "pictures" / "static").glob("*.js"), *(ROOT / "labextension" / "src").glob("*.ts")]),
    *sorted([*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")]), *sorted((ROOT / "notebooks").glob("*.ipynb")),
]  # fmt: skip
LONG_MODULE = 500
LARGE_FOLDER = 12
NO_CODE = {tokenize.COMMENT, tokenize.NL, tokenize.NEWLINE, tokenize.INDENT, tokenize.DEDENT, tokenize.ENDMARKER}

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
        ("kstreams_repl/engine/stores/", "workshop/bench/engine.py", "kstreams_repl/serving/queries/task_view.py"),
    ),
    "place": ("a verb", ("kstreams_repl/pictures/graph/layout.py", "workshop/conformance/behaviours.py")),
    "slot": ("the number of an instance in its application", ("kstreams_repl/host/instance/", "kstreams_repl/host/spark/")),
}  # fmt: skip
"""Words that had several meanings: the one that is left, and the packages in which a module, class or function may have it in its name."""

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


def code_lines(path: Path) -> int:
    source = path.read_text(encoding="utf-8")
    strings = [node for node in ast.walk(tree(path)) if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)]
    prose = {line for node in strings if isinstance(node.value.value, str) for line in range(node.lineno, (node.end_lineno or 0) + 1)}
    tokens = tokenize.generate_tokens(io.StringIO(source).readline)
    return len({line for token in tokens if token.type not in NO_CODE for line in range(token.start[0], token.end[0] + 1)} - prose)


def imported(module: ast.Module, modules: set[str]) -> set[str]:
    """Return the modules of ours that a module imports, for types too."""
    names = set()
    for node in ast.walk(module):
        if isinstance(node, ast.ImportFrom) and node.module and not node.level:
            names |= {node.module, *(f"{node.module}.{alias.name}" for alias in node.names)}
        elif isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
    return names & modules


def floor_of(path: Path) -> str:
    parts = relative(path).split("/")
    return "/".join(parts[:2]) if len(parts) > 2 else parts[0]


def shared(names: dict[str, list[str]]) -> list[str]:
    return [f"{name}: {', '.join(places)}" for name, places in sorted(names.items()) if len(places) > 1]


def print_list(title: str, lines: list[str]) -> None:
    print(f"\n{title}: {len(lines)}")
    print("".join(f"  {line}\n" for line in lines), end="")


def main() -> None:
    trees = {relative(path).removesuffix(".py").replace("/", "."): tree(path) for path in PYTHON if path.name != "__init__.py"}
    imports = {name: imported(one, set(trees)) - {name} for name, one in trees.items()}
    folders = {name: name.rpartition(".")[0] for name in trees}
    arrows = {(folders[a], folders[b]) for a, found in imports.items() for b in found if folders[a] != folders[b]}
    lines: Counter[str] = Counter()
    for path in PYTHON:
        lines[floor_of(path)] += code_lines(path)
    for floor, count in sorted(lines.items()):
        print(f"{count:7,} {floor}")
    print(f"{sum(count for floor, count in lines.items() if not floor.startswith('workshop')):7,} code lines in the wheel")
    print(f"{len(trees):7,} modules in {len(set(folders.values()))} folders, {len(arrows)} arrows between folders")
    classes = defaultdict(list)
    sizes = []
    stems = defaultdict(list)
    for path in PYTHON:
        if path.name not in ("__init__.py", "__main__.py"):
            stems[f"{floor_of(path)} {path.name}"].append(relative(path))
        for node in tree(path).body:
            if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                classes[node.name].append(relative(path))
                sizes.append(((node.end_lineno or 0) - node.lineno + 1, node.name))
    per_folder = Counter(path.parent for path in PYTHON if path.name != "__init__.py")
    print("largest classes (lines): " + ", ".join(f"{name} {count}" for count, name in sorted(sizes, reverse=True)[:5]))
    lengths = sorted(((path.read_text(encoding="utf-8").count("\n"), relative(path)) for path in PYTHON), reverse=True)
    print_list(f"Modules of more than {LONG_MODULE} lines", [f"{count} {name}" for count, name in lengths if count > LONG_MODULE])
    print_list(
        f"Folders of more than {LARGE_FOLDER} modules",
        [f"{count} {relative(folder)}" for folder, count in per_folder.most_common() if count > LARGE_FOLDER],
    )
    print_list("Modules of one floor that share a name", shared(stems))
    print_list("Classes that share a name", shared(classes))
    print_list("Words", [line for path in (*PYTHON, *PROSE) for line in banned_words(path)])
    print_list("Names", [line for path in PYTHON for line in (*banned_names(path), *second_meanings(path))])


if __name__ == "__main__":
    main()
