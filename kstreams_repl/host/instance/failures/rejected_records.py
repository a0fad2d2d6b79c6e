"""What one slot remembers, across take-overs, of output records that the broker rejected.

A rejected record fails its whole transaction: the client takes no further record until the abort, and does not report which
record it was. So the open commit is aborted and its input processed again *carefully*: every record is sent in a batch of its own
and reports back with its source record. The production exception handler decides about the record that fails; if the handler
drops it, its bytes are remembered and it is left out when the input is processed once more; its source record goes to the
dead-letter topic in that commit. Only records that the broker rejected on their own are left out, and nothing is written twice
under exactly once.

Actors: the collector (`careful`, `note`, `find`), the instance runner (`goes_on`, `committed`, `bound`, `calm`).
"""

from __future__ import annotations

import hashlib
import logging

from kstreams_repl.engine.topology.nodes import SinkNode
from kstreams_repl.host.instance.application_plan import ApplicationPlan
from kstreams_repl.host.instance.failures.careful_period import CarefulPeriod
from kstreams_repl.host.kafka.admin import Admin
from kstreams_repl.host.kafka.transactional import TransactionDoubtError
from kstreams_repl.system.errors import KStreamsError, ProductionError
from kstreams_repl.system.types import Headers

_LOG = logging.getLogger("kstreams_repl.host.instance")
_CAREFUL_PRODUCER = {"batch_num_messages": 1, "linger_ms": 0}
_BATCH_BYTES = 1_000_000
_CALM_SECONDS = 10.0
_MOST_ROUNDS = 200
"""Maximum attempts of one commit; a function that returns different bytes each time would repeat it for ever."""


class OutputRejectedError(KStreamsError):
    """The broker rejected a record of the open commit: process its input again, carefully, without that record."""


class RejectedRecords(CarefulPeriod):
    """The rejected records of one slot.

    Attributes:
        careful: instances opened from now on send each record in a batch of its own, with a delivery report.
    """

    def __init__(self) -> None:
        super().__init__()
        self._given_up: dict[bytes, KStreamsError] = {}
        self._rounds = 0

    # ---- the collector's side

    def note(self, record: bytes, error: KStreamsError) -> None:
        """Leave this record out from now on."""
        self._given_up[record] = error

    def find(self, record: bytes) -> KStreamsError | None:
        """Return why the record is left out; None for all others."""
        return self._given_up.get(record)

    # ---- the runner's side

    def goes_on(self, error: KStreamsError) -> bool:
        """Return whether the slot must process its open commit again, carefully.

        Raises:
            ProductionError: it has done so too many times.
        """
        found = isinstance(error, ProductionError | TransactionDoubtError) and error.refused
        if not isinstance(error, OutputRejectedError) and not found:
            return False
        self.take_care(_CALM_SECONDS)
        self._rounds += 1
        if self._rounds > _MOST_ROUNDS:
            raise ProductionError(
                f"the broker rejected a record in each of {_MOST_ROUNDS} attempts to process the same commit: {error.message}",
                hint="a function that returns different bytes each time (a clock, a random number) makes rejected records impossible to "
                "identify: raise the topic's limits, or filter such records before they are sent",
                topic=error.topic,
            ) from error
        return True

    def committed(self) -> None:
        """Note that a commit succeeded."""
        self._rounds = 0

    def calm(self) -> bool:
        """Return whether the careful period is over; if so, drop the remembered records."""
        over = super().calm()
        if over:
            self._given_up.clear()
        return over


def producer_settings(plan: ApplicationPlan, admin: Admin, rejected: RejectedRecords) -> dict[str, object]:
    """Return the producer settings that make a rejection affect one record only.

    A broker rejects a whole batch that is larger than its topic allows, and the client does not split it. So batches stay within
    the smallest limit of the written topics: sinks, and the application's internal topics, which settings
    (``topic.max.message.bytes``) may limit.
    """
    if rejected.careful:
        return dict(_CAREFUL_PRODUCER)
    named = set(plan.changelogs())
    for spec in (spec for tasks in plan.assignment for spec in tasks):
        sinks = {node.topic for node in spec.subtopology.nodes if isinstance(node, SinkNode) and node.topic is not None}
        named |= {f"{plan.application_id}-{topic}" if topic in spec.internal_topics else topic for topic in sinks}
    topics = named & set(plan.partition_counts)
    try:
        limits = [int(found.get("max.message.bytes", _BATCH_BYTES)) for found in admin.topic_configs(topics).values()]
    except KStreamsError as error:  # reading them may be forbidden; a batch that is too large then costs a careful pass
        _LOG.info("reading the size limits of the output topics failed: %s", error)
        return {}
    smallest = min([_BATCH_BYTES, *limits])
    return {} if smallest == _BATCH_BYTES else {"batch_size": max(1, smallest)}


def identity(
    topic: str, key: bytes | None, value: bytes | None, timestamp: int, headers: Headers | None, partition: int | None
) -> bytes:
    """Return a 16-byte hash that identifies a record."""
    parts = hashlib.blake2b(digest_size=16)
    fields: list[bytes | None] = [topic.encode(), key, value, b"%d" % timestamp, None if partition is None else b"%d" % partition]
    for name, text in headers or ():
        fields += (name.encode(), text)
    for part in fields:
        parts.update(b"-" if part is None else b"%d:" % len(part))
        parts.update(part or b"")
    return parts.digest()
