"""An operator's entry as lines of a loop, so that a chain of nodes can run as one function (`runtime.loop_codegen`).

An entry may have an `Inline` attached; both do the same and share their state. The lines see one record in `key`, `value`,
`timestamp`, `headers` and, if requested, `data`, the serialized key. They change these for the nodes below, `continue` for a record
that goes no further, and write every other name in braces: `{mapper}` is `names["mapper"]`. Before they call code that reads the
record's coordinates they contain `{locate}`. Invariant: no line calls user code that can read the record context without it.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

from kstreams_repl.operators.base import Process


class Inline(NamedTuple):
    """One node's part of a generated loop.

    Attributes:
        node: the node's name.
        lines: executed per record.
        names: the values of the names in braces.
        ends: the lines forward nothing: output leaves with a flush or has already been sent.
        uses: which of `key` and `value` the lines read. A test for None does not count, because it needs no deserialization.
        calls_user: the lines call user functions.
        key_serde: the serde whose serialized key the lines need in `data`.
        before, after: lines before and after the loop.
    """

    node: str
    lines: tuple[str, ...]
    names: Mapping[str, Any]
    ends: bool = False
    uses: frozenset[str] = frozenset()
    calls_user: bool = False
    key_serde: Any = None
    before: tuple[str, ...] = ()
    after: tuple[str, ...] = ()


def with_inline(entry: Process, inline: Inline | None) -> Process:
    """Attach lines to the entry and return it."""
    if inline is not None:
        entry.inline = inline  # type: ignore[attr-defined]
    return entry


def inline_of(entry: Any) -> Inline | None:
    """Return the lines attached to an entry, or None."""
    found = getattr(entry, "inline", None)
    return found if isinstance(found, Inline) else None


class SlotLines(NamedTuple):
    """The lines that change a slot of a store's cache in place (`stores.write_back_cache`), and the names they use."""

    lines: tuple[str, ...]
    names: Mapping[str, Any]
    before: tuple[str, ...] = ("writes = len({order}) >> 10",)
    after: tuple[str, ...] = ("if len({order}) >> 10 != writes: {check}()",)


def slot_lines(cache: Any) -> SlotLines:
    """Return the lines that complete `rewrite` after `slot.value` and `slot.at` were set. If values can be long, they contain
    `{locate}`."""
    lines = ["slot.state = {dirty}", "slot.timestamp = timestamp", "slot.headers = headers"]
    if cache.with_context:
        lines += ["slot.topic = record.topic", "slot.partition = record.partition", "slot.offset = offset"]
    lines.append("{note}(slot)")
    if cache.texts:
        lines += ["if type(slot.value) in {texts}:", "    {written}[0] += len(slot.value)", "    if {written}[0] > {written}[1]:"]
        lines += ["        {locate}", "        {check}()"]
    return SlotLines(tuple(lines), cache.names)
