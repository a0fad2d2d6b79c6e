"""Send each record to the first child whose predicate holds. Kafka Streams' `KStreamBranch`."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from kstreams_repl.operators.base import Operator


@dataclass(slots=True)
class StreamBranch(Operator):
    """Forward to `child_names[i]` alone for the first predicate i that holds.

    When none holds the record goes to `child_names[len(predicates)]` if there is such a default branch, else nowhere (not counted
    as dropped).

    Attributes:
        predicates: (key, value) -> truth value, tried in order.
        child_names: names of the branch nodes: one per predicate, and one more when there is a default branch.
    """

    predicates: list[Callable[[Any, Any], Any]]
    child_names: list[str]
