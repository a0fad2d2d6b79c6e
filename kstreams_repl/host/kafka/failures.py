"""Translation of Kafka's errors to this project's: what happened, to which topic or broker, and what to do.

`kafka_errors` wraps client calls; `translate` maps one error. The client's error is always kept as the cause.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager

from confluent_kafka import KafkaError, KafkaException

from kstreams_repl.system.errors import (
    AuthenticationError,
    AuthorizationError,
    BrokerUnavailableError,
    ConfigError,
    InvalidNameError,
    KStreamsError,
    ProducerFencedError,
    ProductionError,
    UnknownTopicError,
    did_you_mean,
)

_UNREACHABLE = {
    KafkaError._TRANSPORT,
    KafkaError._ALL_BROKERS_DOWN,
    KafkaError._TIMED_OUT,
    KafkaError._RESOLVE,
    KafkaError._WAIT_COORD,
    KafkaError.REQUEST_TIMED_OUT,
    KafkaError.BROKER_NOT_AVAILABLE,
    KafkaError.NETWORK_EXCEPTION,
}
_NOT_READY = {
    KafkaError.COORDINATOR_LOAD_IN_PROGRESS,
    KafkaError.COORDINATOR_NOT_AVAILABLE,
    KafkaError.NOT_COORDINATOR,
    KafkaError.LEADER_NOT_AVAILABLE,
    KafkaError.NOT_LEADER_FOR_PARTITION,
    KafkaError.UNKNOWN_LEADER_EPOCH,
    KafkaError.FENCED_LEADER_EPOCH,
    KafkaError.OFFSET_NOT_AVAILABLE,
    KafkaError.UNSTABLE_OFFSET_COMMIT,
}
_NOT_AUTHENTICATED = {
    KafkaError._AUTHENTICATION,
    KafkaError._SSL,
    KafkaError.SASL_AUTHENTICATION_FAILED,
    KafkaError.UNSUPPORTED_SASL_MECHANISM,
    KafkaError.ILLEGAL_SASL_STATE,
}
_TLS_ALERT = "SSL alert"
"""What a connection that failed for a missing or unknown certificate says; its code is that of a broken connection."""
_NOT_AUTHORIZED = {
    KafkaError.CLUSTER_AUTHORIZATION_FAILED: "the cluster",
    KafkaError.TOPIC_AUTHORIZATION_FAILED: "a topic",
    KafkaError.GROUP_AUTHORIZATION_FAILED: "a consumer group",
    KafkaError.TRANSACTIONAL_ID_AUTHORIZATION_FAILED: "a transactional id",
    KafkaError.DELEGATION_TOKEN_AUTHORIZATION_FAILED: "a delegation token",
}
_NO_TOPIC = {KafkaError.UNKNOWN_TOPIC_OR_PART, KafkaError._UNKNOWN_TOPIC, KafkaError._UNKNOWN_PARTITION, KafkaError.UNKNOWN_TOPIC_ID}
_FENCED = {KafkaError._FENCED, KafkaError.INVALID_PRODUCER_EPOCH, KafkaError.PRODUCER_FENCED, KafkaError.TRANSACTION_COORDINATOR_FENCED}
_TOO_LARGE = {KafkaError.MSG_SIZE_TOO_LARGE, KafkaError.RECORD_LIST_TOO_LARGE}


def error_of(error: KafkaException | KafkaError) -> KafkaError | None:
    """Return the `KafkaError` of an exception, or None if it carries none."""
    if isinstance(error, KafkaError):
        return error
    inside = error.args[0] if error.args else None
    return inside if isinstance(inside, KafkaError) else None


def is_unreachable(error: KafkaException | KafkaError) -> bool:
    """Return whether no broker answered or was ready to answer (rather than refused)."""
    inside = error_of(error)
    return inside is not None and inside.code() in _UNREACHABLE | _NOT_READY


def is_refused_login(error: KafkaError) -> bool:
    """Return whether the broker does not accept the client's credentials or certificate."""
    return error.code() in _NOT_AUTHENTICATED or _TLS_ALERT in error.str()


def is_unknown_topic(error: KafkaException | KafkaError) -> bool:
    inside = error_of(error)
    return inside is not None and inside.code() in _NO_TOPIC


