"""Aggregates of a grouped table. Kafka Streams' `KTableAggregate`, `KTableReduce`."""

from __future__ import annotations

from dataclasses import dataclass

from kstreams_repl.engine.operators.aggregates.aggregators import nothing, reducing
from kstreams_repl.engine.operators.kernel import inlined, kernel
from kstreams_repl.engine.operators.operator import Change, NodeContext, Operator, Process
from kstreams_repl.engine.operators.tables.tuple_forwarder import keeper
from kstreams_repl.system.types import Aggregator, Headers, Initializer, Reducer


@dataclass(slots=True)
class TableAggregate(Operator):
    """Remove the old row from its group's aggregate, then add the new row; forwards `(new, old, True)`.

    None keys are dropped and counted. A missing aggregate starts from `initializer()` (for `remove` too). Result timestamp:
    max(aggregate's, record's).

    Attributes:
        store: name of the (timestamped or versioned) key-value store.
        initializer: () -> initial aggregate.
        add: (key, value, aggregate) -> aggregate.
        remove: (key, value, aggregate) -> aggregate.
        send_old_values: forward the old aggregate too.
        versioned: the store is a versioned one.
    """

    role = "aggregate"

    store: str
    initializer: Initializer
    add: Aggregator
    remove: Aggregator
    send_old_values: bool = False
    versioned: bool = False

    def build(self, node: NodeContext, forward: Process) -> Process:
        get, send_old, initializer, add, remove = node.store(self.store).get, self.send_old_values, self.initializer, self.add, self.remove
        keep = keeper(node, self.store, forward, send_old_values=send_old, versioned=self.versioned, own_time=True, first=initializer)

        def aggregate(key: object, value: Change, timestamp: int, headers: Headers) -> None:
            new, old = value[0], value[1]
            row = get(key)
            before = result = None
            if row is not None:
                before = result = row[0]
                if row[1] > timestamp and (old is not None or new is not None):
                    timestamp = row[1]
                if old is not None:
                    result = remove(key, old, result)
            if new is not None:
                if result is None:
                    result = initializer()
                result = add(key, new, result)
            keep(key, result, before if send_old else None, timestamp, headers)

        return kernel(node, aggregate)


@dataclass(slots=True)
class TableReduce(Operator):
    """`TableAggregate`, except that a group's first value is its first aggregate and nothing is removed from a missing aggregate.

    Attributes:
        store: name of the (timestamped or versioned) key-value store.
        add: (aggregate, value) -> aggregate.
        remove: (aggregate, value) -> aggregate.
        send_old_values: forward the old aggregate too.
        versioned: the store is a versioned one.
    """

    role = "aggregate"

    store: str
    add: Reducer
    remove: Reducer
    send_old_values: bool = False
    versioned: bool = False

    def build(self, node: NodeContext, forward: Process) -> Process:
        remover = self.remove

        @inlined
        def remove(key: object, value: object, aggregate: object) -> object:
            return remover(aggregate, value)

        by_key = TableAggregate(self.store, nothing, reducing(self.add), remove, self.send_old_values, self.versioned)
        return by_key.build(node, forward)
