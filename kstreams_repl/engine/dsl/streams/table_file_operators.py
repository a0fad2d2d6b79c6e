"""`to_table_files`: the sink of a stream that writes a table of Parquet, Delta or Iceberg files."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from kstreams_repl.engine import serdes
from kstreams_repl.engine.dsl.graph.call_log import logged
from kstreams_repl.engine.dsl.graph.graph_nodes import TableFilesGraphNode
from kstreams_repl.engine.dsl.streams.stream_base import AbstractStream, first_known, serde_or_none
from kstreams_repl.engine.operators.batches.record_columns import type_of
from kstreams_repl.engine.topology.table_files import COMMIT_INTERVAL_MS, EVENT_TIMES, FORMATS, TARGET_FILE_BYTES, TableFiles
from kstreams_repl.system.durations import Millis, as_millis
from kstreams_repl.system.errors import TopologyError, did_you_mean
from kstreams_repl.system.extras import extras, require

if TYPE_CHECKING:
    import pyarrow as pa

_LIBRARIES = {"parquet": (), "delta": ("deltalake",), "iceberg": ("pyiceberg",)}
_TYPES = {
    "string": "string", "bytes": "binary", "integer": "int32", "long": "int64", "short": "int16", "float": "float32", "double": "float64",
}  # fmt: skip
"""By serde: the type of the one column of its values."""


class TableFileOperators(AbstractStream):
    """The part of `KStream` that writes tables."""

    @logged
    def to_table_files(
        self,
        path: str,
        format: str = "parquet",
        *,
        schema: object = None,
        partition_by: str | Sequence[str] = (),
        key_column: str | None = None,
        timestamp_column: str | None = None,
        target_file_bytes: int = TARGET_FILE_BYTES,
        commit_interval_ms: Millis = COMMIT_INTERVAL_MS,
        table: str | None = None,
        catalog: Mapping[str, str] | None = None,
        storage_options: Mapping[str, str] | None = None,
        name: str | None = None,
    ) -> None:
        """Append the stream's records to a table of files, exactly once under ``exactly_once_v2``.

        The fields of a value are the columns; other fields are ignored, absent ones are null. A value that is not an object has one
        column, ``value``. Records with the value None are dropped.

        Args:
            path: directory or URL of the table.
            format: "parquet", "delta" or "iceberg".
            schema: a `pyarrow.Schema`, or names of columns and their types (``{"user": "string", "amount": "double"}``), those of
                `sql(columns=)`. A timestamp is a datetime, ISO text or an integer of milliseconds since 1970, a date never a number.
                Optional if the stream's value serde has one type (string, long, double, ...) or is Avro with a schema of its own.
            partition_by: columns whose values separate the files. ``"event_day"`` and ``"event_hour"`` are added from the record's
                timestamp (UTC).
            key_column: column for the record's key; its type is the key serde's, or the schema's.
            timestamp_column: column for the record's timestamp.
            target_file_bytes: a data file is closed at this size.
            commit_interval_ms: rows appear in the table at the latest this long after their Kafka commit, and when the application
                stops.
            table: Iceberg: the identifier in the catalog; None = ``default.`` and the last part of the path.
            catalog: Iceberg: properties of the catalog, as for `pyiceberg.catalog.load_catalog`, and its ``name`` ("kstreams"): an SQL
                catalog shows a table only under that name. None = a SQLite file in the path, which must be local then.
            storage_options: options of the file system for URLs; of S3: by the names of AWS's environment variables, which are the
                defaults (``AWS_ENDPOINT_URL``, ``AWS_REGION``, ...).
            name: name of the node.

        Raises:
            TopologyError: the format, the schema or a column is unknown.
            KStreamsError: the format's library is not installed.

        Example:
            >>> import kstreams_repl as ks
            >>> builder = ks.StreamsBuilder()
            >>> orders = builder.stream("orders", key_serde="string", value_serde="json")
            >>> orders.to_table_files("/data/orders", schema={"user": "string", "amount": "double"}, partition_by="event_day")
        """
        if format not in FORMATS:
            raise TopologyError(
                f"to_table_files() expected a format of {', '.join(FORMATS)}, got {format!r}", hint=did_you_mean(str(format), FORMATS)
            )
        require("pyarrow", *_LIBRARIES[format])
        by = (partition_by,) if isinstance(partition_by, str) else tuple(partition_by)
        if format == "iceberg" and catalog is None and _is_remote(str(path)):
            raise TopologyError(
                "to_table_files() needs the catalog of an Iceberg table on an object store: no SQLite file can be there",
                hint='catalog={"type": "rest", "uri": "http://..."}, or {"type": "sql", "uri": "postgresql://...", "warehouse": "s3://..."}',
            )
        columns, value_column = _columns(schema, self.value_serde)
        node_name = self._graph.name_or_generate(name, "KSTREAM-TABLE-SINK-")
        files = TableFiles(
            str(path), format, _complete(columns, by, key_column, self.key_serde, timestamp_column), by, key_column, timestamp_column,
            value_column, target_file_bytes, as_millis(commit_interval_ms, "commit_interval_ms"), table, tuple((catalog or {}).items()),
            tuple((storage_options or {}).items()),
        )  # fmt: skip
        self._graph.add(self._node, TableFilesGraphNode(node_name, self._graph.here(), files, self.key_serde, self.value_serde))


def _is_remote(path: str) -> bool:
    scheme = urlsplit(path).scheme
    return len(scheme) > 1 and scheme != "file"


def _columns(schema: object, value_serde: object) -> tuple[pa.Schema, str | None]:
    """Return the schema of the value's columns, and the name of its one column if the value is not an object."""
    with extras():
        import pyarrow as pa
    if schema is None and (declared := _record_schema(value_serde)) is not None:
        from kstreams_repl.engine.serdes.schemas.columns import NoColumnError, columns_of

        try:
            return columns_of(declared), None
        except NoColumnError as cause:
            raise TopologyError(
                f"to_table_files() needs the columns of the table: {cause}, which has no column type",
                hint='map the values and give schema={"user": "string", "amount": "double"}, or a pyarrow.Schema',
            ) from cause
    if schema is None:
        kind = _TYPES.get(_serde_name(value_serde))
        if kind is None:
            raise TopologyError(
                "to_table_files() needs the columns of the table: values of the stream's serde have no fixed type",
                hint='schema={"user": "string", "amount": "double"}, or a pyarrow.Schema',
            )
        return pa.schema([("value", kind)]), "value"
    if isinstance(schema, Mapping):
        schema = pa.schema([(column, _type(column, kind)) for column, kind in schema.items()])
    if not isinstance(schema, pa.Schema) or not len(schema):
        raise TopologyError(
            f"to_table_files() expected a schema with columns, got {schema!r}", hint='schema={"user": "string"}, or a pyarrow.Schema'
        )
    return schema, "value" if schema.names == ["value"] and _serde_name(value_serde) in _TYPES else None


