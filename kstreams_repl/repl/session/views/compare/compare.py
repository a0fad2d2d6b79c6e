"""Compare two topologies on the same records from the same state. `compare` is the page to read.

1. The application's topology processes the records: the *control*. 2. The changed one does; what it sends is compared chunk by chunk, at
the end the rows of the stores. If nothing differs, that is the result. 3. The control once more, with other random numbers: what differs
from the first time is noise, by field. The clock moves on between 1 and 2 only if it also does between 1 and 3. 4. What differs and is not
noise is counted. 5. Both sides, and the control once more, process the records up to the first one with a difference again, that one
traced: the first node.

A record at which one side fails ends the comparison: all before it is compared, and the failed node is the first difference.
"""

from __future__ import annotations

import re
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice, repeat
from typing import Any, NamedTuple

from kstreams_repl.engine.topology.topology import Topology
from kstreams_repl.pictures.wording import counted as counted_left
from kstreams_repl.repl.session.views.compare.comparison import (
    CHANGED,
    ONLY_AFTER,
    ONLY_BEFORE,
    ComparedRows,
    Comparison,
    FirstDifference,
    Noise,
    RowDifference,
)
from kstreams_repl.repl.session.views.compare.decoded import Decoder, Fields
from kstreams_repl.repl.session.views.compare.first_node import first_node
from kstreams_repl.repl.session.views.compare.inputs import Inputs
from kstreams_repl.repl.session.views.compare.row_pairs import (
    CHANGELOG,
    OUTPUT,
    REPARTITION,
    STORE,
    Channel,
    Channels,
    HasRows,
    Unequal,
)
from kstreams_repl.repl.session.views.compare.side import Base, Sent, Side, SideTopology
from kstreams_repl.repl.session.views.compare.values import fields_that_differ, without
from kstreams_repl.repl.session.views.past.replay.record_trace import NodeVisit
from kstreams_repl.system.errors import KStreamsError

ROWS = "(rows)"
"""Stands for the fields of a row that only one side has."""
_REPORT_SECONDS = 2.0
_TRACED = 5_000
"""How many records are traced from the beginning where no single one is known, or the one that is known does not show it: a processor
has lost what it had in its attributes, or chance has decided otherwise."""
Sides = Callable[[], tuple[SideTopology, SideTopology]]
"""Returns the control's and the changed topology; each call is for one pass, in which asynchronous nodes ask from the first answer on."""
Report = Callable[[str], object]


@dataclass(frozen=True, slots=True)
class _Failure:
    """One side has failed at a record.

    Attributes:
        alone: only the changed side did.
    """

    error: KStreamsError
    tag: int
    alone: bool


class _Unprocessed(Exception):
    """A side has failed: the comparison ends before that record."""

    def __init__(self, failure: _Failure) -> None:
        self.failure = failure


def compare(
    sides: Sides,
    base: Base,
    inputs: Inputs,
    *,
    title: str,
    samples: int = 20,
    notes: Sequence[str] = (),
    report: Report = lambda text: None,
    real: Mapping[str, HasRows] | None = None,
) -> Comparison:
    """Return what differs between the control and the changed topology.

    Args:
        base: what both begin with.
        inputs: the records.
        title: what they begin with, in words.
        samples: how many rows that differ are kept of each output and store.
        notes: what limits the comparison.
        report: called with the name of each step.
        real: by store, what the application really has after the last record, where that is known: a note says what the control has
            otherwise. It is no noise: both sides do the same.
    """
    before, after = sides()
    topologies = before.topology, after.topology
    stores = [store for store in before.topology.stores if store in after.topology.stores]
    stop, failure = len(inputs), None
    while True:
        try:
            unequal, again, unlike = _passes(sides, base, inputs, stop, stores, report, real or {})  # 1., 2. and 3.
            break
        except _Unprocessed as ended:
            failure, stop = ended.failure, ended.failure.tag
            if not stop and not failure.alone:
                raise failure.error from None
    # 4.
    decoders = Decoder(before.topology, before.config), Decoder(after.topology, after.config)
    noisy = _noise(again, decoders[0])
    compared = [channel for channel in unequal.channels if _is_compared(channel, topologies)]
    rows, kept, tags = [], list[RowDifference](), dict[Channel, int]()
    for channel in compared:
        counted = _Counted(channel, unequal, noisy.get(channel, set()), decoders, inputs, samples)
        if channel.kind != REPARTITION and counted.tags:
            tags[channel] = counted.tags[0]
        if channel.kind in (OUTPUT, STORE):
            rows.append(counted.rows)
            kept += counted.samples
    # 5.
    first = None
    if any(each.different for each in rows):
        report("looking for the first node that differs …")
        tag = min(tags.values(), default=None)
        spans = [*([] if tag is None else [(tag, tag + 1)]), (0, min(stop, _TRACED))]
        ends = [channel for channel, first_tag in tags.items() if first_tag == tag]
        found = (_first(sides, base, inputs, span, topologies, stores, ends, noisy=bool(noisy)) for span in spans)
        first = next((each for each in found if each is not None), None)
    left = [*notes, *(_unlike(unlike, decoders[0]) if stop == len(inputs) else ())]
    if failure is not None:
        position = inputs.position(failure.tag)
        left.append(f"{counted_left(len(inputs) - stop, 'record')} from {position} on were not compared: {failure.error.message}")
        if first is None and failure.alone:
            first = FirstDifference(failure.error.node or "", position, "processed it", f"raised {failure.error.message}")
    shown = tuple(Noise(*channel, tuple(sorted(fields))) for channel, fields in noisy.items() if channel.kind in (OUTPUT, STORE))
    return Comparison(before.application, stop, title, tuple(rows), tuple(kept), first, shown, tuple(left), topologies)


