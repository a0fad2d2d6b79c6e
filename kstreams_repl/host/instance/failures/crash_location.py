"""Where a process died: `WorkerCrash`, and how it is read from the stack that Python's `faulthandler` writes."""

from __future__ import annotations

import linecache
import re
from collections.abc import Collection, Iterator
from dataclasses import asdict, dataclass, fields, replace
from types import FrameType

from kstreams_repl.engine.runtime.compiler.loop_codegen import node_in_loop
from kstreams_repl.engine.topology.description.user_lines import is_users
from kstreams_repl.system.types import JsonMapping, JsonObject, UserLine

DIED = "died while processing"
_FRAME = re.compile(r'^\s+File "(.*)", line (\d+) in (.*)$')


@dataclass(frozen=True, slots=True)
class WorkerCrash:
    """One crash of a worker; every field may be unknown.

    Attributes:
        topic: None while no record was being processed.
        cause: text that continues "the process …".
        file, line: of the user's code.
    """

    task: str | None = None
    node: str | None = None
    topic: str | None = None
    partition: int = -1
    offset: int = -1
    cause: str = DIED
    file: str = ""
    line: int = 0

    def __str__(self) -> str:
        where = "" if self.node is None else f" in node {self.node}"
        where += "" if self.task is None else f", task {self.task}"
        where += "" if self.topic is None else f", at {self.topic}-{self.partition} offset {self.offset}"
        return self.cause + where

    @property
    def user_line(self) -> UserLine | None:
        """The user's line, with its text; None if unknown."""
        if not self.file:
            return None
        return UserLine(self.file, self.line, linecache.getline(self.file, self.line).strip())

    def is_same(self, other: WorkerCrash) -> bool:
        """Return whether both crashes have the same known location."""
        mine = (self.task, self.node, self.topic, self.partition, self.offset)
        return None not in mine[:2] and mine == (other.task, other.node, other.topic, other.partition, other.offset)

    def merged(self, other: WorkerCrash) -> WorkerCrash:
        """Return this crash with its unknown fields filled from the other one."""
        mine, others, unknown = asdict(self), asdict(other), asdict(WorkerCrash())
        return replace(self, **{name: others[name] for name, value in mine.items() if value == unknown[name]})

    def plain(self) -> JsonObject:
        """Return the fields as a dict for JSON."""
        return asdict(self)

    @classmethod
    def read(cls, plain: JsonMapping) -> WorkerCrash:
        """Create a death from the dict of `plain`."""
        return cls(**{field.name: plain[field.name] for field in fields(cls)})


def crash_of_stack(text: str, nodes: Collection[str]) -> WorkerCrash:
    """Parse a faulthandler stack: the cause, the user's innermost line, and the node, whose entry function carries its name.

    Of several threads, the first one inside a node counts.
    """
    if not text.strip():
        return WorkerCrash()
    first = text.strip().splitlines()[0]
    cause = DIED
    if first.startswith("Fatal Python error: "):
        cause = f"died while processing ({first.removeprefix('Fatal Python error: ').strip()})"
    elif first.startswith("Timeout"):
        cause = "did not return in time and held the interpreter lock"
    for frames in _threads(text):
        ours = ((file, line, name) for file, line, name in frames if not is_users(file))
        found = (name if name in nodes else node_in_loop(file, line) for file, line, name in ours)
        node = next((node for node in found if node is not None), None)
        if node is not None:
            user = next(((file, line) for file, line, _ in frames if is_users(file)), ("", 0))
            return WorkerCrash(node=node, cause=cause, file=user[0], line=user[1])
    return WorkerCrash(cause=cause)


def user_line_of(frame: FrameType | None) -> UserLine | None:
    """Return the innermost line of user code on a stack."""
    while frame is not None and not is_users(frame.f_code.co_filename):
        frame = frame.f_back
    if frame is None:
        return None
    file, line = frame.f_code.co_filename, frame.f_lineno
    return UserLine(file, line, linecache.getline(file, line).strip())


def _threads(text: str) -> Iterator[list[tuple[str, int, str]]]:
    """Return the frames of each thread, innermost first."""
    frames: list[tuple[str, int, str]] = []
    for line in text.splitlines():
        found = _FRAME.match(line)
        if found:
            frames.append((found[1], int(found[2]), found[3]))
        elif frames:
            yield frames
            frames = []
    if frames:
        yield frames
