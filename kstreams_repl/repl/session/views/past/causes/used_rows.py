"""What the nodes on the way of a record have used besides it: rows of the other side of a join, rows kept back, rows of a processor.

Everything here is read off one trace. Actors: a `Chain`, the visits from the source to the node that has written; `UsedRow`, a row of a
store of which the last update before the record is a cause.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Literal, NamedTuple

from kstreams_repl.engine.operators.foreign_key.foreign_key_response_join import ResponseJoin
from kstreams_repl.engine.operators.foreign_key.foreign_key_subscription_join import SubscriptionJoin
from kstreams_repl.engine.operators.joins.stream_stream_join import StreamStreamJoin, StreamStreamSelfJoin
from kstreams_repl.engine.operators.joins.stream_table_join import StreamTableJoin
from kstreams_repl.engine.operators.joins.table_table_join import TableJoinKind, TableTableJoin
from kstreams_repl.engine.operators.operator import Operator
from kstreams_repl.engine.operators.tables.table_suppress import TableSuppress
from kstreams_repl.engine.serdes.foreign_key import DELETE_KEY_AND_PROPAGATE
from kstreams_repl.engine.stores.kinds.outer_join import side_key
from kstreams_repl.engine.topology.nodes import Node
from kstreams_repl.host.instance.state.changelogs import ChangelogPartition
from kstreams_repl.repl.session.views.past.causes.row_keys import RowKey, row_key
from kstreams_repl.repl.session.views.past.replay.record_trace import WRITES, NodeVisit, RecordTrace, SentRecord, StoreAccess
from kstreams_repl.system.types import VersionedRecord

_MOST_ROWS = 100
"""How many rows that a processor has read in one call are followed."""
Chain = Sequence[NodeVisit]


class UsedRow(NamedTuple):
    """A row of a store.

    Attributes:
        key: as a user has it, or as the changelog has it.
        at_ms: of a versioned table: the timestamp of the version that was read, or, of none, the time as of which it was read; None: the
            row is the last that was written.
        use: what of it was used: its ``value``; that it ``exists``, whatever its value; that it was ``gone``.
    """

    store: str
    key: Any
    at_ms: int | None = None
    use: Literal["value", "exists", "gone"] = "value"


def chain_of(trace: RecordTrace, sent: SentRecord, store: ChangelogPartition | None, nodes: Mapping[str, Node]) -> Chain:
    """Return the visits from the source to the node that has sent a record.

    Args:
        store: whose changelog it was sent to; None: a sink has sent it.
        nodes: of the topology.
    """
    visits = trace.visits
    if store is None:
        ends = [at for at, visit in enumerate(visits) if sent in visit.sent]
    else:
        ends = [at for at, visit in enumerate(visits) if any(writes(each, store.store.name) for each in visit.stores)]
        own = [at for at in ends if any(is_of(store, each, sent.key) for each in visits[at].stores)]
        ends = own or ends
    if not ends:
        return visits[:1]
    line = _line(visits, ends[-1])
    if line[0].input is None:  # a cached row leaves at the commit that follows each record
        entered = [at for at, visit in enumerate(visits) if visit.node == line[0].node and visit.input is not None]
        return [*_line(visits, entered[-1]), *line[1:]] if entered and not is_users(operator_of(nodes, line[0])) else line
    return line


def operator_of(nodes: Mapping[str, Node], visit: NodeVisit) -> Any:
    """Return the operator of a visited node; None for a source or a sink."""
    return getattr(nodes.get(visit.node), "operator", None)


def is_users(operator: Any) -> bool:
    """Return whether a user's code may read and write rows there."""
    return not isinstance(operator, Operator) or operator.role == "processor"


def kept_back(
    trace: RecordTrace, visit: NodeVisit, child: NodeVisit | None, operator: Any, logs: Mapping[str, ChangelogPartition]
) -> UsedRow | None:
    """Return the row that left a buffer or a window because stream time advanced; None: nothing did."""
    out = child.input if child is not None else None
    if out is None:
        return None
    given = visit.input
    if getattr(operator, "emit_on_close", False):
        return UsedRow(operator.store, out.key)
    if isinstance(operator, TableSuppress):
        own = given is not None and given.key == out.key and given.value[0] == out.value[0]
        log = logs.get(operator.store)
        return None if own or log is None else UsedRow(operator.store, RowKey(log.store.key_serde.serialize(out.key)))
    store = None
    if isinstance(operator, StreamTableJoin):
        store = operator.buffer_store
    elif isinstance(operator, StreamStreamJoin) and _pair(visit, child, operator.other_store) is None:
        store = operator.outer_store
    if store is None or store not in logs or (given is not None and (given.key, given.timestamp) == (out.key, out.timestamp)):
        return None
    return _removed(trace, logs[store], out.key, out.timestamp)


