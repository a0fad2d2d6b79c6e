"""What an operator's entry does, as lines of a loop: so that a chain of nodes can run as one function (`runtime.fusing`).

An entry may carry an `Inline` beside it; both do the same and share what they remember. The lines see one record in `key`, `value`,
`timestamp`, `headers`, and where asked for `data`, the key's bytes. They change these for the nodes below, `continue` for a record that
ends here, and name everything else in braces: `{mapper}` is `names["mapper"]`. Before they call what looks at the record's coordinates
they say `{locate}`. Invariant: no line calls user code that can see the record context without it.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

from kstreams_repl.operators.base import Process


class Inline(NamedTuple):
    """One node's part of a fused loop.

    Attributes:
        node: the node's name.
        lines: what is done per record.
        names: what the lines name in braces.
        ends: nothing is forwarded by the lines: what leaves, leaves with a flush or has been sent.
        uses: which of `key` and `value` the lines look into. That they are None, or not, can be told without reading them.
        calls_user: the lines call the user's functions.
        key_serde: whose bytes of the key the lines want in `data`.
        before, after: lines around the loop.
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
    """The entry, carrying its lines."""
    if inline is not None:
        entry.inline = inline  # type: ignore[attr-defined]
    return entry


def inline_of(entry: Any) -> Inline | None:
    """The lines an entry carries, if any."""
    found = getattr(entry, "inline", None)
    return found if isinstance(found, Inline) else None


class SlotLines(NamedTuple):
    """How lines change a slot of a store's cache in place (`stores.write_back_cache`), and what they name for it."""

    lines: tuple[str, ...]
    names: Mapping[str, Any]
    before: tuple[str, ...] = ("writes = len({order}) >> 10",)
    after: tuple[str, ...] = ("if len({order}) >> 10 != writes: {check}()",)


def slot_lines(cache: Any) -> SlotLines:
    """After `slot.value` and `slot.at` were set: what `rewrite` does beside them. Where values may be long, `{locate}` may come."""
    lines = ["slot.state = {dirty}", "slot.timestamp = timestamp", "slot.headers = headers"]
    if cache.with_context:
        lines += ["slot.topic = record.topic", "slot.partition = record.partition", "slot.offset = offset"]
    lines.append("{note}(slot)")
    if cache.texts:
        lines += ["if type(slot.value) in {texts}:", "    {written}[0] += len(slot.value)", "    if {written}[0] > {written}[1]:"]
        lines += ["        {locate}", "        {check}()"]
    return SlotLines(tuple(lines), cache.names)
