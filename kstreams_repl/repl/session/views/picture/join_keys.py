"""Keys of both sides of a join, compared: why records of a sample find no partner.

Actors: `JoinKeys` collects the distinct keys with which records arrive at each join of a topology while a sample runs; the keys of a
joined table are those of its store. `difference` compares two sides and names the most likely reason for keys that only one side has.
Keys are compared by their `repr`, which distinguishes ``'1'`` from ``1`` as their bytes do.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from itertools import islice
from typing import Any

from kstreams_repl.engine.operators.foreign_key.foreign_key_subscription_join import SubscriptionJoin
from kstreams_repl.engine.operators.foreign_key.foreign_key_subscription_receive import SubscriptionReceive
from kstreams_repl.engine.operators.foreign_key.foreign_key_subscription_send import SubscriptionSend
from kstreams_repl.engine.operators.joins.stream_global_table_join import StreamGlobalTableJoin
from kstreams_repl.engine.operators.joins.stream_stream_join import StreamStreamJoin
from kstreams_repl.engine.operators.joins.stream_table_join import StreamTableJoin
from kstreams_repl.engine.operators.joins.table_table_join import TableTableJoin
from kstreams_repl.engine.topology.nodes import ProcessorNode
from kstreams_repl.engine.topology.topology import Topology
from kstreams_repl.pictures.markup import one_line
from kstreams_repl.system.types import KeyValueMapper

KEPT = 20_000
"""Distinct keys that are kept for each side of a join."""

Keys = dict[str, object]
"""Keys by their `repr`."""


class JoinKeys:
    """The keys with which records arrive at the joins of a topology.

    Attributes:
        arrived: by join.
    """

    def __init__(self, topology: Topology) -> None:
        self.arrived: dict[str, Keys] = {}
        self._observers: dict[str, list[Callable[[object, object], None]]] = {}
        for node in topology.nodes.values():
            operator = getattr(node, "operator", None)
            parents: Iterable[str] = getattr(node, "parents", ())
            key_of: KeyValueMapper | None = None
            if isinstance(operator, StreamGlobalTableJoin):
                key_of = operator.key_mapper
            elif isinstance(operator, SubscriptionJoin):
                parents = _senders(topology, parents)
            elif not isinstance(operator, StreamTableJoin | StreamStreamJoin | TableTableJoin):
                continue
            self.arrived[node.name] = {}
            for parent in parents:
                self._observers.setdefault(parent, []).append(_collector(self.arrived[node.name], key_of))

    def observe(self, node: str, key: object, value: object) -> None:
        """Note a record that a node has forwarded."""
        for observer in self._observers.get(node, ()):
            observer(key, value)


def _senders(topology: Topology, receivers: Iterable[str]) -> list[str]:
    """Return the nodes that send the foreign keys that these nodes receive."""
    operators = {name: node.operator for name, node in topology.nodes.items() if isinstance(node, ProcessorNode)}
    topics = {operators[name].registration_topic for name in receivers if isinstance(operators.get(name), SubscriptionReceive)}
    return [name for name, one in operators.items() if isinstance(one, SubscriptionSend) and one.registration_topic in topics]


def _collector(keys: Keys, key_of: KeyValueMapper | None) -> Callable[[object, object], None]:
    def collect(key: object, value: object) -> None:
        if len(keys) < KEPT:
            arrived = key if key_of is None else key_of(key, value)
            if arrived is not None:
                keys[repr(arrived)] = arrived

    return collect


def keys_of_store(store: Any) -> Keys:
    """Return the first keys of a store."""
    return {repr(key): key for key, _ in islice(store.all(), KEPT)}


def difference(keys: Mapping[str, object], other: Mapping[str, object], name: str, *, guesses_only: bool = False) -> str:
    """Return how many keys the other side has, and why it may lack the others, with two examples; "" if it has them all.

    Args:
        keys: the keys of one side.
        other: the keys of the other side.
        name: the other side's name.
        guesses_only: return "" without a likely reason: keys of this side are expected that the other lacks.
    """
    missing = {text: key for text, key in keys.items() if text not in other}
    if not missing:
        return ""
    reason = ""
    pairs: list[tuple[str, str]] = []
    for words, form in _REASONS:
        there = {form(key): text for text, key in other.items()}
        found = [(text, there[form(key)]) for text, key in missing.items() if form(key) in there]
        if words == _MORE:
            found = [(one, two) for one, two in found if _contains(one, two) or _contains(two, one)]
        if len(found) > len(pairs):
            reason, pairs = words, found
    counted = f"{len(keys) - len(missing):,} of {len(keys):,} keys are in {name}"
    if pairs:
        examples = ", ".join(f"{_short(one)} is {_short(two)} there" for one, two in pairs[:2])
        return f"{counted}; {reason}: {examples}"
    if guesses_only:
        return ""
    like = " or ".join(map(_short, list(missing)[:2]))
    return f"{counted}; it has no {like}, but keys like {_short(next(iter(other)))}" if other else f"{counted}, which has none"


def _text(key: object) -> str:
    return key.decode(errors="replace") if isinstance(key, bytes) else str(key)


def _ends(pattern: str) -> Callable[[object], str]:
    """Return a form of keys: the part of its text that matches, or the whole text."""
    search = re.compile(pattern).search
    return lambda key: found.group() if (found := search(_text(key))) else _text(key)


_MORE = "one side's keys have more text"
_REASONS: tuple[tuple[str, Callable[[object], str]], ...] = (
    ("the types differ", _text),
    ("blanks differ", lambda key: f"{type(key)}{_text(key).strip()}"),
    ("upper and lower case differ", lambda key: f"{type(key)}{_text(key).casefold()}"),
    ("one side's keys are quoted", lambda key: _text(key).strip("\"'")),
    ("leading zeros differ", lambda key: _text(key).lstrip("0")),
    ("types, blanks, case or zeros differ", lambda key: _text(key).strip("\"' \t\r\n").casefold().lstrip("0")),
    *((_MORE, _ends(pattern)) for pattern in (r"[0-9]+$", r"[0-9A-Za-z]+$", r"^[0-9]+", r"^[0-9A-Za-z]+")),
)
"""Why keys that a user takes for equal are not: keys that have the same form differ only in this. Earlier ones are preferred."""


def _contains(one: str, two: str) -> bool:
    """Return whether a key's text begins or ends with the other's."""
    long, short = one.strip("'\"b"), two.strip("'\"b")
    return long.startswith(short) or long.endswith(short)


def _short(text: str) -> str:
    return one_line(text, limit=40)
