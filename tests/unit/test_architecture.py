"""House rules that a machine can hold: the direction of imports, and what importing the package costs (`./kstreams test` runs mypy)."""

from __future__ import annotations

import ast
import functools
import re
import subprocess
import sys
import tomllib
from collections import Counter
from collections.abc import Iterator
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


@functools.cache
def trees() -> dict[str, ast.Module]:
    """The modules that are installed, by path."""
    paths = (path for package in ("kstreams_repl", "kernel_ext") for path in sorted((ROOT / package).rglob("*.py")))
    return {str(path.relative_to(ROOT)): ast.parse(path.read_text(encoding="utf-8")) for path in paths}


NAMED_ABOVE = {
    ("kstreams_repl/host/spark/query_server_process.py", "kstreams_repl.repl.session.query_server"):
        "a process of its own, in which the server answers SQL over stores, too",
    ("kstreams_repl/__init__.py", "kernel_ext"): "the hooks of %load_ext",
}  # fmt: skip
LOGGERS = ("getLogger", "LOGGERS")
"""What takes names of loggers, which are not modules."""


def test_no_text_names_a_module_of_a_higher_floor() -> None:
    """A module that is imported or started by its name is an import, too; the contracts do not see it."""
    contracts = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["tool"]["importlinter"]["contracts"]
    layers = next(contract["layers"] for contract in contracts if contract["id"] == "floors")
    floor = {name: number for number, layer in enumerate(layers) for name in re.findall(r"\w+", layer)}
    found = set()
    for path, tree in trees().items():
        own = floor.get(Path(path).with_suffix("").parts[1], -1)
        for text, imported in _texts(tree):
            parts = text.split(".")
            ours = len(parts) > 1 and re.fullmatch(r"kstreams_repl(\.\w+)+", text) and any(ROOT.glob(f"{text.replace('.', '/')}*"))
            if floor.get(parts[1], -1) < own if ours else imported:
                found.add((path, text))
    assert found == set(NAMED_ABOVE), "import it by a statement, or move the code to the floor that may import it"


COMPUTED_NAMES = {
    "kstreams_repl/__init__.py": "pictures, at the first display",
    "kstreams_repl/system/facade.py": "public names, at their first use",
    "kstreams_repl/cli/registry.py": "a command, when it is called",
    "kstreams_repl/cli/run.py": "the user's module",
    "kstreams_repl/engine/serdes/schemas/protobuf.py": "the user's generated module",
    "kstreams_repl/host/spark/startup/daemon.py": "what workers need, before the first fork",
}


def test_modules_are_imported_by_their_full_name() -> None:
    """A name that is put together at run time hides the module from the contracts and from the check of texts."""
    found = set()
    for path, tree in trees().items():
        calls = (node for node in ast.walk(tree) if isinstance(node, ast.Call) and _called(node) in ("import_module", "__import__"))
        found |= {path for call in calls if not isinstance(call.args[0], ast.Constant)}
    assert found == set(COMPUTED_NAMES), "write the module's name as it is"


def _texts(tree: ast.Module) -> Iterator[tuple[str, bool]]:
    """Yield the texts of a module, and whether they name what is imported."""
    calls = [node for node in ast.walk(tree) if isinstance(node, ast.Call)]
    assigned = [node for node in ast.walk(tree) if isinstance(node, ast.Assign)]
    loggers = {id(one) for node in (*calls, *assigned) if _called(node) in LOGGERS for one in ast.walk(node)}
    importing = {id(call.args[0]) for call in calls if _called(call) in ("import_module", "__import__")}
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in loggers:
            yield node.value, id(node) in importing


def _called(node: ast.AST) -> str:
    """Return the name of the function of a call, or of the variable of an assignment, without what is before a dot."""
    named = node.func if isinstance(node, ast.Call) else node.targets[0] if isinstance(node, ast.Assign) else node
    return named.attr if isinstance(named, ast.Attribute) else named.id if isinstance(named, ast.Name) else ""


def test_what_is_suppressed_says_why() -> None:
    """`suppress(Exception)` drops an error as `pass` does, which ruff refuses (S110): a comment on its line says why that is right here."""
    lines = [line for path in trees() for line in (ROOT / path).read_text(encoding="utf-8").splitlines()]
    broad = [line for line in lines if re.search(r"suppress\((Base)?Exception\b", line)]
    assert broad and [line for line in broad if "#" not in line] == []


