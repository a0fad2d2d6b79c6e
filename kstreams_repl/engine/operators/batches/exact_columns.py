"""Python objects as an Arrow column of a declared type, without a changed value.

Arrow takes 1.5 as the integer 1, a number as a moment in the unit of the column (milliseconds become moments of 1970), and 1e300 as an
infinite 32-bit float. Here an integer for a timestamp is milliseconds since 1970, as everywhere in Kafka, and what does not fit is refused.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime, time, timedelta
from decimal import Decimal
from math import isinf
from numbers import Integral, Number
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import pyarrow as pa

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_SAFE: dict[str, set[type]] = {"integer": {int, type(None)}, "double": {int, float, type(None)}}
"""Types of objects that Arrow converts exactly, or refuses."""


def exact_array(values: Sequence[object], kind: pa.DataType) -> pa.Array:
    """Return objects as an Arrow array.

    Raises:
        TypeError, ValueError, OverflowError, pyarrow.ArrowException: an object does not fit.

    Example:
        >>> import pyarrow as pa
        >>> exact_array([0, None], pa.timestamp("us", "UTC")).to_pylist()[0].isoformat()
        '1970-01-01T00:00:00+00:00'
    """
    import pyarrow as pa

    if is_changed_by_arrow(kind) or not set(map(type, values)) <= _SAFE["integer" if pa.types.is_integer(kind) else "double"]:
        values = [_exact(value, kind) for value in values]
    return pa.array(values, kind)


def is_changed_by_arrow(kind: object) -> bool:
    """Return whether Arrow may change an object of any type for a column of this type: times, decimals, 32-bit floats, and structures."""
    from pyarrow import types

    return bool(types.is_temporal(kind) or types.is_decimal(kind) or types.is_float32(kind) or types.is_nested(kind))


def _exact(value: Any, kind: pa.DataType) -> object:
    """Return a value that Arrow converts exactly; raise if the type cannot hold it."""
    from pyarrow import types

    if isinstance(value, dict) and types.is_struct(kind):
        return value | {field.name: _exact(value[field.name], field.type) for field in kind if field.name in value}
    if isinstance(value, list | tuple) and types.is_list(kind):
        return [_exact(item, kind.value_type) for item in value]
    if types.is_date(kind) and isinstance(value, datetime) and value.time() != time():
        raise ValueError(f"{value} has a time of day, which a date does not have")
    if not issubclass(type(value), Number):
        return value
    whole = issubclass(type(value), Integral) and not isinstance(value, bool)
    if types.is_timestamp(kind) and whole:
        try:
            return _EPOCH + timedelta(milliseconds=int(value))
        except OverflowError as cause:
            raise OverflowError(f"{value} is after the year 9999: integers in a timestamp column are milliseconds since 1970") from cause
    if types.is_temporal(kind) and not (whole and types.is_time(kind)):
        raise TypeError(f"expected a {kind}, got {value!r}")
    if types.is_integer(kind) and isinstance(value, float | Decimal) and value != value // 1:
        raise ValueError(f"{value!r} is not an integer")
    if types.is_decimal(kind) and isinstance(value, float):
        return Decimal(repr(float(value)))  # its digits; one too many is refused
    if types.is_float32(kind) and not isinf(float(value)) and abs(float(value)) > 3.4028235677973366e38:
        raise OverflowError(f"{value!r} does not fit a 32-bit float")
    return value
