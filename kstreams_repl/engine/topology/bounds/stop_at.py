"""Where a bounded run stops: the values of ``autostop.at`` (KIP-95, which has only ``eol``).

| text | a partition stops |
|---|---|
| `eol` | at its end when the run begins |
| `2013-03-01`, `2013-03-01T06:00Z`, ms | at its first record with that time or a later one |
| `records:1000` | that many offsets after its committed offset |
| `{"flights": {"0": 120}}` | at these offsets; partitions that are not named do not move |

In each case not after its end when the run begins.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, date, datetime
from typing import Any

END_OF_LOG = "eol"
_RECORDS = "records:"


@dataclass(frozen=True, slots=True)
class StopAt:
    """The parsed value; with none of the three a partition stops at its end.

    Attributes:
        time_ms: stop at the first record with this time or a later one.
        records: stop so many offsets after the committed one.
        offsets: stop at these offsets, by topic and partition.

    Example:
        >>> StopAt.parse("records:1000").records
        1000
        >>> StopAt.parse("1970-01-02").time_ms
        86400000
        >>> StopAt.parse('{"flights": {"0": 120}}').offsets
        {'flights': {0: 120}}
    """

    time_ms: int | None = None
    records: int | None = None
    offsets: Mapping[str, Mapping[int, int]] | None = field(default=None)

    @staticmethod
    def parse(text: str) -> StopAt:
        """Return the parsed value.

        Raises:
            ValueError: the text is none of the four.
        """
        if text == END_OF_LOG:
            return StopAt()
        if text.startswith(_RECORDS):
            number = int(text.removeprefix(_RECORDS).replace("_", ""))
            if number < 1:
                raise ValueError("expected records:N with N >= 1")
            return StopAt(records=number)
        if text.startswith("{"):
            plain = json.loads(text)
            by_topic = plain.items()
            return StopAt(offsets={str(topic): {int(number): _offset(offset) for number, offset in of.items()} for topic, of in by_topic})
        if text.lstrip("-").isdecimal():
            return StopAt(time_ms=int(text))
        moment = datetime.fromisoformat(text)
        return StopAt(time_ms=round((moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp() * 1000))


def checked(value: object) -> str | None:
    """Return a value as text that `StopAt.parse` takes: a mapping as JSON, a date as ISO text.

    Raises:
        ValueError: it is none of the four.

    Example:
        >>> checked({"flights": {0: 120}})
        '{"flights": {"0": 120}}'
    """
    if value is None:
        return None
    if isinstance(value, date):
        value = value.isoformat()
    text = json.dumps(value) if isinstance(value, Mapping) else str(value)
    try:
        StopAt.parse(text)
    except (ValueError, TypeError, AttributeError) as error:
        raise ValueError("expected eol, a time, records:N or {topic: {partition: offset}}") from error
    return text


def _offset(value: Any) -> int:
    if isinstance(value, bool) or int(value) < 0:
        raise ValueError("expected an offset >= 0")
    return int(value)
