"""Records that were read or sampled, as a list that displays as a table."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple, overload

from kstreams_repl.pictures.frames import Frames
from kstreams_repl.pictures.table import Table
from kstreams_repl.pictures.wording import time_text
from kstreams_repl.system.extras import extras
from kstreams_repl.system.types import Headers, header_text

if TYPE_CHECKING:
    import pandas as pd
    import pyarrow as pa

EXACT = 2**53
"""A float represents every integer up to this one."""


class ReadRecord(NamedTuple):
    """One decoded record. `offset` is -1 if the record was never on a topic (a value between two nodes)."""

    key: Any
    value: Any
    timestamp: int
    topic: str = ""
    partition: int = -1
    offset: int = -1
    headers: Headers = []


class Records(Frames, Sequence[ReadRecord]):
    """Records in order, with a note about their origin and the bounds of the read."""

    def __init__(self, records: Iterable[ReadRecord], *, note: str = "", title: str = "") -> None:
        self._records = tuple(records)
        self.note = note
        self.title = title

    @overload
    def __getitem__(self, index: int) -> ReadRecord: ...
    @overload
    def __getitem__(self, index: slice) -> Sequence[ReadRecord]: ...
    def __getitem__(self, index: int | slice) -> ReadRecord | Sequence[ReadRecord]:
        return self._records[index]

    def __len__(self) -> int:
        return len(self._records)

    def table(self) -> Table:
        """Return a table for display: key, value, time, partition and offset.

        Example:
            >>> import kstreams_repl as ks
            >>> records = ks.reports.Records([ks.reports.ReadRecord("a", {"n": 1}, 1000, "words", 0, 7)])
            >>> records.table().columns
            ('key', 'value', 'timestamp', 'partition', 'offset')
        """
        placed = any(record.offset >= 0 for record in self._records)
        columns = ("key", "value", "timestamp", *(("partition", "offset") if placed else ()))
        with_headers = any(record.headers for record in self._records)
        rows = [
            (
                r.key,
                r.value,
                time_text(r.timestamp),
                *((r.partition, r.offset) if placed else ()),
                *(([(name, header_text(value)) for name, value in r.headers],) if with_headers else ()),
            )
            for r in self._records
        ]
        return Table.of((*columns, *(("headers",) if with_headers else ())), rows, note=self.note, title=self.title)

    def df(self) -> pd.DataFrame:
        """Return a pandas DataFrame, one row per record; timestamps as dates in UTC.

        Example:
            >>> import kstreams_repl as ks
            >>> records = ks.reports.Records([ks.reports.ReadRecord("a", {"n": 1}, 1000, "words", 0, 7)])
            >>> records.df().shape
            (1, 7)
        """
        with extras():
            import pandas

        frame = pandas.DataFrame(list(self._records), columns=list(ReadRecord._fields))
        for name in ("key", "value"):  # pandas converts integers to floats when a value is None, and large ones lose digits
            if str(frame[name].dtype) == "float64" and (frame[name].abs() >= EXACT).any():
                frame[name] = pandas.Series([getattr(record, name) for record in self._records], dtype=object)
        frame["timestamp"] = frame["timestamp"].to_numpy("datetime64[ms]")  # pandas' nanoseconds end in 2262
        return frame

    def arrow(self) -> pa.Table:
        """Return an Arrow table, one row per record; keys or values without a common type become text.

        Example:
            >>> import kstreams_repl as ks
            >>> records = ks.reports.Records([ks.reports.ReadRecord("a", {"n": 1}, 1000, "words", 0, 7)])
            >>> records.arrow().num_rows
            1
        """
        import pyarrow as pa

        from kstreams_repl.pictures.columns import as_array, milliseconds
        from kstreams_repl.repl.inspection.topics import headers_column

        return pa.table(
            {
                "key": as_array([record.key for record in self._records]),
                "value": as_array([record.value for record in self._records]),
                "timestamp": milliseconds([record.timestamp for record in self._records]),
                "topic": pa.array([record.topic for record in self._records], pa.string()),
                "partition": pa.array([record.partition for record in self._records], pa.int32()),
                "offset": pa.array([record.offset for record in self._records], pa.int64()),
                "headers": headers_column(record.headers for record in self._records),
            }
        )

    def __repr__(self) -> str:
        return self.table().text() if self._records else self.note or "0 records"

    def _repr_mimebundle_(self, include: object = None, exclude: object = None) -> dict[str, str]:
        table = self.table() if self._records else Table.of((), (), note=self.note or "0 records")
        return table._repr_mimebundle_()
