"""Ship an application's plan with the user's functions to the workers, by cloudpickle inside Spark's own closure only; pickle its
topology in the same way for the session directory, from which a later kernel of the same user loads it (`repl.session.session_file`).

The user's modules that a worker may not have, or may have in an older version (a notebook, a file next to it), are pickled by value,
whether one of their functions is part of the topology or is called by one; installed packages and this one are pickled by reference. A
module that contains unpicklable objects (a lock, a connection) is imported by the worker, unless one of its functions is part of the
topology. The driver's module path is sent along, so that modules pickled by reference are found; workers reload those whose file has
changed.
"""

from __future__ import annotations

import hashlib
import importlib
import sys
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from types import FunctionType, ModuleType
from typing import TYPE_CHECKING

from kstreams_repl.engine.topology.differences.fingerprint import content_of, is_installed
from kstreams_repl.engine.topology.topology import Topology
from kstreams_repl.host.instance.application_plan import ApplicationPlan
from kstreams_repl.host.spark.planning.pickle_diagnosis import culprit, read_globals
from kstreams_repl.system.errors import DeployError

if TYPE_CHECKING:
    from kstreams_repl.engine.topology.nodes import Node
    from kstreams_repl.engine.topology.store_builder import StoreBuilder

_OWN = ("kstreams_repl", "kernel_ext")
_DEPTH = 8
_MOST_ITEMS = 10_000
_registering = threading.Lock()
Lines = Mapping[str, Mapping[int, str]]
"""By file and number of the first line: the text of some statements."""


@dataclass(frozen=True, slots=True)
class Shipment:
    """A pickled plan and what a worker needs to unpickle it."""

    content: bytes
    digest: str
    path: tuple[str, ...]


def pack(plan: ApplicationPlan) -> Shipment:
    """Pickle the plan.

    Raises:
        DeployError: a function of the topology holds an unpicklable object (an open file, a lock, a session). Fields: ``node``,
            ``variable``, where they are known.
    """
    content = _packed(plan, _parts(plan), dict(plan.config))
    return Shipment(content, hashlib.sha256(content).hexdigest(), tuple(sys.path))


def pack_topology(topology: Topology, lines: Lines) -> bytes:
    """Pickle a topology as `pack` does a plan; without settings, so without passwords.

    Args:
        lines: the text of its functions, which the reader shows.

    Raises:
        DeployError: as `pack`.
    """
    return _packed((topology, lines), [*topology.nodes.values(), *topology.stores.values()])


def unpack_topology(content: bytes) -> tuple[Topology, Lines]:
    """Return a topology and the text of its functions. The caller has checked that this user wrote the bytes."""
    import pickle

    topology, lines = pickle.loads(content)
    return topology, lines


def _packed(item: object, parts: list[Node | StoreBuilder], settings: object = None) -> bytes:
    given, called = _user_modules(parts, settings)
    try:
        return _pickled(item, {**called, **given})
    except Exception as cause:
        try:
            if not called:
                raise
            return _pickled(item, given)  # a module that is only called contains unpicklable objects: workers import it
        except Exception:
            raise _cannot_be_sent(parts, given, cause) from cause


def _pickled(item: object, modules: Mapping[str, ModuleType]) -> bytes:
    from pyspark import cloudpickle

    with _by_value(modules):
        content: bytes = cloudpickle.dumps(item)  # type: ignore[no-untyped-call]
    return content


def _cannot_be_sent(parts: list[Node | StoreBuilder], modules: Mapping[str, ModuleType], cause: BaseException) -> DeployError:
    """Return the error that names the node and the variable, as far as they are found."""

    def sends(item: object) -> bool:
        try:
            _pickled(item, modules)
        except Exception:  # cloudpickle raises what the user's objects raise
            return False
        return True

    why = f"{type(cause).__name__}: {cause}"
    for part in parts:
        if sends(part):
            continue
        found = None
        with suppress(Exception):  # the user's objects may raise on any access
            found = culprit(part, sends)
        variable, thing = found or ("", part)
        named = f"variable {variable!r} holds a {type(thing).__name__}" if variable else f"they hold a {type(thing).__name__}"
        return DeployError(
            f"the functions of {part.name} cannot be sent to the workers: {named} ({why})",
            hint="create objects that belong to one process (a file, a lock, a connection, a session) where they are used: "
            "in the function, or in a processor's init",
            node=part.name,
            variable=variable or None,
        )
    return DeployError(
        f"the topology's functions cannot be sent to the workers: {why}",
        hint="a function uses an object that belongs to this process; create it inside the function instead",
    )


def unpack(shipment: Shipment) -> ApplicationPlan:
    """Return the plan, in a worker."""
    import pickle

    for entry in shipment.path:
        if entry and entry not in sys.path:
            sys.path.append(entry)
    with _imported.up_to_date():
        plan = pickle.loads(shipment.content)  # written by this package's driver into Spark's closure, never read from a topic
    assert isinstance(plan, ApplicationPlan)
    return plan


