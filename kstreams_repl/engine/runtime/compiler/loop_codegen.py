"""Generates one function for a chain of nodes: the path of a source's records becomes a single loop over columns.

Nodes are closures that call each other (`compile`), which costs one call per node and record, plus setting the record's coordinates
for every node that may read them. Where no node can read them, because each one on the path has lines
(`engine.operators.loop_lines`), the loop saves both. The path starts at a source and follows single children; at the first node without
lines it continues through that node's entry, with the coordinates set.
Invariants: records are processed depth first, one after the other, as through the entries; stream time is correct for each; after
an error the coordinates are those of its record; the name of a loop's file and a line number identify the node.
"""

from __future__ import annotations

import ast
import linecache
import re
from collections.abc import Callable, Mapping, Sequence
from enum import StrEnum
from itertools import count
from operator import length_hint
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple
from urllib.parse import quote, unquote

from kstreams_repl.engine.operators.loop_lines import OWN, Inline, fields_of_value, inline_of, replaces_value
from kstreams_repl.engine.operators.operator import Process
from kstreams_repl.engine.processor.record_context import RecordContext
from kstreams_repl.engine.runtime.batches.batch_mixing import Mixing
from kstreams_repl.engine.runtime.batches.batch_node import BATCH_RECORDS
from kstreams_repl.engine.runtime.queues.record_queue import READ_AHEAD, UNREAD, DeserializeMany
from kstreams_repl.engine.runtime.task_context import TaskServices
from kstreams_repl.engine.serdes import Serde
from kstreams_repl.system.errors import is_interrupt
from kstreams_repl.system.syntax import parse
from kstreams_repl.system.types import Headers

if TYPE_CHECKING:
    from kstreams_repl.engine.stores.cache.cache_entry import CacheEntry

Run = Callable[..., int]
"""(keys, values, data, timestamps, offsets, headers, raw_keys, raw_values), columns of equal length: processes all records in order, up
to the first that cannot be read, and returns how many are left. A key or value that is read when its turn comes is `UNREAD` or already
read."""


class Way(StrEnum):
    """How a loop gets its keys or its values."""

    SKIP = "not read: only asked for None"
    COLUMN = "read a column at a time"
    TURN = "read one by one, each when it is the record's turn"


_FOLDER = Path(__file__).parent
"""Lines of generated loops count as the project's own code in the search for the user's line."""
_TEXT = re.compile(r"'[^']*'")
_LOOP = re.compile(r"<loop ([^>]+)>$")
_NAME = re.compile(rf"\b{OWN}(\w+)")
_SHARED = ("record", "clock", "length_hint", "locate", "is_interrupt")
_LOCATE = "locate(record, length_hint(rest), timestamps, offsets, raw_keys, raw_values, headers)"
_READ = {
    name: (
        "try:",
        f"    if {name} is its_unread: {name} = its_read(raw_{name})",
        "except BaseException as error:",
        "    if is_interrupt(error): raise",
        "    left = length_hint(rest) + 1",
        "    break",
    )
    for name in ("key", "value")
}
_COLUMNS = {
    "key": "keys", "value": "values", "data": "all_data", "offset": "offsets", "raw_key": "raw_keys", "raw_value": "raw_values",
}  # fmt: skip
_AS_READ = {f"{OWN}to_value(value)": "None if value is None else raw_value", f"{OWN}refuse(key, value, ": f"{OWN}refuse(key, None, "}
"""Calls of a sink, and what replaces them if it sends the bytes of a value that no function has changed since they were read."""
_INDENT = " " * 16
_CLOCK = Inline(
    "",
    (
        "if timestamp > now: now = clock.now = timestamp",
        "elif timestamp == now: timestamp = now",  # one object for equal times: consumers find it in the processor's cache
    ),
    {},
)


