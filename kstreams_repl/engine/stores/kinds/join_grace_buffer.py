"""The stream side of a stream-table join with a grace period (KIP-923): buffers records until stream time exceeds theirs by the grace
period.

Key: `00‖int64 timestamp‖key‖int32 sequence`, so records leave by time, then key, then arrival. A record that is already too late
never enters the buffer: the join processes it immediately.
"""

from __future__ import annotations

import struct
from collections.abc import Callable

from kstreams_repl.engine.serdes import Serde
from kstreams_repl.engine.stores.engine.environment import Environment
from kstreams_repl.engine.stores.kinds.buffer_value import BufferValue, Context
from kstreams_repl.engine.stores.kinds.typed_store import MAX_LONG, TypedStore
from kstreams_repl.engine.stores.kinds.window import Sequence
from kstreams_repl.engine.stores.layers.observed_time import ObservedTime
from kstreams_repl.engine.stores.log.changelog import Changelog

_HEAD = struct.Struct(">bq")
_INT = struct.Struct(">i")
_NO_TIME = bytes(8)


class JoinGraceBuffer(TypedStore, ObservedTime):
    """Stream records that wait for the table."""

    def __init__(
        self,
        name: str,
        environment: Environment,
        changelog: Changelog,
        key_serde: Serde,
        value_serde: Serde,
        *,
        persistent: bool,
        context_type: Callable[..., Context] | None = None,
    ) -> None:
        TypedStore.__init__(self, name, changelog, key_serde, persistent=persistent)
        self._engine = environment.engine(name, persistent=persistent)
        self._changelog = changelog
        self._value = value_serde
        self._context_type = context_type
        self._sequence = Sequence(environment, name)
        self.min_time = MAX_LONG
        ObservedTime.__init__(self, environment, name)

    def _load(self) -> None:
        super()._load()
        self._find_first()

    def put(self, timestamp: int, key: object, value: object, context: Context) -> None:
        """Buffer one record and advance `observed_time`. The operator joins records that are too late itself."""
        if timestamp > self.observed_time:
            self.observed_time = timestamp
        if timestamp < self.min_time:
            self.min_time = timestamp
        physical = _HEAD.pack(0, timestamp) + (self._key.serialize(key) or b"") + _INT.pack(self._sequence.next())
        data = BufferValue(None, None, self._value.serialize(value), context).encode()
        self._engine.put(physical, data)
        self._changelog.log(physical, data + _NO_TIME, None)

    def evict_until(self, time: int, emit: Callable[[object, object, Context], None]) -> None:
        """Pass (key, value, record context) of every record with timestamp <= `time` to `emit`, in order, and remove it."""
        if time < 0:
            return
        for physical, data in self._engine.range(None, _HEAD.pack(0, time + 1)):
            buffered = BufferValue.decode(data, self._context_type)
            emit(self._key.deserialize(physical[9:-4]), self._value.deserialize(buffered.new), buffered.context)
            self._engine.put(physical, None)
            self._changelog.log(physical, None, None)
        self._find_first()

    def _find_first(self) -> None:
        first = next(self._engine.range(None, None, False, 1), None)
        self.min_time = MAX_LONG if first is None else _HEAD.unpack_from(first[0])[1]

    def _rows_held(self) -> str:
        return f"~{self._engine.approximate_count()} records"
