"""Records and rows of a side in Python values, by the serdes that wrote them; what cannot be read stays bytes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import orjson

from kstreams_repl.engine.config import StreamsConfig
from kstreams_repl.engine.serdes import Serde, resolve
from kstreams_repl.engine.serdes.header_ids import framed
from kstreams_repl.engine.serdes.schemas.schema_registry import Part, settings_from
from kstreams_repl.engine.stores.layers.header_rows import without_headers
from kstreams_repl.engine.topology.nodes import SinkNode
from kstreams_repl.engine.topology.store_builder import StoreKind
from kstreams_repl.engine.topology.topology import Topology
from kstreams_repl.repl.inspection.stores import StoreRows, store_table
from kstreams_repl.repl.session.views.compare.row_pairs import CHANGELOG, Channel
from kstreams_repl.repl.session.views.compare.side import Sent

Fields = dict[str, Any]
"""A record or row: its key, value, timestamp and so on, by name."""
PRIVATE = frozenset({StoreKind.OUTER_JOIN, StoreKind.SUPPRESS_BUFFER, StoreKind.JOIN_GRACE_BUFFER, StoreKind.SUBSCRIPTION})
"""Kinds of stores whose rows only their operators can read."""


class Decoder:
    """Reads what one side has written."""

    def __init__(self, topology: Topology, config: StreamsConfig) -> None:
        self._topology, self._config = topology, config
        self._sinks = {node.topic: node for node in reversed(list(topology.nodes.values())) if isinstance(node, SinkNode)}
        self._serdes: dict[Channel, tuple[Serde | None, Serde | None]] = {}

    def sent(self, channel: Channel, record: Sent) -> Fields:
        """Return a record that was sent."""
        if channel not in self._serdes:
            self._serdes[channel] = self._serdes_of(channel, record.topic)
        key, value = self._serdes[channel]
        fields = {
            "key": _read(key, record.key, record, "key"),
            "value": _read(value, record.value, record, "value"),
            "timestamp": record.timestamp,
        }
        if record.headers:
            fields["headers"] = [list(header) for header in record.headers]
        return fields | {"partition": record.partition}

    def rows(self, store: str, rows: Sequence[tuple[int, bytes, bytes]]) -> list[Fields]:
        """Return rows of a store, with the windows of their keys."""
        if not rows:
            return []
        builder = self._topology.stores[store]
        key, value = self._bound(builder.key_serde, "key", store), self._bound(builder.value_serde, "value", store)
        values = [without_headers(row[2]) if builder.headers else row[2] for row in rows]
        part = StoreRows(0, [row[1] for row in rows], values)
        table = store_table(builder, [part], key_serde=key, value_serde=value)
        columns = {name: column.to_pylist() for name, column in table.columns.items()}
        for name in table.json_columns:
            columns[name] = [each if each is None else orjson.loads(each) for each in columns[name]]
        columns["partition"] = [row[0] for row in rows]
        return [dict(zip(columns, row, strict=True)) for row in zip(*columns.values(), strict=True)]

    def _serdes_of(self, channel: Channel, topic: str) -> tuple[Serde | None, Serde | None]:
        if channel.kind == CHANGELOG:
            builder = self._topology.stores[channel.name]
            if builder.kind in PRIVATE:
                return None, None
            plain = builder.kind in (StoreKind.KEY_VALUE, StoreKind.TIMESTAMPED_KEY_VALUE, StoreKind.LRU, StoreKind.VERSIONED)
            return self._bound(builder.key_serde, "key", topic) if plain else None, self._bound(
                builder.value_serde, "value", topic
            )
        sink = self._sinks.get(channel.name) or self._sinks.get(None)
        if sink is None:
            return None, None
        return self._bound(sink.key_serde, "key", topic), self._bound(sink.value_serde, "value", topic)

    def _bound(self, serde: object, part: Part, topic: str) -> Serde:
        return resolve(serde, self._config[f"default.{part}.serde"]).for_topic(topic, part, settings_from(self._config.client))


def _read(serde: Serde | None, data: Any, record: Sent, part: Part) -> Any:
    if serde is None or not isinstance(data, bytes):
        return data
    try:
        return serde.deserialize(framed(data, record.headers, part) if serde.reads_header_ids else data)
    except Exception:  # noqa: BLE001 - a serde of the user; the bytes say enough
        return data
