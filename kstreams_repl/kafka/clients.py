"""Makes Kafka clients with the defaults that this project's guarantees and speed need, from one frozen `ClientSettings`.

The settings are the user's: whatever librdkafka knows (SASL, SSL, timeouts) passes through unchanged and wins over the defaults here,
with Kafka Streams' prefixes ``consumer.``, ``producer.`` and ``admin.`` for one kind of client only, and ``main.consumer.``,
``restore.consumer.`` and ``global.consumer.`` for the consumers of one role. What exactness rests on is refused (`_REFUSED`): automatic
commits, a silent offset reset, another partitioner than Java's, producers that are not idempotent. Passwords become `Secret` on the way in.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any, Final, Literal, get_args

from confluent_kafka import Consumer, KafkaError, KafkaException, Producer
from confluent_kafka.admin import AdminClient

from kstreams_repl.errors import ConfigError
from kstreams_repl.kafka.failures import error_of, translate
from kstreams_repl.kafka.secret import Secret

Isolation = Literal["read_committed", "read_uncommitted"]
Role = Literal["main", "restore", "global"]
"""What a consumer of an application reads: input, changelogs, global tables."""

CLIENT_LOGGER = logging.getLogger("kstreams_repl.kafka.client")
CLIENT_LOGGER.addHandler(logging.NullHandler())

REACH_SECONDS: Final = 5.0
_CONNECT_SECONDS: Final = 1.0
_LEAST_SECONDS: Final = 0.1

_CONSUMERS = ("consumer.", "main.consumer.", "restore.consumer.", "global.consumer.")
_PREFIXES = (*_CONSUMERS, "producer.", "admin.")
_SECRET_WORDS = ("password", "secret", "private", "jaas", "oauthbearer.config", "key.pem", "token")

_COMMON: Mapping[str, Any] = {
    "statistics.interval.ms": 0,
    "reconnect.backoff.ms": 50,
    "reconnect.backoff.max.ms": 1000,
    "log.connection.close": False,
    "socket.nagle.disable": True,
}
_CONSUMER: Mapping[str, Any] = {
    "fetch.queue.backoff.ms": 2,  # 1000 by default: a full queue would then stop the fetcher for a second
    "fetch.error.backoff.ms": 50,
    "fetch.wait.max.ms": 100,
    "queued.min.messages": 200_000,
    "queued.max.messages.kbytes": 64 * 1024,
    "fetch.message.max.bytes": 4 * 1024 * 1024,
    "enable.partition.eof": False,
}
_CONSUMER_FIXED: Mapping[str, Any] = {"enable.auto.commit": False, "enable.auto.offset.store": False, "auto.offset.reset": "error"}
_PRODUCER: Mapping[str, Any] = {
    "linger.ms": 10,
    "compression.type": "lz4",
    "batch.size": 1_000_000,
    "message.max.bytes": 1_048_530,  # with the client's 36 bytes beside key and value: those 1,048,494 that a Java producer takes
    "queue.buffering.max.messages": 1_000_000,
    "queue.buffering.max.kbytes": 256 * 1024,
}
_PRODUCER_FIXED: Mapping[str, Any] = {"partitioner": "murmur2_random", "enable.idempotence": True}
_WITH_STATE = "offsets are committed together with the state they belong to"
_APPLICATIONS = "it is a setting of the application: config={...} of a deploy"
_REFUSED: Mapping[str, tuple[str | None, str]] = {
    "group.id": (None, "the group of an application is its application.id"),
    "transactional.id": (None, "transactional ids are made of application.id and instance"),
    "enable.auto.commit": ("false", _WITH_STATE),
    "enable.auto.offset.store": ("false", _WITH_STATE),
    "enable.idempotence": ("true", "a producer that is not idempotent writes records twice or in another order"),
    "partitioner": ("murmur2_random", "keys are placed as Java places them; a sink can have a partitioner of its own"),
    "auto.offset.reset": (None, _APPLICATIONS),
    "max.poll.interval.ms": (None, _APPLICATIONS),
    "transaction.timeout.ms": (None, _APPLICATIONS),
}
"""Settings that every client here has in one way, or that are not the clients': the value that may be given, and why no other."""


def is_secret_name(name: str) -> bool:
    """Whether a client setting of that name holds something that must not be shown."""
    return any(word in name.lower() for word in _SECRET_WORDS)


