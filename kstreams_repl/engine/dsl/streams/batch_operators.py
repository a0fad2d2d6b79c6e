"""The operator of a stream that calls a function with many records at once: `map_batches`. Kafka Streams has no counterpart."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Self

from kstreams_repl.engine import serdes
from kstreams_repl.engine.dsl.graph.call_log import logged
from kstreams_repl.engine.dsl.streams.stream_base import AbstractStream, check_callable
from kstreams_repl.engine.operators.batches.record_columns import Fields, declared, kind_of
from kstreams_repl.engine.operators.batches.stream_map_batches import StreamMapBatches


class BatchOperators(AbstractStream):
    """`KStream.map_batches`."""

    @logged
    def map_batches(self, mapper: Callable[[Any], Any], *, columns: Mapping[str, object] | None = None, name: str | None = None) -> Self:
        """Replace values by a function that gets many records at once, as an Arrow record batch. Records keep key, time, headers and order.

        The columns are `value`, or the declared fields of JSON objects, and key, timestamp, partition, offset, headers and row. What it
        returns without those last six is the new value: a column `value`, or a dict of the columns. Rows may be left out or repeated if
        the column `row` is kept.

        Args:
            mapper: record batch -> record batch, or table with the Arrow interface; its result for a record must not depend on which
                others share the batch.
            columns: field of the JSON object -> int, float, str, bool, an Arrow or SQL name of a type, or an Arrow type; None = the
                batch has a column `value`.
            name: name of the node; None = generated.

        Raises:
            TopologyError: the function is not callable, or a type is unknown.
            KStreamsError: pyarrow is not installed.

        Example:
            >>> import kstreams_repl as ks
            >>> import pyarrow.compute as pc
            >>> builder = ks.StreamsBuilder()
            >>> orders = builder.stream("orders", key_serde="string", value_serde="json")
            >>> def large(batch):
            ...     return batch.filter(pc.greater(batch["amount"], 100))
            ...
            >>> orders.map_batches(large, columns={"user": int, "amount": int}).to("large", value_serde="json")
        """
        check_callable(mapper, "mapper", "map_batches", "batch")
        operator = StreamMapBatches(*column_types(self, columns, "map_batches"), mapper)
        return self._put(operator, "KSTREAM-MAPBATCHES-", name, key_serde=self.key_serde, value_changing=True)


def column_types(stream: AbstractStream, columns: Mapping[str, object] | None, operator: str) -> tuple[Fields, str | None, str | None]:
    """Return the declared fields of an operator's argument `columns`, and the types of the stream's keys and values."""
    key, value = (None if one is None else kind_of(serdes.resolve(one)) for one in (stream.key_serde, stream.value_serde))
    return declared(columns, operator), key, value
