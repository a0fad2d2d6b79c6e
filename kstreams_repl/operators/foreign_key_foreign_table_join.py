"""Foreign side: a foreign row changed. Kafka Streams' `ForeignTableJoinProcessorSupplier`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from kstreams_repl.operators.base import Operator


@dataclass(slots=True)
class ForeignTableJoin(Operator):
    """For a change of the right table forward a response to every subscriber of its key, in store order (prefix scan).

    Attributes:
        store: name of the subscription store.
        foreign_key_serde: of the right table's key; None = the application's default key serde.
        versioned: the right table is versioned: changes that are not the latest are left out.
    """

    store: str
    foreign_key_serde: Any = None
    versioned: bool = False