class UserModules:
    """The user's modules that were imported in blocks of `up_to_date`. The next block reloads those whose file has changed, and the modules
    that import them: a long-lived worker would otherwise keep the old code.
    """

    def __init__(self) -> None:
        self._files: dict[str, tuple[Path, tuple[int, int]]] = {}

    @contextmanager
    def up_to_date(self) -> Iterator[None]:
        if any(_stamp(path) not in (was, None) for path, was in self._files.values()):
            for name in self._files:
                sys.modules.pop(name, None)
            self._files.clear()
            importlib.invalidate_caches()
        before = set(sys.modules)
        try:
            yield
        finally:
            for name in set(sys.modules) - before:
                module = sys.modules[name]
                if _is_users(module) and (stamp := _stamp(Path(str(module.__file__)))) is not None:
                    self._files[name] = Path(str(module.__file__)), stamp


_imported = UserModules()
"""The registry of a worker; it lives across edits."""


def _stamp(path: Path) -> tuple[int, int] | None:
    try:
        seen = path.stat()
    except OSError:  # deleted, or in an archive
        return None
    return seen.st_mtime_ns, seen.st_size


@contextmanager
def _by_value(modules: Mapping[str, ModuleType]) -> Iterator[None]:
    from pyspark import cloudpickle

    registered = []
    with _registering:  # cloudpickle's registry is global, and applications may be deployed concurrently
        try:
            for module in modules.values():
                cloudpickle.register_pickle_by_value(module)  # type: ignore[no-untyped-call]
                registered.append(module)
            yield
        finally:
            for module in registered:
                cloudpickle.unregister_pickle_by_value(module)  # type: ignore[no-untyped-call]


def _parts(plan: ApplicationPlan) -> list[Node | StoreBuilder]:
    """Return nodes and stores of all sub-topologies."""
    parts = {id(spec.subtopology): spec.subtopology for tasks in plan.assignment for spec in tasks}
    return [part for sub in (*parts.values(), *plan.global_subtopologies) for part in (*sub.nodes, *sub.stores)]


def _user_modules(parts: list[Node | StoreBuilder], settings: object) -> tuple[dict[str, ModuleType], dict[str, ModuleType]]:
    """Return modules that are neither this package's nor installed: (of the topology's functions, of what these read and call)."""
    given: dict[str, ModuleType] = {}
    called: dict[str, ModuleType] = {}
    seen: set[tuple[int, bool]] = set()

    def note(name: object, found: dict[str, ModuleType]) -> ModuleType | None:
        module = sys.modules.get(name) if isinstance(name, str) and name != "__main__" else None
        if module is None or not _is_users(module):
            return None
        found[module.__name__] = module
        return module

    def visit(item: object, depth: int, found: dict[str, ModuleType]) -> None:
        key = id(item), found is given
        if key in seen or depth > _DEPTH or item is None or isinstance(item, (str, bytes, int, float, bool)):
            return
        if isinstance(item, (dict, list, tuple, set, frozenset)) and len(item) > _MOST_ITEMS:
            return  # data
        seen.add(key)
        if isinstance(item, ModuleType):
            if note(item.__name__, called) is not None:
                for value in list(vars(item).values()):
                    enter(value, depth + 1)
            return
        if callable(item):
            note(getattr(item, "__module__", None), found)
        if isinstance(item, dict):
            for value in list(item.values()):
                visit(value, depth + 1, found)
        elif isinstance(item, (list, tuple, set, frozenset)):
            for value in list(item):
                visit(value, depth + 1, found)
        elif isinstance(item, type):
            if _is_of_users(item):
                for value in list(vars(item).values()):
                    enter(getattr(value, "__func__", value), depth + 1)
        else:
            for cell in getattr(item, "__closure__", None) or ():
                visit(content_of(cell), depth + 1, found)
            if isinstance(item, FunctionType) and _is_of_users(item):
                for _, value in read_globals(item):
                    enter(value, depth + 1)
            for name in getattr(item, "__slots__", ()) or ():
                visit(getattr(item, name, None), depth + 1, found)
            attributes = getattr(item, "__dict__", None)
            if isinstance(attributes, dict):
                visit(attributes, depth + 1, found)
            enter(type(item), depth + 1)

    def enter(item: object, depth: int) -> None:
        with suppress(Exception):  # any object of a notebook may raise on access
            visit(item, depth, called)

    for part in parts:
        visit(part, 0, given)
    visit(settings, 0, given)
    return given, {name: module for name, module in called.items() if name not in given}


def _is_of_users(item: object) -> bool:
    name = getattr(item, "__module__", None)
    module = sys.modules.get(name) if isinstance(name, str) else None
    return name == "__main__" or module is None or _is_users(module)


@cache
def _is_users(module: ModuleType) -> bool:
    file = getattr(module, "__file__", None)
    if file is None or module.__name__.split(".")[0] in _OWN or module.__name__ in sys.builtin_module_names:
        return False
    return not is_installed(file)


Unpack = Callable[[Shipment], ApplicationPlan]
