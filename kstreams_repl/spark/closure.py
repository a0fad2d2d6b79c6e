"""Ships an application's plan, with the user's functions in it, to the workers: by cloudpickle inside Spark's own closure and
no other way.

Modules of the user's that a worker may not have, or may have in an older version (a notebook, a file beside it), travel by
value, if the topology holds one of their functions; installed packages, this one and what those functions read by reference. The
driver's module path goes along, so that what is imported by reference is found, and workers import it again when its file has changed.
"""

from __future__ import annotations

import hashlib
import importlib
import sys
import sysconfig
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any

from kstreams_repl.errors import DeployError
from kstreams_repl.instance.plan import ApplicationPlan

_OWN = ("kstreams_repl", "kernel_ext")


@dataclass(frozen=True, slots=True)
class Shipment:
    """A pickled plan and what a worker needs to open it."""

    content: bytes
    digest: str
    path: tuple[str, ...]


def pack(plan: ApplicationPlan) -> Shipment:
    """Pickle the plan.

    Raises:
        DeployError: a function of the topology holds something that cannot be sent (an open file, a lock, a Spark session).
    """
    from pyspark import cloudpickle

    try:
        with _by_value(_user_modules(plan)):
            content = cloudpickle.dumps(plan)  # type: ignore[no-untyped-call]
    except Exception as cause:
        raise DeployError(
            f"the topology's functions cannot be sent to the workers: {type(cause).__name__}: {cause}",
            hint="a function uses something that lives in this process only; create it inside the function instead",
        ) from cause
    return Shipment(content, hashlib.sha256(content).hexdigest(), tuple(sys.path))


def unpack(shipment: Shipment) -> ApplicationPlan:
    """The plan, in a worker."""
    import pickle

    for entry in shipment.path:
        if entry and entry not in sys.path:
            sys.path.append(entry)
    with _imported.up_to_date():
        plan = pickle.loads(shipment.content)  # sent by our own driver through Spark's closure, never read from a topic
    assert isinstance(plan, ApplicationPlan)
    return plan


class UserModules:
    """Modules of the user's that came into this process in blocks of `up_to_date`. One that has changed since on disk is imported again by
    the next: a process that stays would go on with what it was, and so would the others that have read it.
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
"""Of a worker: it stays from one edit to the next."""


def _stamp(path: Path) -> tuple[int, int] | None:
    try:
        told = path.stat()
    except OSError:  # gone, or in an archive
        return None
    return told.st_mtime_ns, told.st_size


@contextmanager
def _by_value(modules: list[ModuleType]) -> Iterator[None]:
    from pyspark import cloudpickle

    registered = []
    try:
        for module in modules:
            cloudpickle.register_pickle_by_value(module)  # type: ignore[no-untyped-call]
            registered.append(module)
        yield
    finally:
        for module in registered:
            cloudpickle.unregister_pickle_by_value(module)  # type: ignore[no-untyped-call]


def _user_modules(plan: ApplicationPlan) -> list[ModuleType]:
    """Modules of functions in the topology that are neither ours nor installed."""
    found: dict[str, ModuleType] = {}
    seen: set[int] = set()

    def visit(item: Any, depth: int) -> None:
        if id(item) in seen or depth > 6 or item is None or isinstance(item, (str, bytes, int, float, bool)):
            return
        seen.add(id(item))
        if callable(item) and isinstance(name := getattr(item, "__module__", None), str):
            module = sys.modules.get(name)
            if module is not None and name != "__main__" and _is_users(module):
                found[name] = module
        if isinstance(item, dict):
            for value in item.values():
                visit(value, depth + 1)
        elif isinstance(item, (list, tuple, set, frozenset)):
            for value in item:
                visit(value, depth + 1)
        else:
            for cell in getattr(item, "__closure__", None) or ():
                try:
                    visit(cell.cell_contents, depth + 1)
                except ValueError:  # a cell that is not filled yet
                    continue
            for name in getattr(item, "__slots__", ()) or ():
                visit(getattr(item, name, None), depth + 1)
            attributes = getattr(item, "__dict__", None)
            if isinstance(attributes, dict) and not isinstance(item, (type, ModuleType)):
                visit(attributes, depth + 1)

    subtopologies = {id(spec.subtopology): spec.subtopology for tasks in plan.assignment for spec in tasks}
    for sub in (*subtopologies.values(), *plan.global_subtopologies):
        for node in sub.nodes:
            visit(node, 0)
        for store in sub.stores:
            visit(store, 0)
    visit(dict(plan.config), 0)
    return list(found.values())


def _is_users(module: ModuleType) -> bool:
    file = getattr(module, "__file__", None)
    if file is None or module.__name__.split(".")[0] in _OWN or module.__name__ in sys.builtin_module_names:
        return False
    path = Path(file).resolve()
    installed = {Path(sysconfig.get_path(kind)).resolve() for kind in ("stdlib", "platstdlib", "purelib", "platlib")}
    return not any(path.is_relative_to(place) for place in installed)


Unpack = Callable[[Shipment], ApplicationPlan]
