"""Partials of an aggregate by `sql` in columns: what a node hands to the one that merges them, without a call for each."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from kstreams_repl.engine.serdes import Serde
from kstreams_repl.system.types import Headers


class PartialColumns(NamedTuple):
    """Partials in columns, in order.

    Attributes:
        keys: of the groups, as the store writes them.
        results: one array of numpy for each result of a partial; NULL is masked.
        timestamps, offsets: of the record with which each partial leaves.
        topics, partitions: the same; one for all if they are not a list.
        headers: the same; None: no record has any.
    """

    keys: Sequence[Any]
    results: Sequence[Any]
    timestamps: Sequence[int]
    headers: Sequence[Headers] | None
    topics: list[str | None] | str | None
    partitions: list[int] | int
    offsets: Sequence[int]


class Merging(NamedTuple):
    """What a node offers that takes partials in columns (`merging_of`).

    Attributes:
        key_serde: of its store.
        run: merges partials.
        watched: returns whether anything wants to see single records now.
    """

    key_serde: Serde
    run: Callable[[PartialColumns], None]
    watched: Callable[[], bool] = bool


def merging_of(entry: object) -> Merging | None:
    """Return what the node with this entry offers, or None."""
    return getattr(entry, "merging", None)
