"""Records that the producer or the broker rejects: from a client's error to the decision of the production exception handler.

The handler of the site (`engine.runtime.nodes.collector.Site`) decides on a record that the broker rejects, but only in a *careful*
instance, where every record has a delivery report; see `host.instance.failures.rejected_records`. A record that `produce` itself rejects is
decided at once.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

from kstreams_repl.engine.runtime.nodes.collector import Site
from kstreams_repl.engine.runtime.nodes.handlers import ErrorContext, Response
from kstreams_repl.host.instance.failures.rejected_records import OutputRejectedError, RejectedRecords
from kstreams_repl.host.kafka.delivery_errors import describe_delivery, is_consequence, needs_abort, send_errors, serve
from kstreams_repl.system.errors import KStreamsError, OutputRetryError, ProductionError, StreamsProcessingError
from kstreams_repl.system.types import Headers

if TYPE_CHECKING:
    from kstreams_repl.host.kafka.clients import Message, Producer

_FULL_SECONDS = 60.0
_ANY_PARTITION = -1


class ProductionErrors:
    """The production errors of one collector.

    Args:
        transactional: whether an error aborts the open transaction (exactly once).
        partitions: partition counts known so far, by topic.

    Attributes:
        dropped: records left out, as their handlers decided.
    """

    def __init__(self, producer: Producer, rejected: RejectedRecords, partitions: Mapping[str, int], *, transactional: bool) -> None:
        self._producer = producer
        self._partitions = partitions
        self._transactional = transactional
        self.rejected = rejected
        self.dropped = 0
        self._failed: KStreamsError | None = None
        """Raised by the next `check`."""

    def check(self) -> None:
        """Raise the first delivery error met so far."""
        if self._failed is not None:
            failed, self._failed = self._failed, None
            raise failed

    def delivery_failed(self, error: object, message: Message) -> None:
        """Handle an undelivered record, as the producer's callback; the source record it was made from is not known here."""
        if error is None or self._failed is not None:
            return
        found = describe_delivery(error, str(message.topic()))
        if isinstance(found, ProductionError):
            found = OutputRejectedError(found.message, hint=found.hint, topic=message.topic())
        self._failed = found

    def decide(self, error: object, topic: str, site: Site | None, context: ErrorContext | None, record: bytes) -> None:
        """Handle the delivery error of a record in a careful instance."""
        found = describe_delivery(error, topic)
        if is_consequence(error) or (self._failed is not None and not isinstance(self._failed, OutputRejectedError)):
            self._failed = self._failed or OutputRejectedError(found.message, hint=found.hint, topic=topic)
            return
        if not isinstance(found, ProductionError) or site is None or context is None:
            self._failed = _without_site(found, topic)
            return
        try:
            response = site.decide(context, found)
        except Exception as raised:
            self._failed = _handler_raised(raised, found)
            return
        if response is Response.CONTINUE and not self._transactional:  # no other record is affected
            self.give_up(site, context, found)
        elif response is Response.CONTINUE:
            self.rejected.note(record, found)
            self._failed = OutputRejectedError(found.message, hint=found.hint, topic=topic)
        else:
            self._failed = _answered(response, found, context)

    def give_up(self, site: Site, context: ErrorContext, error: KStreamsError) -> None:
        """Leave out a record, as the handler of its site decided."""
        self.dropped += 1
        site.give_up(context, error)

    def produce_failed(
        self,
        error: Exception,
        topic: str,
        site: Site | None,
        key: bytes | None,
        value: bytes | None,
        timestamp: int,
        headers: Headers,
        partition: int | None,
        on_delivery: Callable[..., object] | None = None,
    ) -> None:
        """Handle an error that `produce` raised: wait for room when the buffer is full, else call the handler."""
        deadline = time.monotonic() + _FULL_SECONDS
        while isinstance(error, BufferError):
            if time.monotonic() > deadline:
                raise ProductionError(
                    f"the producer's buffer was full for {_FULL_SECONDS:.0f} s: the broker acknowledges no records of topic {topic}",
                    hint="check the broker's log and the connection to it",
                    topic=topic,
                ) from error
            serve(self._producer, 0.05)
            try:
                where = _ANY_PARTITION if partition is None else partition
                self._producer.produce(topic, value, key, where, on_delivery, None, timestamp or 1, headers or None)
                return
            except Exception as again:
                error = again
        if self._transactional and needs_abort(error):
            serve(self._producer, 0)
            self.check()
            raise OutputRejectedError(
                f"the transaction accepts no record for topic {topic}, because an earlier record was rejected", topic=topic
            ) from error
        found = send_errors(error, topic, self._partitions.get(topic))
        if not isinstance(found, ProductionError) or site is None:
            raise _without_site(found, topic) from error
        context = site.context()
        response = site.decide(context, found)
        if response is not Response.CONTINUE:
            raise _answered(response, found, context) from error
        self.give_up(site, context, found)


def _answered(response: Response, error: ProductionError, context: ErrorContext) -> KStreamsError:
    """Return the error for RETRY and FAIL, with the source record that the rejected record was made from."""
    kind = OutputRetryError if response is Response.RETRY else ProductionError
    where = f"\n  in node {context.node}, task {context.task}"
    if context.topic is not None:
        where += f", from the record at {context.topic}-{context.partition} offset {context.offset}"
    fields = {"node": context.node, "task": context.task, "topic": context.topic, "partition": context.partition}
    return kind(error.message + where, hint=error.hint, **fields, offset=context.offset, sink_topic=error.topic)


def _without_site(error: KStreamsError, topic: str) -> KStreamsError:
    """Return the error for a record without a site. No handler is called: a changelog must match its store, and a dead letter has
    no further destination.
    """
    if not isinstance(error, ProductionError):
        return error
    hint = f"{error.hint or 'check the log of the broker'}; records of changelogs and dead letters cannot be skipped by a handler"
    return ProductionError(error.message, hint=hint, topic=topic)


def _handler_raised(raised: Exception, error: KStreamsError) -> KStreamsError:
    failed = ProductionError(
        raised.message
        if isinstance(raised, StreamsProcessingError)  # it names the handler and its record
        else f"the production exception handler raised {type(raised).__name__}: {raised}, while handling: {error.message}",
        hint="let the handler return a Response instead of raising",
        topic=error.topic,
    )
    failed.__cause__ = raised
    return failed