class Fused(NamedTuple):
    """The generated loop of a source.

    Attributes:
        run: the loop.
        keys, values: how it gets them.
        data_of: makes the column of serialized keys; None if the loop needs none.
        nodes: the nodes that it contains, for tests and debugging.
        chunk: how many records it takes at most.
        read_values: reads a column of values with the fields that the nodes read; None: whole values are read.
        whole: the loop of whole values, for values that `read_values` does not take; None: it takes all.
    """

    run: Run
    keys: Way
    values: Way
    data_of: Callable[[Sequence[bytes | None]], Sequence[bytes | None]] | None
    nodes: tuple[str, ...]
    chunk: int = READ_AHEAD
    read_values: DeserializeMany | None = None
    whole: Fused | None = None


def node_in_loop(file: str, line: int) -> str | None:
    """Return the node of a loop's line, read from the name of its file, because a stack trace is all that a dead process leaves."""
    match = _LOOP.search(file)
    node = None
    for part in match[1].split() if match else ():
        first, _, name = part.partition("=")
        if int(first) <= line:
            node = unquote(name)
    return node


def fuse_source(
    source: str,
    children: Sequence[str],
    below: Mapping[str, Sequence[str]],
    entries: Mapping[str, Process],
    *,
    key_serde: Serde,
    value_serde: Serde,
    services: TaskServices,
) -> Fused | None:
    """Return the loop of one source; None if it has several children or none.

    Args:
        children: the source's children; below: the children of every node.
    """
    inlines: list[Inline] = []
    data_serde: Serde | None = None
    tail: str | None = None
    if len(children) == 1 and children[0] in services.batches:
        return _of_batches(children[0], key_serde, value_serde, services)
    names, knows_key = children, key_serde.ascii_safe or _is_sized(key_serde)
    while True:
        if len(names) != 1:
            return None
        (name,) = names
        inline = inline_of(entries[name])
        if inline is None or inline.node != name:
            tail = name
            break
        if inline.key_serde is not None and not (knows_key and key_serde.writes_like(inline.key_serde)):
            if inline.rekeyed is None:
                tail = name
                break
            inline = inline.rekeyed
        inlines.append(inline)
        data_serde = inline.key_serde or data_serde
        if inline.ends:
            break
        knows_key = knows_key and not inline.rekeys
        names = below[name]
        if len(names) != 1:
            return None
    used = frozenset().union(*(inline.uses for inline in inlines))
    keys, values = _way("key", key_serde, used, tail), _way("value", value_serde, used, tail)
    inlines = [_counted(inline, services.counts.counter(inline.node), number) for number, inline in enumerate(inlines)]
    parts = [*inlines] if tail is None else [*inlines, _tail(tail, entries[tail])]
    turns = [
        Inline(source, _READ[name], {"read": serde.deserialize, "unread": UNREAD}, calls_user=True)
        for name, serde, way in (("key", key_serde, keys), ("value", value_serde, values))
        if way is Way.TURN
    ]
    run = _written(turns, parts, services)
    data_of = None if data_serde is None else _data_of(key_serde)
    fused = Fused(run, keys, values, data_of, tuple(part.node for part in parts))
    if value_serde.deserialize_fields is None or values is not Way.COLUMN:
        return fused
    last = parts[-1]
    if last.resends is not None and last.resends.writes_like(value_serde):
        text = "\n".join(last.lines)
        for call, as_read in _AS_READ.items():
            text = text.replace(call, as_read)
        resending = [*parts[:-1], last._replace(lines=tuple(text.split("\n")))]
        fields, replaced = _fields_of(resending)
        if fields is not None and not replaced:
            run = _written(turns, resending, services)
            return fused._replace(run=run, read_values=value_serde.deserialize_fields(fields, plain=True), whole=fused)
    fields, _ = _fields_of(parts)
    return fused if fields is None else fused._replace(read_values=value_serde.deserialize_fields(fields))


