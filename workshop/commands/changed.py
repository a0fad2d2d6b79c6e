"""``./kstreams test --changed``: choose the test files that a change can break, cheap ones first, then the nearest to the change.

A test file depends on the modules that it names: in imports, in programs that it runs in another process, as public names
(``ks.connect``), and through the ``conftest.py`` files and shared test modules that it uses. A module depends on its imports: the
graph is grimp's, with imports inside functions, and with modules that are named in strings. A cheap test file that names no
module is always chosen (it checks the checkout as a whole); any other one drives a notebook and depends on the session and the
kernel extension. A changed file that is not Python counts as a change of each module that names it, and of each test file that
names it or one of its folders.
"""

from __future__ import annotations

import re
import subprocess
from collections.abc import Collection
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import grimp

from kstreams_repl.cli.registry import COMMANDS
from kstreams_repl.system.errors import KStreamsError
from kstreams_repl.system.facade import doors, exports

PACKAGES = ("kstreams_repl", "kernel_ext", "workshop")
CHEAP = ("tests/unit/", "tests/conformance/")
BY_NAME = ("kstreams_repl/__init__.py", "kstreams_repl/cli/registry.py")  # lazy imports: a test depends on the names it uses
EVERYTHING = {"pyproject.toml", "requirements.lock", "requirements-test.lock"}
WHOLE = "the checkout as a whole"
NOTEBOOK = ("kstreams_repl.repl.session", "kernel_ext.extension")
_MODULE = re.compile(r"\b(?:kstreams_repl|kernel_ext|workshop|tests)(?:\.\w+)*")
_FROM = re.compile(r"\bfrom ((?:kstreams_repl|kernel_ext|workshop|tests)[\w.]*) import \(?([\w, \n]+)")
_QUOTED = re.compile(r'"((?:kstreams_repl|kernel_ext|workshop)(?:\.\w+)+)"')
_RUN = re.compile(r'"-m", "((?:kstreams_repl|kernel_ext|workshop)[\w.]*)"')
_PUBLIC = re.compile(r"\b(?:ks|kstreams_repl)\.((?:\w+\.)?\w+)")


def changed_files(root: Path, since: str | None = None) -> list[str]:
    """Return the files that differ from a commit, including uncommitted and new ones.

    Args:
        root: the checkout.
        since: a commit; None: where this branch left its upstream, or the last commit if it has none.

    Raises:
        KStreamsError: this is not a git checkout, or the commit does not exist.
    """

    def git(*arguments: str) -> str | None:
        done = subprocess.run(["git", "-C", str(root), *arguments], capture_output=True, text=True)
        return done.stdout if done.returncode == 0 else None

    base = since or (git("merge-base", "HEAD", "@{upstream}") or "HEAD").strip()
    differing, new = git("diff", "--name-only", "--no-renames", base), git("ls-files", "--others", "--exclude-standard")
    if differing is None or new is None:
        raise KStreamsError(f"git cannot compare {root} with {base!r}.", hint="name a commit: ./kstreams test --since HEAD~3")
    return sorted({*differing.splitlines(), *new.splitlines()})


