"""`Comparison`: what differs between an application and a changed topology, on the same records."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from kstreams_repl.engine.topology.topology import Topology
from kstreams_repl.pictures.frames import Frames
from kstreams_repl.pictures.graph.mimebundle import html_of
from kstreams_repl.pictures.graph.picture import Mark, Picture, picture_of
from kstreams_repl.pictures.markup import one_line
from kstreams_repl.pictures.table import Table
from kstreams_repl.pictures.wording import counted
from kstreams_repl.repl.session.views.compare.side import TABLE
from kstreams_repl.system.types import RecordPosition

CHANGED, ONLY_BEFORE, ONLY_AFTER = "changed", "only before", "only after"


class ComparedRows(NamedTuple):
    """How many rows of one output or store are equal.

    Attributes:
        kind: ``output`` or ``store``.
        changed: rows of both sides that belong together and are not equal.
        noise: rows that differ only in what also differs between two runs of the unchanged topology.
    """

    kind: str
    name: str
    equal: int
    changed: int
    only_before: int
    only_after: int
    noise: int

    @property
    def different(self) -> int:
        """Rows that differ, noise left out."""
        return self.changed + self.only_before + self.only_after


class RowDifference(NamedTuple):
    """One row that differs.

    Attributes:
        kind, name: of the output or store that has it.
        change: ``changed``, ``only before`` or ``only after``.
        key: of the row, with its window if it has one.
        before, after: the row's value on both sides; None: there is none.
        fields: what differs, without noise.
        record: the input record that caused it; None for a row of a store.
    """

    kind: str
    name: str
    change: str
    key: Any
    before: Any
    after: Any
    fields: tuple[str, ...]
    record: RecordPosition | None


class FirstDifference(NamedTuple):
    """The first node where the data differs.

    Attributes:
        record: the input record with which the sides begin to differ.
        before, after: what the node made of it on both sides.
    """

    node: str
    record: RecordPosition | None
    before: str
    after: str


class Noise(NamedTuple):
    """What differs between two runs of the unchanged topology in one output or store.

    Attributes:
        fields: whose values differ; ``(rows)`` if there are rows that only one of the runs has.
    """

    kind: str
    name: str
    fields: tuple[str, ...]


@dataclass(frozen=True, slots=True, repr=False)
class Comparison(Frames):
    """What differs between an application and a changed topology; shows itself as a table and a picture.

    Both have processed the same input records from the same state: the application as it is (*before*), and changed (*after*).

    Attributes:
        application: its name.
        records: how many input records were processed.
        base: what they began from.
        rows: the outputs and stores, with their numbers.
        samples: rows that differ, the first ones of each output and store.
        first: the first node where the data differs; None: nothing differs, or it was not found.
        noise: what is not compared, because it differs between two runs of the unchanged topology.
        notes: what limits the comparison: stores that begin empty, calls, records that were not processed.
    """

    application: str
    records: int
    base: str
    rows: tuple[ComparedRows, ...]
    samples: tuple[RowDifference, ...] = ()
    first: FirstDifference | None = None
    noise: tuple[Noise, ...] = ()
    notes: tuple[str, ...] = ()
    topologies: tuple[Topology, ...] = field(default=(), compare=False)

    @property
    def equal(self) -> bool:
        """Whether nothing differs, noise left out."""
        return self.first is None and not any(each.different for each in self.rows)

    @property
    def all_noise(self) -> bool:
        """Whether no row of any output or store is equal, or differs in anything but noise."""
        return bool(self.noise) and not any(each.equal or each.different for each in self.rows)

    @property
    def text(self) -> str:
        """The result in words: a line for each output and store that differs, and the first node."""
        lines = [f"{self.application}: {counted(self.records, 'input record')} from {self.base}"]
        for each in self.rows:
            if each.different:
                numbers = [f"{number:,} {what}" for what, number in zip(_NUMBERS, each[2:6], strict=True) if number]
                lines.append(f"  {each.kind} {each.name}: {', '.join(numbers)}")
        if self.first is not None:
            where = "" if self.first.record is None else f", at {self.first.record}"
            lines.append(f"  first difference: node {self.first.node}{where}")
            lines += [
                f"    before: {one_line(self.first.before, limit=_MOST)}",
                f"    after:  {one_line(self.first.after, limit=_MOST)}",
            ]
        elif not self.equal:
            lines.append("  first difference: no node was found")
        if self.equal:
            lines.append(f"  {self._verdict}")
        lines += [f"  noise in {each.kind} {each.name}: {', '.join(each.fields)}" for each in self.noise]
        return "\n".join([*lines, *(f"  {note}" for note in self.notes)])

    @property
    def _verdict(self) -> str:
        if self.all_noise:
            return "nothing can be compared: all rows differ between two runs of the unchanged topology"
        return "no differences" if self.equal else ""

    def table(self) -> Table:
        """Return a row for each output and store: how many of its rows are equal, changed, on one side only, and noise.

        Example:
            >>> app.compare(builder).table()               # doctest: +SKIP
        """
        columns = ("kind", "name", *_NUMBERS, "noise")
        warning = "" if self.first is None else f"first difference: node {self.first.node}"
        note = "\n".join(filter(None, (self._verdict, *self.notes)))
        title = f"{self.application}: {counted(self.records, 'input record')} from {self.base}"
        return Table.of(columns, self.rows, title=title, warning=warning, note=note)

    def differences(self, name: str | None = None) -> Table:
        """Return the rows that differ, one line each, as a table for SQL: ``session.sql(query, rows=comparison.differences().arrow())``.

        Args:
            name: of one output or store; None: all.

        Example:
            >>> app.compare(builder).differences("totals")               # doctest: +SKIP
        """
        rows = [
            (each.kind, each.name, each.change, each.key, each.before, each.after, ", ".join(each.fields), str(each.record or ""))
            for each in self.samples
            if name in (None, each.name)
        ]
        shown = sum(each.different for each in self.rows if name in (None, each.name))
        note = f"{len(rows):,} of {counted(shown, 'row')}; samples= keeps more" if shown > len(rows) else ""
        return Table.of(("kind", "name", "change", "key", "before", "after", "fields", "record"), rows, note=note)

    def picture(self) -> Picture:
        """Return the picture of the changed topology (of the application's, if it has the first node alone), with what differs lit.

        Example:
            >>> app.compare(builder).picture()             # doctest: +SKIP
        """
        before, after = self.topologies
        topology = before if self.first is not None and self.first.node not in after.nodes else after
        return picture_of(
            topology, title=f"{self.application}: {'no differences' if self.equal else 'differences'}", marks=self._marks()
        )

    def to_dict(self) -> Mapping[str, Any]:
        """Return it as JSON has it.

        Example:
            >>> app.compare(builder).to_dict()["equal"]               # doctest: +SKIP
        """
        return {
            "application": self.application, "records": self.records, "base": self.base, "equal": self.equal,
            "rows": _dicts(self.rows), "first": None if self.first is None else _dicts([self.first])[0], "noise": _dicts(self.noise),
            "samples": _dicts(self.samples), "notes": list(self.notes),
        }  # fmt: skip

    def _marks(self) -> dict[str, Mark]:
        marks: dict[str, Mark] = {}
        for each in self.rows:
            if each.different:
                lines = tuple(f"{number:,} {what}" for what, number in zip(_NUMBERS, each[2:6], strict=True) if number)
                marks[each.name if each.name.startswith(TABLE) else f"{_SHAPES[each.kind]}:{each.name}"] = Mark("differs", lines)
        if self.first is not None:
            lines = ("first difference", f"before: {self.first.before}", f"after: {self.first.after}")
            marks[f"node:{self.first.node}"] = Mark("differs", lines)
        return marks

    def __repr__(self) -> str:
        return self.text

    def _repr_mimebundle_(self, include: object = None, exclude: object = None) -> dict[str, str]:
        tables = [self.table(), *([self.differences()] if self.samples else [])]
        picture = html_of(self.picture()) if self.topologies else ""
        return {"text/plain": self.text, "text/html": picture + "".join(str(table.html()) for table in tables)}


_MOST = 400
"""Characters shown of what a node made of a record."""
_SHAPES = {"output": "topic", "store": "store"}
_NUMBERS = ("equal", "changed", "only before", "only after")


def _dicts(rows: Sequence[tuple[Any, ...]]) -> list[dict[str, Any]]:
    """Return named tuples as JSON has them."""
    names = list(type(rows[0]).__annotations__) if rows else []
    return [
        {name: str(value or "") if name == "record" else value for name, value in zip(names, row, strict=True)} for row in rows
    ]
