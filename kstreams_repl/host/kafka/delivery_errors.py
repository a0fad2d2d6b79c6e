"""Delivery failures of records as `ProductionError`, classified as Kafka Streams does.

*Retriable*: Kafka's `RetriableException`s; the broker may accept the same record later. *Final*: Kafka Streams stops without calling the
production exception handler (missing authorization, invalid topic name). All other errors reject only this record. A *consequence* says
nothing about its own record: another record of the same batch or transaction was rejected.
"""

from __future__ import annotations

from confluent_kafka import KafkaError, KafkaException, Producer

from kstreams_repl.host.kafka.failures import error_of, is_fenced, is_unreachable, translate
from kstreams_repl.system.errors import KStreamsError, OutputRetryError, ProducerFencedError, ProductionError

ClientError = KafkaException
"""The exception type that clients raise."""

_RETRIABLE = frozenset(
    {
        KafkaError._MSG_TIMED_OUT,
        KafkaError._TIMED_OUT,
        KafkaError._TIMED_OUT_QUEUE,
        KafkaError._TRANSPORT,
        KafkaError._ALL_BROKERS_DOWN,
        KafkaError._UNKNOWN_TOPIC,
        KafkaError._UNKNOWN_PARTITION,
        KafkaError.LEADER_NOT_AVAILABLE,
        KafkaError.NOT_LEADER_FOR_PARTITION,
        KafkaError.UNKNOWN_TOPIC_OR_PART,
        KafkaError.UNKNOWN_TOPIC_ID,
        KafkaError.REQUEST_TIMED_OUT,
        KafkaError.NETWORK_EXCEPTION,
        KafkaError.NOT_ENOUGH_REPLICAS,
        KafkaError.NOT_ENOUGH_REPLICAS_AFTER_APPEND,
        KafkaError.KAFKA_STORAGE_ERROR,
        KafkaError.INVALID_MSG,
    }
)
_FINAL = frozenset(
    {
        KafkaError._AUTHENTICATION,
        KafkaError.SASL_AUTHENTICATION_FAILED,
        KafkaError.CLUSTER_AUTHORIZATION_FAILED,
        KafkaError.TOPIC_AUTHORIZATION_FAILED,
        KafkaError.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
        KafkaError.SECURITY_DISABLED,
        KafkaError.TOPIC_EXCEPTION,
        KafkaError.UNKNOWN,
    }
)
_CONSEQUENCES = frozenset(
    {
        KafkaError._PURGE_QUEUE,
        KafkaError._PURGE_INFLIGHT,
        KafkaError._STATE,
        KafkaError._INVALID_DIFFERENT_RECORD,
        KafkaError._DESTROY,
        KafkaError.OUT_OF_ORDER_SEQUENCE_NUMBER,
        KafkaError.UNKNOWN_PRODUCER_ID,
    }
)
_ABORTED = frozenset({KafkaError._STATE, KafkaError._PURGE_QUEUE, KafkaError._PURGE_INFLIGHT})


def describe_delivery(error: object, topic: str) -> KStreamsError:
    """Return the typed error for a failed delivery report."""
    return _end_of_producer(error, topic) or _production_error(error, f"sending to {topic}", topic)


def send_errors(error: Exception, topic: str, partitions: int | None) -> KStreamsError:
    """Return the typed error for a record that the client did not accept."""
    if isinstance(error, KStreamsError):
        return error
    inside = error_of(error) if isinstance(error, KafkaException) else None
    if inside is not None:
        return _end_of_producer(inside, topic) or _production_error(inside, f"sending to {topic} ({partitions} partitions)", topic)
    return ProductionError(
        f"a record for {topic} cannot be sent: {type(error).__name__}: {error}",
        hint="keys, values and header values must be bytes, partitions and timestamps integers",
        topic=topic,
        retriable=False,
        final=False,
    )


def is_consequence(error: KafkaError) -> bool:
    """Return whether the error was caused by another record of the same batch or transaction."""
    return error.code() in _CONSEQUENCES


def needs_abort(error: Exception) -> bool:
    """Return whether the client accepts no more records because an earlier one of the open transaction failed."""
    inside = error_of(error) if isinstance(error, KafkaException) else None
    return inside is not None and (inside.txn_requires_abort() or inside.code() in _ABORTED)


def is_refusal(error: KafkaError) -> bool:
    """Return whether a transaction must be aborted because the broker rejected one of its records (rather than being unreachable)."""
    passing = _RETRIABLE | _CONSEQUENCES
    return error.txn_requires_abort() and error.code() not in passing and not is_unreachable(error)


def serve(producer: Producer, seconds: float) -> None:
    """Serve a producer's delivery reports in the middle of user code, without attributing its errors to that code.

    Raises:
        KStreamsError: the client raised an error.
    """
    try:
        producer.poll(seconds)
    except KafkaException as error:
        raise end_of_client(error) or translate(error, "sending records") from error


def end_of_client(error: KafkaException) -> KStreamsError | None:
    """Return the error of a client call that concerns something else (`poll`, `flush`): the first call after a fatal error raises it, and
    ``error_cb`` does not receive it. None for any other error.
    """
    inside = error_of(error)
    return None if inside is None else _end_of_producer(inside, None)


def _end_of_producer(error: KafkaError, topic: str | None) -> KStreamsError | None:
    """Return the error for a producer that accepts and sends no records any more, which no single record caused. The client does not
    always give the reason: a producer that was fenced, or whose transaction timed out, only reports a fatal error for the next record.
    """
    doing = "sending records" if topic is None else f"sending to {topic}"
    if is_fenced(error):
        return ProducerFencedError(f"{doing}: a newer producer took over")
    if error.fatal() or error.code() == KafkaError._FATAL:
        return OutputRetryError(f"{doing}: the producer failed fatally ({error.str()})", topic=topic)
    return None


def _production_error(error: KafkaError, doing: str, topic: str) -> ProductionError:
    typed = translate(error, doing, topic=topic)
    return ProductionError(
        typed.message, hint=typed.hint, topic=topic, retriable=error.code() in _RETRIABLE, final=error.code() in _FINAL
    )