def fuse_rows(
    children: Sequence[str], below: Mapping[str, Sequence[str]], entries: Mapping[str, Process], services: TaskServices
) -> Run | None:
    """Return the loop of rows that leave a cached table; None unless every node down to a sink has lines.

    It takes changes as values, and the entries of the cache as raw keys. Rows do not advance stream time, as their records have.
    """
    inlines: list[Inline] = []
    names = children
    while not inlines or not inlines[-1].ends:
        if len(names) != 1:
            return None
        (name,) = names
        inline = inline_of(entries[name])
        if inline is not None and inline.key_serde is not None:
            inline = inline.rekeyed
        if inline is None or inline.node != name:
            return None
        inlines.append(inline)
        names = below[name]
    inlines = [_counted(inline, services.counts.counter(inline.node), number) for number, inline in enumerate(inlines)]
    return _written([], inlines, services, of_rows=True)


def _of_batches(name: str, key_serde: Serde, value_serde: Serde, services: TaskServices) -> Fused | None:
    """Return the loop of a source whose only child takes many records at once; None if columns of its serdes cannot be read."""
    node = services.batches[name]
    keys = Way.SKIP if key_serde.ascii_safe else Way.COLUMN
    values = Way.SKIP if node.reads_texts(value_serde) else Way.COLUMN
    unread = [serde for serde, way in ((key_serde, keys), (value_serde, values)) if way is Way.COLUMN and serde.deserialize_many is None]
    if unread or node.mixing is Mixing.RECORDS:
        return None
    return Fused(node.loop(key_serde, value_serde, keys_read=keys is Way.COLUMN), keys, values, None, (name,), BATCH_RECORDS)


def _way(name: str, serde: Serde, used: frozenset[str], tail: str | None) -> Way:
    if tail is None and name not in used and serde.ascii_safe:
        return Way.SKIP
    return Way.TURN if serde.deserialize_many is None else Way.COLUMN


def _fields_of(parts: Sequence[Inline]) -> tuple[frozenset[str] | None, bool]:
    """Return the fields of values that the nodes read, None if they may do anything with a value, and whether one replaces the value."""
    fields: set[str] = set()
    replaced = False
    for part in parts:
        for statement in parse("\n".join(part.lines)).body:
            read = fields_of_value(statement, part.names)
            if read is None:
                return None, False
            fields |= read
            if replaces_value(statement):
                replaced = True
                if isinstance(statement, ast.Assign):  # not only in one of its branches
                    return frozenset(fields), True
    return frozenset(fields), replaced


def _tail(node: str, entry: Process) -> Inline:
    """Continue the path through a node's entry."""
    lines = (
        "record.offset = offset",
        "record.timestamp = timestamp",
        "record.headers = headers",
        "record.raw_key = raw_key",
        "record.raw_value = raw_value",
        "its_entry(key, value, timestamp, headers)",
    )
    return Inline(node, lines, {"entry": entry}, ends=True)


def _counted(inline: Inline, counter: list[int] | None, number: int) -> Inline:
    """Count the records that a node forwards in a local variable, added to `counter` when the loop ends. An error ends the task and the
    count with it.
    """
    if inline.ends or counter is None:
        return inline
    passed = f"n{number}_passed"  # unlike any name of a part, which ends with a number
    return inline._replace(
        lines=(*inline.lines, f"{passed} += 1"),
        names={**inline.names, "passed": counter},
        before=(*inline.before, f"{passed} = 0"),
        after=(*inline.after, f"its_passed[0] += {passed}"),
    )


def _is_sized(serde: Serde) -> bool:
    """Return whether all bytes that the serde reads are those that it writes again, as for numbers of a fixed size."""
    return serde.passthrough and serde.layout is not None


def _data_of(serde: Serde) -> Callable[[Sequence[bytes | None]], Sequence[bytes | None]]:
    """Return a function that makes the serialized keys from the raw keys that were deserialized by this serde."""
    serialize, deserialize = serde.serialize, serde.deserialize
    if _is_sized(serde):
        return lambda raw_keys: raw_keys

    def data_of(raw_keys: Sequence[bytes | None]) -> Sequence[bytes | None]:
        try:
            if b"".join(raw_keys).isascii():  # type: ignore[arg-type]
                return raw_keys
        except TypeError:  # some are None
            pass
        return list(map(serialize, map(deserialize, raw_keys)))

    return data_of


