"""What one slot remembers of output records that the broker refused, across take-overs.

A refused record spoils its whole transaction: the client takes no further record until it is aborted, and does not say which one it
was. So the open commit is taken back and its input processed again *carefully*: every record travels in a batch of its own and
reports back with the source record it came from. The production exception handler is asked about the one that fails; what it gives up
is remembered by its bytes and left out when the input is processed once more, its source record going to the dead-letter topic in
that commit. Nothing is left out that the broker did not refuse by itself, and nothing is written twice under exactly once.

Actors: the collector (`careful`, `note`, `find`), the runner (`goes_on`, `committed`, `bound`, `calm`).
"""

from __future__ import annotations

import hashlib
import logging
import time
from typing import Any

from kstreams_repl.errors import KStreamsError, ProductionError
from kstreams_repl.instance.plan import ApplicationPlan
from kstreams_repl.kafka.admin import Admin
from kstreams_repl.topology.nodes import SinkNode
from kstreams_repl.types import Headers

_LOG = logging.getLogger("kstreams_repl.instance")
_CAREFUL_PRODUCER = {"batch_num_messages": 1, "linger_ms": 0}
_BATCH_BYTES = 1_000_000
_CALM_SECONDS = 10.0
_MOST_ROUNDS = 200
"""Of taking the same commit back; a function that gives other bytes each time would go on for ever."""


class OutputRefusedError(KStreamsError):
    """The open commit has a record that the broker refused: its input is to be processed again, carefully, without that record."""


class Refusals:
    """The memory of one slot.

    Attributes:
        careful: each record in a batch of its own, with a report; instances opened from now on.
    """

    def __init__(self) -> None:
        self.careful = False
        self._given_up: dict[bytes, KStreamsError] = {}
        self._rounds = 0
        self._calm_at = 0.0

    # ---- the collector's side

    def note(self, record: bytes, error: KStreamsError) -> None:
        """Leave this record out from now on."""
        self._given_up[record] = error

    def find(self, record: bytes) -> KStreamsError | None:
        """Why the record is left out; None for all others."""
        return self._given_up.get(record)

    # ---- the runner's side

    def goes_on(self, error: KStreamsError) -> bool:
        """Whether the slot is to process its open commit again, carefully.

        Raises:
            ProductionError: it has done so too often.
        """
        if not isinstance(error, OutputRefusedError) and not error.fields.get("refused"):
            return False
        self.careful = True
        self._calm_at = time.monotonic() + _CALM_SECONDS
        self._rounds += 1
        if self._rounds > _MOST_ROUNDS:
            raise ProductionError(
                f"the broker refused a record each of {_MOST_ROUNDS} times that the same commit was processed: {error.message}",
                hint="does a function give other bytes each time (a clock, a random number)? Then no record can be left out for sure: "
                "make the topic's limits fit, or drop such records before they are sent",
                topic=error.fields.get("topic"),
            ) from error
        return True

    def committed(self) -> None:
        """A commit went through."""
        self._rounds = 0

    def bound(self, until: float) -> float:
        """How long to run: a careful instance ends early, to be opened again as a usual one."""
        return min(until, self._calm_at) if self.careful else until

    def calm(self) -> bool:
        """Whether the careful stretch is over; forgets what was left out."""
        if not self.careful or time.monotonic() < self._calm_at:
            return False
        self.careful = False
        self._given_up.clear()
        return True


def producer_settings(plan: ApplicationPlan, admin: Admin, refusals: Refusals) -> dict[str, Any]:
    """What the slot's producer needs so that a refusal is that of one record.

    A broker refuses a whole batch that is larger than its topic allows, and the client does not divide it: batches are kept within the
    smallest limit of the topics that it writes: sinks', and the application's own, which settings (``topic.max.message.bytes``) may limit.
    """
    if refusals.careful:
        return dict(_CAREFUL_PRODUCER)
    named = set(plan.changelogs())
    for spec in (spec for tasks in plan.assignment for spec in tasks):
        sinks = {node.topic for node in spec.subtopology.nodes if isinstance(node, SinkNode) and node.topic is not None}
        named |= {f"{plan.application_id}-{topic}" if topic in spec.internal_topics else topic for topic in sinks}
    topics = named & set(plan.partition_counts)
    try:
        limits = [int(found.get("max.message.bytes", _BATCH_BYTES)) for found in admin.topic_configs(topics).values()]
    except KStreamsError as error:  # not everybody may read them; a batch that is too large then costs a careful pass
        _LOG.info("the limits of the topics it writes are not known: %s", error)
        return {}
    smallest = min([_BATCH_BYTES, *limits])
    return {} if smallest == _BATCH_BYTES else {"batch_size": max(1, smallest)}


def identity(
    topic: str, key: bytes | None, value: bytes | None, timestamp: int, headers: Headers | None, partition: int | None
) -> bytes:
    """16 bytes that stand for a record."""
    parts = hashlib.blake2b(digest_size=16)
    fields: list[bytes | None] = [topic.encode(), key, value, b"%d" % timestamp, None if partition is None else b"%d" % partition]
    for name, text in headers or ():
        fields += (name.encode(), text)
    for part in fields:
        parts.update(b"-" if part is None else b"%d:" % len(part))
        parts.update(part or b"")
    return parts.digest()