def _removed(trace: RecordTrace, log: ChangelogPartition, key: Any, timestamp: int) -> UsedRow | None:
    """Return the row of a buffered record that a record has removed from its buffer, by its own key and time."""
    data = log.store.key_serde.serialize(key)
    gone = [sent.key for sent in trace.sent if sent.topic == log.partition.topic and sent.value is None and sent.key is not None]
    time_bytes = side_key(timestamp, False, b"")[:8]
    return next((UsedRow(log.store.name, RowKey(each)) for each in gone if data in each and time_bytes in each), None)


def rows_read(trace: RecordTrace, visit: NodeVisit, child: NodeVisit | None, operator: Any) -> Iterator[UsedRow]:
    """Yield the rows that a node has read and that are in what its child got: the other side of a join, and what a processor has looked up.

    Rows that the same record has written before are left out.
    """
    at = next(number for number, each in enumerate(trace.visits) if each is visit)
    written = {(each.store, repr(each.key)) for other in trace.visits[: at + 1] for each in other.stores if each.call in WRITES}
    reads = [each for each in visit.stores if each.call not in WRITES]
    if is_users(operator):
        rows = [UsedRow(each.store, key) for each in reads for key in _keys_read(each)][:_MOST_ROWS]
    elif operator.role == "join":
        rows = list(_joined(visit, child, operator, reads))
    else:
        return
    yield from dict.fromkeys(row for row in rows if (row.store, repr(row.key)) not in written)


def _joined(visit: NodeVisit, child: NodeVisit | None, operator: Any, reads: Sequence[StoreAccess]) -> Iterator[UsedRow]:
    out = child.input if child is not None else None
    if out is None:
        return
    if isinstance(operator, StreamStreamJoin | StreamStreamSelfJoin):
        other = operator.other_store if isinstance(operator, StreamStreamJoin) else operator.store
        pair = _pair(visit, child, other)
        rows = [UsedRow(other, (each.key[0], row[0])) for each in reads if each.store == other for row in each.before]
        yield from [] if pair is None else rows[pair : pair + 1]
        return
    deletes = out.timestamp == (visit.input or out).timestamp and (
        (isinstance(operator, TableTableJoin) and out.value[0] is None)
        or (
            isinstance(operator, SubscriptionJoin)
            and visit.input is not None
            and visit.input.value[1] == DELETE_KEY_AND_PROPAGATE
        )
        or (isinstance(operator, ResponseJoin) and out.value is None)
    )
    for each in reads:
        if isinstance(each.before, list):  # the subscriptions of a foreign key: who is told, not what
            pair = _pair(visit, child, each.store)
            yield from [] if pair is None else [UsedRow(each.store, RowKey(each.before[pair][0]), use="exists")]
        elif not each.one_row:  # of a versioned table: the key, and the time of what is joined with it
            key, at_ms = each.key
            if at_ms == out.timestamp:
                gone = each.before is None
                yield UsedRow(each.store, key, at_ms if gone else each.before[1], "gone" if gone else "value")
        elif deletes:
            if each.before is not None and getattr(operator, "kind", None) is TableJoinKind.INNER:  # else nothing is forwarded
                yield UsedRow(each.store, each.key, use="exists")
        elif each.before is None:
            yield UsedRow(each.store, each.key, use="gone")
        else:
            yield UsedRow(each.store, each.key, each.before[1] if isinstance(each.before, VersionedRecord) else None)


def _pair(visit: NodeVisit, child: NodeVisit | None, other: str) -> int | None:
    """Return which of the rows that a join has read of a store is in one of its outputs; None: none is."""
    rows = [row for access in visit.stores if access.store == other and isinstance(access.before, list) for row in access.before]
    outputs = len(visit.outputs)
    place = next((at for at, output in enumerate(visit.outputs) if child is not None and child.input == output), None)
    if place is None or place < outputs - len(rows):
        return None
    return place - (outputs - len(rows))


def is_of(log: ChangelogPartition, access: StoreAccess, data: bytes | None) -> bool:
    """Return whether a call has written the row of a record of a changelog."""
    if not access.one_row or not writes(access, log.store.name):
        return False
    wanted = row_key(log.store, access.key)
    return wanted is not None and wanted(data)


def writes(access: StoreAccess, store: str) -> bool:
    """Return whether a call has written to a store."""
    return access.store == store and access.call in WRITES


def _line(visits: Sequence[NodeVisit], end: int) -> Chain:
    """Return a visit and those that have led to it, the first one first."""
    line = [visits[end]]
    for visit in reversed(visits[:end]):
        if visit.depth == line[-1].depth - 1:
            line.append(visit)
    return line[::-1]


def _keys_read(access: StoreAccess) -> list[Any]:
    """Return the keys of the rows that a processor's call has read."""
    if not isinstance(access.before, list):
        return [access.key] if access.one_row and access.before is not None else []
    if access.call == "fetch":  # of one key: times and values
        return [row[0] if isinstance(row[0], tuple) else (access.key[0], row[0]) for row in access.before]
    return [row[0] for row in access.before]