def _passes(
    sides: Sides, base: Base, inputs: Inputs, stop: int, stores: Sequence[str], report: Report, real: Mapping[str, HasRows]
) -> tuple[Unequal, Unequal, Unequal]:
    """Return what differs between the control and the changed side, between the control and itself, and what the application has.

    Raises:
        _Unprocessed: a side fails before that.
    """
    with _Control(sides()[0], base, inputs, stop, report) as control:
        unequal = control.against(sides()[1], stores, seed=0, what="the changed topology", alone=True)
        again = Unequal()
        if unequal.in_results:
            again = control.against(sides()[0], stores, seed=1, what="the unchanged topology again", alone=False)
        unlike = Unequal()
        for store, rows in real.items():
            unlike.add_rows(store, control.side, rows)
        return unequal, again, unlike


def _unlike(unlike: Unequal, decoder: Decoder) -> Iterator[str]:
    """Yield a note for each store of which the control has other rows than the application."""
    for channel, rows in unlike.rows.items():
        if rows:
            fields = sorted({field for pair in _pairs(channel, unlike, (decoder, decoder)) for field in pair.fields})
            whole = counted_left(len(rows) + unlike.equal[channel], "row")
            yield f"store {channel.name}: {len(rows):,} of {whole} are not what the application has ({', '.join(fields)})"


class _Control:
    """The application's topology with the records processed, and what it sent."""

    def __init__(self, given: SideTopology, base: Base, inputs: Inputs, stop: int, report: Report) -> None:
        self._base, self._inputs, self._stop, self._report = base, inputs, stop, report
        self._reported_at = time.monotonic()
        self.side = Side(given, base, inputs)
        try:
            self._sent = [channels for _, channels in self._run(self.side, "the unchanged topology", alone=False)]
        except BaseException:
            self.side.close()
            raise

    def against(self, given: SideTopology, stores: Sequence[str], *, seed: int, what: str, alone: bool) -> Unequal:
        """Return what differs between this side and another one."""
        unequal = Unequal()
        with Side(given, self._base, self._inputs, seed=seed) as other:
            for mine, (_, others) in zip(self._sent, self._run(other, what, alone=alone), strict=True):
                unequal.add(mine, others)
            for store in stores:
                unequal.add_rows(store, self.side, other)
        return unequal

    def _run(self, side: Side, what: str, *, alone: bool) -> Iterator[tuple[int, dict[Channel, list[Sent]]]]:
        channels = Channels(side.given.topology, side.given.application)
        for done, sent in side.run(self._stop):
            if side.failed is not None:
                raise _Unprocessed(_Failure(side.failed, side.failed_at, alone))
            if time.monotonic() - self._reported_at > _REPORT_SECONDS:
                self._reported_at = time.monotonic()
                self._report(f"{what}: {done:,} of {self._stop:,} records …")
            yield done, channels.split(sent)

    def __enter__(self) -> _Control:
        return self

    def __exit__(self, *error: object) -> None:
        self.side.close()


def _is_compared(channel: Channel, topologies: tuple[Topology, Topology]) -> bool:
    """Return whether both sides have the channel: an output that only one side has is a difference, an internal topic is not."""
    if channel.kind == REPARTITION:
        return all(channel.name in topology.internal_topics for topology in topologies)
    return channel.kind != CHANGELOG or all(channel.name in topology.stores for topology in topologies)


# ---- noise and numbers


class _Pair(NamedTuple):
    """Two rows in Python values."""

    tag: int | None
    before: Fields | None
    after: Fields | None

    @property
    def change(self) -> str:
        return ONLY_AFTER if self.before is None else ONLY_BEFORE if self.after is None else CHANGED

    @property
    def fields(self) -> list[str]:
        """What differs; of rows that only one side has, the row."""
        if self.before is None or self.after is None:
            return [ROWS]
        return list(fields_that_differ(self.before, self.after)) or ["bytes"]


