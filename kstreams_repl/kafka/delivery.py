"""What went wrong with a record on its way out, as a `ProductionError`."""

from __future__ import annotations

from typing import Any

from confluent_kafka import KafkaException

from kstreams_repl.errors import KStreamsError, ProducerFencedError, ProductionError
from kstreams_repl.kafka.failures import error_of, is_fenced, translate


def describe_delivery(error: Any, message: Any) -> KStreamsError:
    """The typed error for a failed delivery report."""
    topic = message.topic()
    if is_fenced(error):
        return ProducerFencedError(f"sending to {topic}: a newer owner has taken over")
    typed = translate(error, f"sending to {topic}", topic=topic)
    return typed if isinstance(typed, ProductionError) else ProductionError(typed.message, hint=typed.hint, topic=topic)


def send_errors(error: Exception, topic: str, partitions: int | None) -> KStreamsError:
    """The typed error for a record that the client did not take."""
    if isinstance(error, KStreamsError):
        return error
    if isinstance(error, KafkaException):
        if is_fenced(error):
            return ProducerFencedError(f"sending to {topic}: a newer owner has taken over")
        inside = error_of(error)
        typed = translate(error, f"sending to {topic}", topic=topic)
        if isinstance(typed, ProductionError):
            return typed
        text = inside.str() if inside is not None else str(error)
        return ProductionError(f"sending to {topic} ({partitions} partitions): {text}", hint=typed.hint, topic=topic)
    return ProductionError(
        f"a record for {topic} cannot be sent: {type(error).__name__}: {error}",
        hint="keys, values and header values must be bytes, partitions and timestamps whole numbers",
        topic=topic,
    )
