"""`Causes`: the input records that made a row of a store or a record of an output, as a table and as a lit picture."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, NamedTuple

from kstreams_repl.engine.topology.graph import TopologyGraph
from kstreams_repl.pictures.frames import Frames
from kstreams_repl.pictures.graph.mimebundle import html_of
from kstreams_repl.pictures.graph.picture import Mark, picture_of
from kstreams_repl.pictures.table import Table
from kstreams_repl.pictures.wording import counted
from kstreams_repl.system.types import RecordPosition

RECORD, TICK, CONTRIBUTION, RETRACTION = "record", "tick", "contribution", "retraction"
NOT_KNOWN = "not known: "
_COLUMNS = ("topic", "partition", "offset", "key", "value", "timestamp", "role", "path")


class Cause(NamedTuple):
    """One input record and what it had to do with the result.

    Attributes:
        key, value: as the source node read them.
        role: ``record`` (its processing wrote the result), ``other side of join NODE``, ``tick`` (it advanced stream time so that the
            result left its buffer or window), ``contribution`` and ``retraction`` (earlier updates of an aggregate), ``read by NODE`` (of
            a store, by a processor), or ``not known: why``, for a record of an internal topic whose own causes are not known any more.
        path: the nodes from the record to the result, through all sub-topologies.
    """

    position: RecordPosition
    key: Any
    value: Any
    timestamp: int
    role: str
    path: tuple[str, ...]


@dataclass(frozen=True, slots=True, repr=False)
class Causes(Frames):
    """The input records that made a row or an output record. Get one from `Application.why`.

    Attributes:
        of: what was asked.
        causes: each record once; the one that was processed last comes first.
        topology: drawn with the paths of the causes.

    Example:
        >>> app.why("counts", "UA").df()     # doctest: +SKIP
    """

    of: str
    causes: tuple[Cause, ...]
    topology: TopologyGraph

    @property
    def positions(self) -> tuple[RecordPosition, ...]:
        """Where the records are in Kafka; each of them can be given to `Application.debug`.

        Example:
            >>> app.debug(app.why("counts", "UA").positions[0])     # doctest: +SKIP
        """
        return tuple(cause.position for cause in self.causes)

    def table(self) -> Table:
        """Return a row for each cause.

        Example:
            >>> app.why("counts", "UA").table()     # doctest: +SKIP
        """
        rows = [(*cause.position, *cause[1:5], " → ".join(cause.path)) for cause in self.causes]
        return Table.of(_COLUMNS, rows, title=f"why {self.of}", note=counted(len(rows), "cause"))

    def __repr__(self) -> str:
        return f"Causes({self.of}, {counted(len(self.causes), 'record')})"

    def _repr_mimebundle_(self, include: object = None, exclude: object = None) -> dict[str, str]:
        picture = html_of(picture_of(self.topology, title=f"why {self.of}", marks=self._marks()))
        return {"text/plain": f"{self!r}\n{self.table().text()}", "text/html": picture + str(self.table().html())}

    def _marks(self) -> dict[str, Mark]:
        """Return what lights the paths in the picture: each node says how many of the causes passed it."""
        passed: dict[str, int] = {}
        for cause in self.causes:
            for node in set(cause.path):
                passed[node] = passed.get(node, 0) + 1
        return {f"node:{node}": Mark(lines=(f"✓ {counted(number, 'cause')}",)) for node, number in passed.items()}


def once(causes: Iterable[Cause]) -> tuple[Cause, ...]:
    """Return each record once, with the role that it had first."""
    found: dict[RecordPosition, Cause] = {}
    for cause in causes:
        found.setdefault(cause.position, cause)
    return tuple(found.values())