@dataclass(frozen=True, slots=True)
class Checkout:
    """The Python files of a checkout, and their import graph.

    Attributes:
        texts: by path, of packages and tests.
        modules: the path of each module.
        importers: by module, the modules that import it or name it in a string.
    """

    texts: dict[str, str]
    modules: dict[str, str]
    importers: dict[str, set[str]]

    @classmethod
    def read(cls, root: Path) -> Checkout:
        """Read all files and build the import graph; takes about a second."""
        texts = {str(p.relative_to(root)): p.read_text("utf-8") for top in (*PACKAGES, "tests") for p in (root / top).rglob("*.py")}
        graph = grimp.build_graph(*PACKAGES, exclude_type_checking_imports=True, cache_dir=None)
        importers = {module: set(graph.find_modules_that_directly_import(module)) for module in graph.modules}
        for path, text in texts.items():
            if path.startswith(PACKAGES) and path not in BY_NAME:
                for named in _QUOTED.findall(text):
                    importers.setdefault(named, set()).add(_module_of(path))
            package, _, _ = _module_of(path).rpartition(".")  # importing a module runs its package's __init__ first
            importers.setdefault(package, set()).add(_module_of(path))
        return cls(texts, {_module_of(path): path for path in texts}, importers)

    def choose(self, changed: Collection[str]) -> list[str]:
        """Return the test files that changes of these files can break, in the order in which to run them."""
        changed = [re.sub(r"\.pyi$", ".py", file) for file in changed]  # a facade's stub
        origins = {*changed, *(reader for file in changed if not file.endswith(".py") for reader in self._readers(file))}
        near = self._distances({WHOLE, *(_module_of(path) for path in origins if path.endswith(".py"))})
        fixtures = tuple(file.removesuffix("conftest.py") for file in changed if file.endswith("/conftest.py"))
        fixtures += ("tests/",) if EVERYTHING & set(changed) else ()
        tests = [path for path in self.texts if path.startswith("tests/") and path.rpartition("/")[2].startswith("test_")]
        found = []
        for test in tests if origins else ():
            names = self._named_by(test) | (set(NOTEBOOK) if test.startswith("tests/notebooks/") else set())
            if not any(name.startswith(tuple(f"{package}." for package in PACKAGES)) for name in names):
                names |= {WHOLE} if test.startswith(CHEAP) else set(NOTEBOOK)
            distances = [near[name] for name in names if name in near] or [0] * test.startswith(fixtures)
            if distances:
                found.append((not test.startswith(CHEAP), min(distances), test))
        return [test for _, _, test in sorted(found)]

    def _readers(self, file: str) -> list[str]:
        """Return the modules that name a non-Python file, and the tests that name it or one of its folders."""
        *folders, name = file.removeprefix("kstreams_repl/").removeprefix("kernel_ext/").split("/")
        named = re.compile(rf'["/]{re.escape(name)}"')
        named_in_test = re.compile("|".join([named.pattern, *(rf'"{re.escape(folder)}["/]' for folder in folders)]))
        return [path for path, text in self.texts.items() if (named_in_test if path.startswith("tests/") else named).search(text)]

    def _named_by(self, test: str) -> set[str]:
        """Return the modules that a test file, its conftest.py files (except the outermost) and shared modules name."""
        folders = test.split("/")[:-1]
        waiting = [test, *("/".join(folders[:depth]) + "/conftest.py" for depth in range(2, len(folders) + 1))]
        read, names = set[str](), set[str]()
        while waiting:
            path = waiting.pop()
            if path in self.texts and path not in read:
                read.add(path)
                named = _names_in(self.texts[path])
                names |= {_module_of(path), *named}
                waiting += [self.modules[name] for name in named if name.startswith("tests.") and name in self.modules]
        return names

    def _distances(self, origins: set[str]) -> dict[str, int]:
        """Return, by module that depends on a change, the number of imports between them."""
        near = dict.fromkeys(origins, 0)
        edge = list(origins)
        while edge:
            reached = {importer: near[module] + 1 for module in edge for importer in self.importers.get(module, ()) if importer not in near}
            near |= reached
            edge = list(reached)
        return near


def _module_of(path: str) -> str:
    return path.removesuffix(".py").removesuffix("/__init__").replace("/", ".")


@cache
def _places() -> dict[str, str]:
    """Return the module of each public name, by its path, such as ``kstreams_repl.queries.KeyQuery``."""
    return {f"{door}.{name}": place for door in doors("kstreams_repl") for name, place in exports(door).items() if place != door}


@cache
def _names_in(text: str) -> set[str]:
    """Return the modules that a text names, existing or not, and the names that it imports from them (which may be modules
    too)."""
    imported = {f"{package}.{name.strip()}" for package, names in _FROM.findall(text) for name in names.split(",") if name.strip()}
    public = {f"kstreams_repl.{name}" for path in _PUBLIC.findall(text) for name in (path, path.partition(".")[0])}
    public = {place for name, place in _places().items() if name in public | imported}
    run = {f"{package}.__main__" for package in _RUN.findall(text)}
    if "kstreams_repl.cli" in text or '"kstreams"' in text:
        commands = [entry.module for name, entry in COMMANDS.items() if f'"{name}"' in text]
        run |= {*commands, *(f"{module}.main" for module in commands)}  # a command's package has it in a module `main`
    return set(_MODULE.findall(text)) | imported | public | run
