"""User processors as operators. KIP-28's `Processor`, KIP-820's `FixedKeyProcessor`."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from kstreams_repl.operators.base import Operator


@dataclass(slots=True)
class ProcessorOperator(Operator):
    """A fresh `supplier()` per task: `init(context)` at build, `process(record)` per record, `close()` at the end.

    Attributes:
        supplier: () -> Processor; a new object on each call.
    """

    supplier: Callable[[], Any]


@dataclass(slots=True)
class FixedKeyProcessorOperator(Operator):
    """As `ProcessorOperator` for a FixedKeyProcessor: the record it forwards keeps its key.

    Attributes:
        supplier: () -> FixedKeyProcessor; a new object on each call.
    """

    supplier: Callable[[], Any]