def _pairs(channel: Channel, unequal: Unequal, decoders: tuple[Decoder, Decoder], most: int | None = None) -> Iterator[_Pair]:
    """Yield the pairs of a channel that are not equal, decoded."""
    for one, other in islice(unequal.sent.get(channel, ()), most):
        before, after = (
            None if sent is None else decoder.sent(channel, sent) for sent, decoder in zip((one, other), decoders, strict=True)
        )
        yield _Pair((one or other).tag, before, after)  # type: ignore[union-attr]
    rows = list(islice(unequal.rows.get(channel, ()), most))
    befores = _decoded(channel.name, [(partition, key, before) for partition, key, before, _ in rows], decoders[0])
    afters = _decoded(channel.name, [(partition, key, after) for partition, key, _, after in rows], decoders[1])
    for before, after in zip(befores, afters, strict=True):
        yield _Pair(None, before, after)


def _decoded(store: str, rows: Sequence[tuple[int, bytes, bytes | None]], decoder: Decoder) -> list[Fields | None]:
    there = iter(decoder.rows(store, [(partition, key, value) for partition, key, value in rows if value is not None]))
    return [None if value is None else next(there) for _, _, value in rows]


def _noise(unequal: Unequal, decoder: Decoder) -> dict[Channel, set[str]]:
    """Return the fields that differ between two runs of one topology."""
    found = {}
    for channel in unequal.channels:
        fields = {field for pair in _pairs(channel, unequal, (decoder, decoder)) for field in pair.fields}
        if fields:
            found[channel] = fields
    return found


class _Counted:
    """The numbers of one channel.

    Attributes:
        rows: them.
        samples: the first rows that differ.
        tags: of the first record with a difference; empty: none is known.
    """

    def __init__(
        self, channel: Channel, unequal: Unequal, noisy: set[str], decoders: tuple[Decoder, Decoder], inputs: Inputs, samples: int
    ) -> None:
        numbers: Counter[str] = Counter()
        self.samples: list[RowDifference] = []
        self.tags: list[int] = []
        if not noisy:
            for one, other in unequal.sent.get(channel, ()):
                self.tags = self.tags or [(one or other).tag]  # type: ignore[union-attr]
                numbers[ONLY_AFTER if one is None else ONLY_BEFORE if other is None else CHANGED] += 1
            for row in unequal.rows.get(channel, ()):
                numbers[ONLY_AFTER if row[2] is None else ONLY_BEFORE if row[3] is None else CHANGED] += 1
        for pair in _pairs(channel, unequal, decoders, None if noisy else samples):
            fields = without(pair.fields, noisy)
            if not fields:
                numbers["noise"] += 1
                continue
            if noisy:
                numbers[pair.change] += 1
                self.tags = self.tags or ([] if pair.tag is None else [pair.tag])
            if len(self.samples) < samples:
                self.samples.append(_difference(channel, pair, fields, inputs))
        changes = (numbers[change] for change in (CHANGED, ONLY_BEFORE, ONLY_AFTER, "noise"))
        self.rows = ComparedRows(*channel, unequal.equal.get(channel, 0), *changes)


def _difference(channel: Channel, pair: _Pair, fields: Sequence[str], inputs: Inputs) -> RowDifference:
    some = pair.before if pair.before is not None else pair.after
    assert some is not None
    key = some["key"] if some.get("window_start") is None else f"{some['key']} @ {some['window_start']}"
    names = list(dict.fromkeys(re.split(r"[.\[]", field)[0] for field in fields))
    names = ["value"] if names == [ROWS] or names == ["bytes"] else names

    def shown(side: Fields | None) -> Any:
        if side is None:
            return None
        return side.get(names[0]) if len(names) == 1 else {name: side.get(name) for name in names}

    position = None if pair.tag is None else inputs.position(pair.tag)
    return RowDifference(*channel, pair.change, key, shown(pair.before), shown(pair.after), tuple(fields), position)


# ---- the first node


def _first(
    sides: Sides,
    base: Base,
    inputs: Inputs,
    span: tuple[int, int],
    topologies: tuple[Topology, Topology],
    stores: Sequence[str],
    ends: Sequence[Channel],
    *,
    noisy: bool,
) -> FirstDifference | None:
    """Return the first node that differs at one of these records.

    Args:
        ends: the outputs and changelogs that differ with that record; empty: not known.
    """
    outputs, logs = ([channel.name for channel in ends if channel.kind == kind] for kind in (OUTPUT, CHANGELOG))

    def traced(which: int, seed: int) -> Iterator[list[NodeVisit]]:
        with Side(sides()[which], base, inputs, seed=seed) as side:
            for _ in side.run(span[0]):
                pass
            for _ in range(*span):
                yield side.traced()

    again = traced(0, 1) if noisy else repeat(None)
    for tag, before, after, same in zip(range(*span), traced(0, 0), traced(1, 0), again):  # noqa: B905 - `repeat` has no end
        found = first_node(before, after, same or before, topologies, stores=stores, outputs=outputs, logs=logs)
        if found is not None:
            return FirstDifference(found.node, inputs.position(tag), found.before, found.after)
    return None