def is_fenced(error: KafkaException | KafkaError) -> bool:
    """Return whether a newer producer uses the transactional id. The client may report a *fatal* error that says so only in its text."""
    inside = error_of(error)
    if inside is None:
        return False
    if inside.code() in _FENCED:
        return True
    text = inside.str().lower()
    return inside.code() == KafkaError._FATAL and ("fenced" in text or "producer epoch" in text)


def translate(
    error: KafkaException | KafkaError,
    doing: str,
    *,
    bootstrap_servers: str | None = None,
    topic: str | None = None,
    known_topics: Iterable[str] = (),
    reason: str | None = None,
) -> KStreamsError:
    """Return the typed error for a client's error; raise it ``from`` the original.

    Args:
        doing: the failed operation as a participle: ``"listing topics"``.
        reason: the last error of the client's background threads (for example a refused connection), which ``error`` does not contain.
    """
    inside = error_of(error)
    code = inside.code() if inside is not None else None
    text = inside.str() if inside is not None else str(error)
    if is_fenced(error):
        return ProducerFencedError(f"{doing}: a newer producer took over the transactional id ({text})")
    if inside is not None and is_refused_login(inside) or _TLS_ALERT in (reason or ""):
        why = text if code in _NOT_AUTHENTICATED else reason or text
        return AuthenticationError(
            f"{doing}: the broker at {bootstrap_servers} did not accept this client: {why}",
            hint="check security.protocol, sasl.* and ssl.* in the client settings",
            bootstrap_servers=bootstrap_servers,
        )
    if code in _NOT_AUTHORIZED:
        on = f"topic {topic}" if topic is not None and code == KafkaError.TOPIC_AUTHORIZATION_FAILED else _NOT_AUTHORIZED[code]
        return AuthorizationError(
            f"{doing}: the user has no right to do this on {on}: {text}",
            hint="docs/tasks/cluster.md lists the rights (ACLs) that a session and an application need",
            bootstrap_servers=bootstrap_servers,
            topic=topic,
        )
    if code in _UNREACHABLE:
        why = f" ({reason})" if reason else ""
        return BrokerUnavailableError(
            f"{doing}: no broker answered at {bootstrap_servers}{why}",
            hint="check the address and that the broker is running; connect() without an address starts an embedded broker",
            bootstrap_servers=bootstrap_servers,
        )
    if code in _NOT_READY:
        return BrokerUnavailableError(
            f"{doing}: the responsible broker at {bootstrap_servers} is not ready: {text}",
            hint="a coordinator or partition leader is moving or loading; retry, and if it persists check that all brokers are running",
            bootstrap_servers=bootstrap_servers,
            topic=topic,
        )
    if code in _NO_TOPIC:
        return unknown_topic(topic, known_topics)
    if code == KafkaError.TOPIC_EXCEPTION:
        return InvalidNameError(
            f"{doing}: Kafka rejected the topic name {topic!r}: {text}", hint="use letters, digits, '.', '_' and '-'", topic=topic
        )
    if code == KafkaError.INVALID_TRANSACTION_TIMEOUT:
        return ConfigError(
            f"{doing}: transaction.timeout.ms is higher than the broker allows: {text}",
            hint="lower it (default: 10,000), or raise transaction.max.timeout.ms of the broker",
            key="transaction.timeout.ms",
        )
    if code in _TOO_LARGE:
        return ProductionError(
            f"{doing}: a record is larger than the client or the topic allows: {text}",
            hint="raise message.max.bytes of the client and max.message.bytes of the topic",
            topic=topic,
        )
    return KStreamsError(f"{doing}: {text}", topic=topic, bootstrap_servers=bootstrap_servers)


def unknown_topic(topic: str | None, known_topics: Iterable[str]) -> UnknownTopicError:
    """Return the error for a topic that does not exist, with the most similar existing name as the hint."""
    known = sorted(known_topics)
    hint = did_you_mean(topic or "", known)
    if hint is None:
        shown = ", ".join(known[:8]) + (", …" if len(known) > 8 else "")
        hint = f"existing topics: {shown}" if known else "the broker has no topics yet; create it first"
    return UnknownTopicError(f"there is no topic {topic!r} on the broker", hint=hint, topic=topic)


@contextmanager
def kafka_errors(doing: str, *, topic: str | None = None) -> Iterator[None]:
    """Translate client errors raised inside the block."""
    try:
        yield
    except KafkaException as error:
        raise translate(error, doing, topic=topic) from error