def _written(turns: Sequence[Inline], parts: Sequence[Inline], services: TaskServices, *, of_rows: bool = False) -> Run:
    """Generate and compile the loop: read, advance the clock, run the nodes."""
    find = locate_row if of_rows else locate
    space: dict[str, object] = dict(zip(_SHARED, (services.record, services.clock, length_hint, find, is_interrupt), strict=True))
    number = count(1)
    before: list[str] = []
    body: list[tuple[str, str]] = []
    after: list[str] = []
    every = [*parts] if of_rows else [*turns, _CLOCK._replace(node=parts[0].node), *parts]
    for part in every:
        own = {name: f"{name}_{next(number)}" for name in part.names}
        space |= {own[name]: value for name, value in part.names.items()}
        filled = {**own, "locate": _LOCATE}

        def fill(line: str, filled: Mapping[str, str] = filled) -> str:
            return _NAME.sub(lambda found: filled[found[1]], line)

        before += map(fill, part.before)
        body += [(fill(line), part.node) for line in part.lines]
        after += map(fill, part.after)
    if any(part.calls_user for part in every):  # shows a watchdog that the user's calls return
        body.insert(0, ("record.offset = offset", every[0].node))
    text = _TEXT.sub("", "\n".join(line for line, _ in body))
    used = [name for name in _COLUMNS if re.search(rf"\b{name}\b", text)]
    variables = ", ".join([*used, "timestamp", "headers"])
    columns = ", ".join([*(_COLUMNS[name] for name in used), "rest", "all_headers"])
    free = [name for name in space if name not in _SHARED]
    lines = [
        f"def make({', '.join([*_SHARED, *free])}):",
        "    def fused(keys, values, all_data, timestamps, offsets, all_headers, raw_keys, raw_values):",
        *(f"        {line}" for line in before),
        "        rest, now, left = iter(timestamps), clock.now, 0",
        "        try:",
        f"            for {variables} in zip({columns}):",
    ]
    places: dict[str, int] = {}
    for line, node in body:
        lines.append(_INDENT + line)
        places.setdefault(node, len(lines))
    lines += [
        "        except BaseException:",
        f"            {_LOCATE}",
        "            raise",
        *(f"        {line}" for line in after),
        "        return left",
        "    return fused",
    ]
    whose = " ".join(f"{line}={quote(node, safe='')}" for node, line in places.items())
    name, source = str(_FOLDER / f"<loop {whose}>"), "\n".join(lines)
    linecache.cache[name] = len(source), None, source.splitlines(keepends=True), name  # shown in tracebacks
    made: dict[str, Any] = {}
    exec(compile(source, name, "exec"), made)
    run: Run = made["make"](**space)
    return run


def locate(
    record: RecordContext,
    left: int,
    timestamps: Sequence[int],
    offsets: Sequence[int],
    raw_keys: Sequence[bytes | None],
    raw_values: Sequence[bytes | None],
    headers: Headers,
) -> None:
    """Set the coordinates of the current record: the one before the last `left` of the columns."""
    index = len(timestamps) - left - 1
    record.offset = offsets[index]
    record.timestamp = timestamps[index]
    record.headers = headers
    record.raw_key = raw_keys[index]
    record.raw_value = raw_values[index]


def locate_row(
    record: RecordContext,
    left: int,
    timestamps: Sequence[int],
    offsets: Sequence[int],
    entries: Sequence[CacheEntry],
    _: Sequence[None],
    headers: Headers,
) -> None:
    """Set the coordinates of the record that last wrote the current row."""
    entry = entries[len(entries) - left - 1]
    record.offset, record.timestamp, record.headers = entry.offset, entry.timestamp, entry.headers
    record.raw_key = record.raw_value = None
