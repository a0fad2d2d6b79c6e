"""Look at each record, with or without passing it on. Kafka Streams' `KStreamPeek`, `KStreamPrint`."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from kstreams_repl.operators.base import Operator


@dataclass(slots=True)
class StreamPeek(Operator):
    """Call `action(key, value)`, then forward the record when `forward_down`.

    Attributes:
        action: (key, value) -> ignored.
        forward_down: True for `peek`; False for `foreach`.
    """

    action: Callable[[Any, Any], Any]
    forward_down: bool = True


@dataclass(slots=True)
class StreamPrint(Operator):
    """Write one line per record and forward nothing.

    Attributes:
        label: printed in brackets before each record: ``[label]: key, value``.
        mapper: (key, value) -> text; None prints ``key, value``.
        path: file to append to; None is standard output.
    """

    label: str
    mapper: Callable[[Any, Any], str] | None = None
    path: str | None = None