@dataclass(frozen=True)
class ClientSettings:
    """Where the brokers are, and every other client setting; immutable, comparable, safe to show and to send to workers.

    Args:
        bootstrap_servers: ``host:port``, comma separated.
        properties: librdkafka's settings by name; ``consumer.``, ``producer.`` and ``admin.`` prefixes restrict one to a kind of client,
            ``main.consumer.``, ``restore.consumer.`` and ``global.consumer.`` to the consumers of one role, over what ``consumer.`` says.

    Raises:
        ConfigError: no address, an address in ``properties`` that contradicts it, or a setting that cannot be another one here.

    Example:
        >>> ClientSettings("broker:9093", {"security.protocol": "SASL_SSL", "sasl.password": "hunter2"})
        ClientSettings('broker:9093', {'security.protocol': 'SASL_SSL', 'sasl.password': ********})
    """

    bootstrap_servers: str
    properties: Mapping[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if not isinstance(self.bootstrap_servers, str) or not self.bootstrap_servers.strip():
            raise ConfigError("bootstrap.servers is empty", hint="give host:port of a broker")
        given = dict(self.properties)
        other = given.pop("bootstrap.servers", self.bootstrap_servers)
        if other != self.bootstrap_servers:
            raise ConfigError(f"bootstrap.servers is given twice: {self.bootstrap_servers!r} and {other!r}")
        for name, value in given.items():
            _refuse_fixed(name, value)
        sealed = {
            name: Secret(str(value)) if is_secret_name(name) and isinstance(value, str | int | float) else value
            for name, value in given.items()
        }
        object.__setattr__(self, "properties", MappingProxyType(sealed))

    def __repr__(self) -> str:
        shown = ", ".join(f"{name!r}: {value if isinstance(value, Secret) else repr(value)}" for name, value in self.properties.items())
        return f"ClientSettings({self.bootstrap_servers!r}, {{{shown}}})"

    def __hash__(self) -> int:
        return hash((self.bootstrap_servers, tuple(sorted((name, str(value)) for name, value in self.properties.items()))))

    def __reduce__(self) -> tuple[Any, ...]:
        return ClientSettings, (self.bootstrap_servers, dict(self.properties))

    def shown(self) -> dict[str, str]:
        """All settings as texts with secrets masked, for display."""
        return {"bootstrap.servers": self.bootstrap_servers, **{name: str(value) for name, value in self.properties.items()}}

    def revealed(self, kind: Literal["consumer", "producer", "admin"]) -> dict[str, Any]:
        """The settings that one kind of client gets, secrets in clear. Hand the result to a client and drop it."""
        return {**self.revealed_own(None), **self.revealed_own(kind), "bootstrap.servers": self.bootstrap_servers}

    @property
    def isolation(self) -> Isolation | None:
        """The ``isolation.level`` that is asked for of input; None: nothing is."""
        asked = (self.properties.get(f"{prefix}isolation.level") for prefix in ("main.consumer.", "consumer.", ""))
        return next((level for level in asked if level is not None), None)

    def revealed_own(self, kind: str | None) -> dict[str, Any]:
        """What is given with the prefix of a kind of client, secrets in clear; None: without one."""
        found: dict[str, Any] = {}
        for name, value in self.properties.items():
            prefix = next((prefix for prefix in _PREFIXES if name.startswith(prefix)), "")
            if prefix == ("" if kind is None else f"{kind}."):
                found[name.removeprefix(prefix)] = value.reveal() if isinstance(value, Secret) else value
        return found


class ClientEvents:
    """What a client's background threads reported, for the error of the call that suffers from it.

    Its `on_error` is the client's ``error_cb``. It keeps the last message, a refusal and how many there were; it never raises, since it
    runs inside polls. It does not hear of fatal errors: the client raises those from the call that would have told them.
    """

    def __init__(self) -> None:
        self.last: str | None = None
        self.refused: KafkaError | None = None
        self.troubles = 0
        self._logged_at = float("-inf")

    def on_error(self, error: KafkaError) -> None:
        code = error.code()
        self.troubles += 1
        if code in (KafkaError._AUTHENTICATION, KafkaError._SSL, KafkaError.SASL_AUTHENTICATION_FAILED):
            self.refused = error
        if code != KafkaError._ALL_BROKERS_DOWN or self.last is None:
            self.last = error.str()
        now = time.monotonic()
        if now - self._logged_at >= 60:
            self._logged_at = now
            CLIENT_LOGGER.warning("%s", error.str())


class _AtMostOnceAMinute(logging.Filter):
    """Lets the client library repeat itself once a minute per kind of message; a broker that is away would fill the log otherwise."""

    def __init__(self) -> None:
        super().__init__()
        self._seen: dict[str, float] = {}

    def filter(self, record: logging.LogRecord) -> bool:
        kind = str(record.msg)[:24]
        now = time.monotonic()
        if now - self._seen.get(kind, float("-inf")) < 60:
            return False
        self._seen[kind] = now
        return True


_LIBRARY_LOGGER = CLIENT_LOGGER.getChild("librdkafka")
_LIBRARY_LOGGER.addFilter(_AtMostOnceAMinute())


def make_consumer(
    settings: ClientSettings,
    *,
    group_id: str,
    isolation: Isolation = "read_committed",
    events: ClientEvents | None = None,
    role: Role | None = None,
    **overrides: Any,
) -> Consumer:
    """A consumer for `assign`: no automatic commits, an offset out of range is an error and never a reset.

    Args:
        group_id: whose committed offsets it reads and writes (Kafka Streams: the application id).
        role: of an application's own consumers; settings with its prefix go over all others. One that restores is told of ends.
        overrides: settings of this one consumer, with underscores for dots: ``enable_partition_eof=True``.
    """
    settings_of = {**_COMMON, **_CONSUMER, **settings.revealed("consumer"), **_dotted(overrides)}
    if role is not None:
        settings_of |= {**settings.revealed_own(f"{role}.consumer"), "bootstrap.servers": settings.bootstrap_servers}
        if role == "restore" or overrides.get("enable_partition_eof"):
            settings_of["enable.partition.eof"] = True
    settings_of |= {**_CONSUMER_FIXED, "group.id": group_id, "isolation.level": isolation}
    return _make(Consumer, settings_of, settings, events)


def make_producer(
    settings: ClientSettings,
    *,
    events: ClientEvents | None = None,
    on_delivery_error: Callable[[Any, Any], None] | None = None,
    **overrides: Any,
) -> Producer:
    """An idempotent producer that places keys as Java does.

    Args:
        on_delivery_error: called with (error, message) for each record that could not be delivered, inside `poll` and `flush`; successes
            make no callback, which keeps a million records a second cheap.
    """
    settings_of = {**_COMMON, **_PRODUCER, **settings.revealed("producer"), **_dotted(overrides), **_PRODUCER_FIXED}
    if on_delivery_error is not None:
        settings_of |= {"on_delivery": on_delivery_error, "delivery.report.only.error": True}
    return _make(Producer, settings_of, settings, events)


def make_transactional_producer(
    settings: ClientSettings,
    *,
    transactional_id: str,
    transaction_timeout_ms: int = 10_000,
    events: ClientEvents | None = None,
    **overrides: Any,
) -> Producer:
    """A producer for exactly once; the caller runs `take_transactional_id`, which fences older holders of the id.

    The timeout is Kafka Streams' 10 s: it is how long a zombie can hold back ``read_committed`` readers.
    """
    return make_producer(
        settings, events=events, **{**overrides, "transactional.id": transactional_id, "transaction.timeout.ms": transaction_timeout_ms}
    )


def take_transactional_id(producer: Producer, seconds: float) -> None:
    """`init_transactions`: fences whoever held the id before.

    A client that is not connected yet looks for the coordinator at once, finds no broker, and in one case of four waits half a second
    until its next look. So it is connected first, within the same time.

    Raises:
        KafkaException: as of `init_transactions`.
    """
    deadline = time.monotonic() + seconds
    with suppress(KafkaException):  # the call below says it better
        producer.list_topics(timeout=min(_CONNECT_SECONDS, seconds))
    producer.init_transactions(max(_LEAST_SECONDS, deadline - time.monotonic()))


def make_admin_client(settings: ClientSettings, *, events: ClientEvents | None = None) -> AdminClient:
    """The plain admin client; `admin.Admin` is the one to use."""
    return _make(AdminClient, {**_COMMON, **settings.revealed("admin")}, settings, events)


def ensure_reachable(settings: ClientSettings, *, seconds: float = REACH_SECONDS) -> None:
    """Returns when a broker answers, else raises within some ``seconds``; the clients themselves would retry for ever.

    Raises:
        BrokerUnavailableError: nobody answered or the credentials were refused; the message has the client's own reason.
    """
    events = ClientEvents()
    client = make_admin_client(settings, events=events)
    deadline = time.monotonic() + seconds
    while True:
        try:
            client.list_topics(timeout=min(1.0, seconds))
            return
        except KafkaException as error:
            client.poll(0)
            refused = events.refused
            if refused is not None or time.monotonic() >= deadline:
                raise translate(
                    refused or error_of(error) or error, "connecting", bootstrap_servers=settings.bootstrap_servers, reason=events.last
                ) from error


def _refuse_fixed(name: str, value: Any) -> None:
    prefix = next((prefix for prefix in _PREFIXES if name.startswith(prefix)), "")
    plain = name.removeprefix(prefix)
    if plain == "isolation.level" and (prefix not in ("", "consumer.", "main.consumer.") or value not in get_args(Isolation)):
        raise ConfigError(
            f"{name} = {value!r} cannot be had",
            hint="consumer.isolation.level is that of input: read_committed or, under at_least_once, read_uncommitted",
            key=name,
        )
    fixed = _REFUSED.get(plain)
    if fixed is None or prefix == "admin." or (fixed[0] is not None and str(value).lower() == fixed[0]):
        return
    only = "is none that clients here can be given" if fixed[0] is None else f"is always {fixed[0]} here"
    raise ConfigError(f"{name} {only}", hint=fixed[1], key=name)


def _dotted(overrides: Mapping[str, Any]) -> dict[str, Any]:
    return {name.replace("_", "."): value for name, value in overrides.items()}


def _make(kind: Callable[[dict[str, Any]], Any], properties: dict[str, Any], settings: ClientSettings, events: ClientEvents | None) -> Any:
    properties.setdefault("error_cb", (events or ClientEvents()).on_error)
    try:
        return kind({**properties, "logger": _LIBRARY_LOGGER})
    except (KafkaException, TypeError, ValueError) as error:
        inside = error_of(error) if isinstance(error, KafkaException) else None
        raise ConfigError(
            f"the Kafka client refuses its settings: {inside.str() if inside else error}",
            hint="settings are librdkafka's, not Java's; see its CONFIGURATION page",
            bootstrap_servers=settings.bootstrap_servers,
        ) from error