def _type(column: str, kind: object) -> pa.DataType:
    import pyarrow as pa

    if isinstance(kind, pa.DataType):
        return kind
    if kind == "timestamp":
        return pa.timestamp("us", "UTC")
    try:
        return pa.type_for_alias(type_of(kind))
    except (ValueError, TypeError) as cause:
        raise TopologyError(
            f"column {column!r} has the unknown type {kind!r}",
            hint='types are "string", "int64", "bigint", "double", "bool", "timestamp", "date32", int, str, ... or a pyarrow.DataType',
        ) from cause


def _complete(columns: pa.Schema, by: Sequence[str], key_column: str | None, key_serde: object, timestamp_column: str | None) -> pa.Schema:
    """Return the table's schema: the value's columns, then key, timestamp and event times."""
    import pyarrow as pa

    names = columns.names
    if key_column is not None and key_column not in names:
        kind = _TYPES.get(_serde_name(serde_or_none(first_known(key_serde))))
        if kind is None:
            raise TopologyError(
                f"the type of the key column {key_column!r} is not known",
                hint=f'give it in the schema: schema={{..., {key_column!r}: "string"}}',
            )
        columns = columns.append(pa.field(key_column, pa.type_for_alias(kind)))
    if timestamp_column is not None and timestamp_column not in names:
        columns = columns.append(pa.field(timestamp_column, pa.timestamp("us", "UTC")))
    for name, kind in zip(EVENT_TIMES, (pa.date32(), pa.string()), strict=True):
        if name in by and name not in names:
            columns = columns.append(pa.field(name, kind))
    unknown = [name for name in by if name not in columns.names]
    if unknown:
        raise TopologyError(
            f"partition_by names the column {unknown[0]!r}, which the table does not have",
            hint=did_you_mean(unknown[0], (*columns.names, *EVENT_TIMES))
            or f"columns: {', '.join(columns.names)}; or event_day, event_hour",
        )
    if len(columns.names) == len(by):
        raise TopologyError("partition_by names every column of the table", hint="leave at least one column for the files")
    return pa.schema([_in_microseconds(field) for field in columns])


def _in_microseconds(field: pa.Field) -> pa.Field:
    """Return a field whose timestamps all three formats can store."""
    import pyarrow as pa

    if pa.types.is_timestamp(field.type) and field.type.unit != "us":
        return field.with_type(pa.timestamp("us", field.type.tz))
    return field


def _record_schema(serde: object) -> tuple[str, ...] | None:
    return None if serde is None else getattr(serdes.resolve(serde), "record_schema", None)


def _serde_name(serde: object) -> str:
    return "" if serde is None else str(getattr(serdes.resolve(serde), "name", ""))
