"""House rules that a machine can hold: the direction of imports, and what importing the package costs (`./kstreams test` runs mypy)."""

from __future__ import annotations

import ast
import functools
import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
HEAVY = {
    "IPython", "anywidget", "asyncio", "click", "confluent_kafka", "duckdb", "graphviz", "ipywidgets", "jgo", "jupyterlab", "lmdb",
    "numpy", "pandas", "py4j", "pyarrow", "pyspark", "rich",
}  # fmt: skip
PRINT_WHAT_IMPORT_BRINGS = """
import sys, threading
import kstreams_repl
print(*sys.modules)
assert threading.active_count() == 1
"""


def run(*command: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, *command], cwd=ROOT, capture_output=True, text=True)


def test_imports_point_inward() -> None:
    done = run("-c", "import sys; from importlinter.cli import lint_imports; sys.exit(lint_imports(no_cache=True))")
    assert done.returncode == 0, done.stdout + done.stderr
    kept = re.search(r"Contracts: (\d+) kept, 0 broken", done.stdout)
    assert kept and int(kept.group(1)) >= 9, done.stdout


def test_importing_the_package_brings_nothing_heavy_and_starts_nothing() -> None:
    done = run("-c", PRINT_WHAT_IMPORT_BRINGS)
    assert done.returncode == 0, done.stderr
    assert HEAVY.isdisjoint(module.partition(".")[0] for module in done.stdout.split())


def test_importing_the_package_loads_few_modules() -> None:
    """The load of a machine moves a clock, not a count: 400 modules are what 150 ms allow on one slow core."""
    done = run("-c", PRINT_WHAT_IMPORT_BRINGS)
    assert len(done.stdout.split()) < 400


@functools.cache
def imports() -> dict[str, set[str]]:
    """For each module of ours the modules that it imports anywhere; an `__init__` is left out: it imports all its modules."""
    paths = {".".join(path.relative_to(ROOT).with_suffix("").parts): path for path in (ROOT / "kstreams_repl").rglob("*.py")}
    modules = {name: path for name, path in paths.items() if path.name != "__init__.py"}
    found: dict[str, set[str]] = {name: set() for name in modules}
    for name, path in modules.items():
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Import):
                found[name] |= {alias.name for alias in node.names}
            elif isinstance(node, ast.ImportFrom) and node.module:
                assert not node.level, f"{path}: a relative import"
                found[name] |= {node.module, *(f"{node.module}.{alias.name}" for alias in node.names)}
        found[name] = (found[name] & modules.keys()) - {name}
    return found


def cycles() -> list[set[str]]:
    """Groups of modules that import each other, directly or through others (Tarjan's strongly connected components)."""
    number: dict[str, int] = {}
    lowest: dict[str, int] = {}
    path: list[str] = []
    groups: list[set[str]] = []

    def visit(module: str) -> None:
        number[module] = lowest[module] = len(number)
        path.append(module)
        for imported in sorted(imports()[module]):
            if imported not in number:
                visit(imported)
            if imported in path:
                lowest[module] = min(lowest[module], lowest[imported])
        if lowest[module] == number[module]:
            groups.append(set(path[path.index(module) :]))
            del path[path.index(module) :]

    for module in imports():
        if module not in number:
            visit(module)
    return [group for group in groups if len(group) > 1]


def test_no_modules_import_each_other() -> None:
    assert [sorted(group) for group in cycles()] == []


OF_OTHERS = {"_exit", "_fields", "_getframe", "_replace", "_repr_mimebundle_"}
"""Names with an underscore that others document: `namedtuple`, `sys` and IPython."""


def trees_of_session() -> dict[str, ast.Module]:
    folder = ROOT / "kstreams_repl" / "repl" / "session"
    return {str(path.relative_to(folder)): ast.parse(path.read_text(encoding="utf-8")) for path in sorted(folder.rglob("*.py"))}


def test_nothing_in_session_touches_private_attributes_of_other_objects() -> None:
    assert [
        f"{path}:{node.lineno} {ast.unparse(node)}"
        for path, tree in trees_of_session().items()
        for node in ast.walk(tree)
        if isinstance(node, ast.Attribute) and re.match(r"_(?!_)", node.attr) and node.attr not in OF_OTHERS
        if not (isinstance(node.value, ast.Name) and node.value.id in ("self", "cls"))
    ] == []


def test_only_a_session_itself_takes_a_session() -> None:
    """Its parts take a `ClusterClient`, the applications, or less; they know no session."""
    assert [
        f"{path}:{function.lineno} {function.name}"
        for path, tree in trees_of_session().items()
        for function in ast.walk(tree)
        if isinstance(function, ast.FunctionDef | ast.AsyncFunctionDef) and path != "session.py"
        for argument in (*function.args.posonlyargs, *function.args.args, *function.args.kwonlyargs)
        if argument.annotation is not None and re.search(r"\bSession\b", ast.unparse(argument.annotation))
    ] == []
    importers = [name for name, imported in imports().items() if "kstreams_repl.repl.session.session" in imported]
    assert [name for name in importers if name.startswith("kstreams_repl.repl.session.")] == ["kstreams_repl.repl.session.connection"]