def test_an_error_of_any_kind_is_used_raised_or_left_with_a_reason() -> None:
    """`except Exception: return 0` hides what went wrong as `pass` does: the handler's lines up to its first statement say why."""
    silent = []
    for path, tree in trees().items():
        lines = (ROOT / path).read_text(encoding="utf-8").splitlines()
        for handler in (node for node in ast.walk(tree) if isinstance(node, ast.ExceptHandler)):
            if handler.type is not None and ast.unparse(handler.type) not in ("Exception", "BaseException"):
                continue
            inside = [node for statement in handler.body for node in ast.walk(statement)]
            used = any(isinstance(node, ast.Raise) or isinstance(node, ast.Name) and node.id == handler.name for node in inside)
            if not used and not any("#" in line for line in lines[handler.lineno - 1 : handler.body[0].end_lineno]):
                silent.append(f"{path}:{handler.lineno}")
    assert silent == []


OWN_FILES = {
    "kstreams_repl/system/files.py": "the one writer, the one lock",
    "kstreams_repl/host/kafka/embedded/supervisor.py": "runs as a script, without the package",
    "kstreams_repl/host/instance/state/state_cleanup.py": "asks for LMDB's own lock; moves a directory away",
    **dict.fromkeys(
        (
            "kstreams_repl/demo/data.py", "kstreams_repl/demo/flights.py", "kstreams_repl/host/instance/state/snapshots.py",
            "kstreams_repl/host/kafka/embedded/jars.py", "kstreams_repl/host/kafka/embedded/registry.py", "kstreams_repl/system/java.py",
            "kstreams_repl/repl/session/application/savepoints/savepoint_writer.py",
            "kstreams_repl/repl/session/views/past/state/state_builder.py",
        ),
        "a directory, or a file that a download or another program writes",
    ),
    "kstreams_repl/engine/commit/failpoints.py": "of the tests' kills: the file says that one has happened",
    "kstreams_repl/host/query_tokens.py": "a secret, never written over one in use, not by another process either",
    "kstreams_repl/host/instance/control/control_files.py": "a file of two names, written without an allocation on a full disk",
}  # fmt: skip


def test_files_are_replaced_and_locked_in_one_place() -> None:
    """By `system.files`, which knows modes, links and dead processes."""
    found = set()
    for path, tree in trees().items():
        found |= {path} if any(isinstance(node, ast.Attribute) and node.attr == "O_EXCL" for node in ast.walk(tree)) else set()
        for call in (node for node in ast.walk(tree) if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute)):
            owner = call.func.value if isinstance(call.func, ast.Attribute) else call.func
            found |= {path} if ast.unparse(call.func) == "shutil.move" else set()
            moves = _called(call) in ("rename", "replace") and (_called(owner) == "os" or len(call.args) == 1)
            if moves and not call.keywords and _called(owner) not in ("record", "context") or _called(call) in ("flock", "lockf"):
                found.add(path)
    assert found == set(OWN_FILES), "use replacing, write_atomically or locked of kstreams_repl/system/files.py"


ONLY_USERS_CALL = {"TopologyDiff.code_only", "RowIterator.peek_next_key", "StandaloneCluster.add_worker"} | {
    "LazyGroup.format_commands", "_Server.handle_error",
}
"""Methods that no page names; the last are click's and socketserver's."""


def test_nothing_is_defined_that_nothing_names() -> None:
    """A function, class or method whose name occurs nowhere else in the packages, the workshop, the documentation or the notebooks."""
    folders = ("kstreams_repl", "kernel_ext", "workshop", "docs", "notebooks")
    files = [path for folder in folders for path in (ROOT / folder).rglob("*.*") if path.suffix in (".py", ".pyi", ".md", ".ipynb", ".js")]
    words = Counter(word for path in [*files, ROOT / "kstreams"] for word in re.findall(r"\w+", path.read_text(encoding="utf-8")))
    unused = set()
    for tree in trees().values():
        kinds = [(f"{node.name}.", node.body) for node in ast.walk(tree) if isinstance(node, ast.ClassDef)]
        for owner, body in [("", tree.body), *kinds]:
            for node in body:
                if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef) and words[node.name] < 2:
                    unused |= set() if re.match("__|visit_", node.name) else {owner + node.name}
    assert unused == ONLY_USERS_CALL


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
