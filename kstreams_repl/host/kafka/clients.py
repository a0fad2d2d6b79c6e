"""Kafka clients with the defaults that exactly-once and throughput need, built from one frozen `ClientSettings`.

Every librdkafka setting (SASL, SSL, timeouts) passes through unchanged and overrides the defaults here. Kafka Streams' prefixes
``consumer.``, ``producer.`` and ``admin.`` restrict a setting to one kind of client; ``main.consumer.``, ``restore.consumer.`` and
``global.consumer.`` restrict it to consumers of one role. Settings that would break the delivery guarantees are refused (`_REFUSED`):
automatic commits, automatic offset resets, a partitioner other than Java's, non-idempotent producers. Passwords are wrapped in `Secret`.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any, Final, Literal, TypeVar, get_args

from confluent_kafka import Consumer as Consumer  # with `as`: who may not import the library takes its types from here
from confluent_kafka import KafkaError, KafkaException
from confluent_kafka import Message as Message
from confluent_kafka import Producer as Producer
from confluent_kafka.admin import AdminClient

from kstreams_repl.host.kafka.failures import error_of, is_refused_login, translate
from kstreams_repl.system.errors import ConfigError
from kstreams_repl.system.forks import undying_when_forked
from kstreams_repl.system.secrets import Secret

T = TypeVar("T")
Isolation = Literal["read_committed", "read_uncommitted"]
Role = Literal["main", "restore", "global"]
"""What a consumer of an application reads: input topics, changelogs or global tables."""

CLIENT_LOGGER = logging.getLogger("kstreams_repl.host.kafka.client")
CLIENT_LOGGER.addHandler(logging.NullHandler())

REACH_SECONDS: Final = 5.0
_CONNECT_SECONDS: Final = 1.0
_LEAST_SECONDS: Final = 0.1

_CONSUMERS = ("consumer.", "main.consumer.", "restore.consumer.", "global.consumer.")
_PREFIXES = (*_CONSUMERS, "producer.", "admin.")
_SECRET_WORDS = ("password", "secret", "private", "jaas", "oauthbearer.config", "key.pem", "token")

_COMMON: Mapping[str, object] = {
    "statistics.interval.ms": 0,
    "reconnect.backoff.ms": 50,
    "reconnect.backoff.max.ms": 1000,
    "log.connection.close": False,
    "socket.nagle.disable": True,
}
_CONSUMER: Mapping[str, object] = {
    "fetch.queue.backoff.ms": 2,  # 1000 by default: with that a full queue pauses the fetcher for a second
    "fetch.error.backoff.ms": 50,
    "fetch.wait.max.ms": 100,
    "queued.min.messages": 200_000,
    "queued.max.messages.kbytes": 64 * 1024,
    "fetch.message.max.bytes": 4 * 1024 * 1024,
    "enable.partition.eof": False,
    "session.timeout.ms": 10_000,  # of a driver's membership in its group
}
_CONSUMER_WITHOUT_ENDS: Mapping[str, object] = {"fetch.wait.max.ms": 500}
"""Kafka's default, for the consumer of an application that waits for no end of a partition: an answer comes with the first record anyway,
and the ends of partitions without records are only part of the reported lag. Answers to idle consumers are work for both sides.
"""
_CONSUMER_FIXED: Mapping[str, object] = {"enable.auto.commit": False, "enable.auto.offset.store": False, "auto.offset.reset": "error"}
_PRODUCER: Mapping[str, object] = {
    "linger.ms": 10,
    "compression.type": "none",
    "batch.size": 1_000_000,
    "message.max.bytes": 1_048_530,  # 36 bytes of client overhead + the 1,048,494 bytes of key and value that a Java producer accepts
    "queue.buffering.max.messages": 1_000_000,
    "queue.buffering.max.kbytes": 256 * 1024,
}
_IN_TRANSACTIONS: Mapping[str, object] = {"linger.ms": 100}
"""Readers see these records when their transaction commits, which sends what waits; until then larger batches cost nothing."""
_PRODUCER_FIXED: Mapping[str, object] = {"partitioner": "murmur2_random", "enable.idempotence": True}
_WITH_STATE = "offsets are committed together with the state stores"
_APPLICATIONS = "set it for the application: deploy(config={...})"
_REFUSED: Mapping[str, tuple[str | None, str]] = {
    "group.id": (None, "the group of an application is its application.id"),
    "transactional.id": (None, "transactional ids are derived from application.id and instance"),
    "enable.auto.commit": ("false", _WITH_STATE),
    "enable.auto.offset.store": ("false", _WITH_STATE),
    "enable.idempotence": ("true", "a non-idempotent producer can duplicate or reorder records"),
    "partitioner": ("murmur2_random", "keys are partitioned as Java does it; a sink may have its own partitioner"),
    "auto.offset.reset": (None, _APPLICATIONS),
    "max.poll.interval.ms": (None, _APPLICATIONS),
    "transaction.timeout.ms": (None, _APPLICATIONS),
}
"""Settings that are fixed, or that belong to the application: the only value that may be given (None: no value), and the reason."""


def is_secret_name(name: str) -> bool:
    """Return whether the value of a client setting of this name must not be shown."""
    return any(word in name.lower() for word in _SECRET_WORDS)


@dataclass(frozen=True)
class ClientSettings:
    """Broker addresses and all other client settings; immutable, comparable, safe to show and to send to workers.

    Args:
        bootstrap_servers: ``host:port``, comma separated.
        properties: librdkafka's settings by name. The prefixes ``consumer.``, ``producer.`` and ``admin.`` restrict one to a kind of
            client; ``main.consumer.``, ``restore.consumer.`` and ``global.consumer.`` to one role, overriding ``consumer.``.

    Raises:
        ConfigError: the address is empty, ``properties`` contains a different one, or a setting has a fixed value here.

    Example:
        >>> ClientSettings("broker:9093", {"security.protocol": "SASL_SSL", "sasl.password": "hunter2"})
        ClientSettings('broker:9093', {'security.protocol': 'SASL_SSL', 'sasl.password': ********})
    """

    bootstrap_servers: str
    properties: Mapping[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if not isinstance(self.bootstrap_servers, str) or not self.bootstrap_servers.strip():
            raise ConfigError("bootstrap.servers is empty", hint="pass host:port of a broker, comma separated for several")
        given = dict(self.properties)
        other = given.pop("bootstrap.servers", self.bootstrap_servers)
        if other != self.bootstrap_servers:
            raise ConfigError(f"bootstrap.servers is given twice with different values: {self.bootstrap_servers!r} and {other!r}")
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

    def __reduce__(self) -> tuple[type[ClientSettings], tuple[str, dict[str, object]]]:
        return ClientSettings, (self.bootstrap_servers, dict(self.properties))

    def shown(self) -> dict[str, str]:
        """Return all settings as strings, secrets masked, for display.

        Example:
            >>> import kstreams_repl as ks
            >>> settings = ks.ClientSettings("broker:9093", {"sasl.password": "hunter2", "consumer.fetch.min.bytes": 9})
            >>> settings.shown()["sasl.password"]
            '********'
        """
        return {"bootstrap.servers": self.bootstrap_servers, **{name: str(value) for name, value in self.properties.items()}}

    def revealed(self, kind: Literal["consumer", "producer", "admin"]) -> dict[str, object]:
        """Return the settings for one kind of client, secrets in clear text. Pass the result to a client and keep no reference to it.

        Args:
            kind: settings with its prefix override those without a prefix.

        Raises:
            ConfigError: a secret stored elsewhere cannot be read.

        Example:
            >>> import kstreams_repl as ks
            >>> settings = ks.ClientSettings("broker:9093", {"sasl.password": "hunter2", "consumer.fetch.min.bytes": 9})
            >>> settings.revealed("consumer")
            {'sasl.password': 'hunter2', 'fetch.min.bytes': 9, 'bootstrap.servers': 'broker:9093'}
        """
        return {**self.revealed_own(None), **self.revealed_own(kind), "bootstrap.servers": self.bootstrap_servers}

    @property
    def isolation(self) -> Isolation | None:
        """The ``isolation.level`` configured for input consumers; None when it is not configured."""
        asked = (self.properties.get(f"{prefix}isolation.level") for prefix in ("main.consumer.", "consumer.", ""))
        return next((level for level in asked if level is not None), None)

    def revealed_own(self, kind: str | None) -> dict[str, object]:
        """Return only the settings given with one prefix, without the prefix, secrets in clear text.

        Args:
            kind: the prefix without its dot, such as ``consumer`` or ``main.consumer``; None: settings without a prefix.

        Raises:
            ConfigError: a secret stored elsewhere cannot be read.

        Example:
            >>> import kstreams_repl as ks
            >>> settings = ks.ClientSettings("broker:9093", {"sasl.password": "hunter2", "consumer.fetch.min.bytes": 9})
            >>> settings.revealed_own("consumer")
            {'fetch.min.bytes': 9}
        """
        found: dict[str, object] = {}
        for name, value in self.properties.items():
            prefix = next((prefix for prefix in _PREFIXES if name.startswith(prefix)), "")
            if prefix == ("" if kind is None else f"{kind}."):
                found[name.removeprefix(prefix)] = value.reveal() if isinstance(value, Secret) else value
        return found


class ClientEvents:
    """The errors that a client's background threads reported; they explain the error of the call that failed.

    `on_error` is the client's ``error_cb``. It keeps the last message, the last authentication failure and the number of errors. It never
    raises, since it runs inside polls. The client does not report fatal errors to it: the affected call raises those.
    """

    def __init__(self) -> None:
        self.last: str | None = None
        self.refused: KafkaError | None = None
        self.troubles = 0
        self._logged_at = float("-inf")

    def on_error(self, error: KafkaError) -> None:
        code = error.code()
        self.troubles += 1
        if is_refused_login(error):
            self.refused = error
        if code != KafkaError._ALL_BROKERS_DOWN or self.last is None:
            self.last = error.str()
        now = time.monotonic()
        if now - self._logged_at >= 60:
            self._logged_at = now
            CLIENT_LOGGER.warning("%s", error.str())


class _AtMostOnceAMinute(logging.Filter):
    """Pass each kind of message from librdkafka once a minute; an unreachable broker would fill the log otherwise.

    A kind is librdkafka's own word, as FAIL. What the client retries by itself, because a coordinator loads, passes after ten seconds.
    """

    def __init__(self) -> None:
        super().__init__()
        self._seen: dict[str, float] = {}
        self._retries: dict[str, tuple[float, float]] = {}

    def filter(self, record: logging.LogRecord) -> bool:
        message, now = record.getMessage(), time.monotonic()
        kind = message.partition(" ")[0]
        if message.endswith(": retrying"):
            first, last = self._retries.get(kind, (now, now))
            first = now if now - last > 10 else first
            self._retries[kind] = first, now
            if now - first < 10:
                return False
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
    **overrides: object,
) -> Consumer:
    """Create a consumer for manual assignment: no automatic commits, and an offset out of range is an error instead of a reset.

    Args:
        group_id: the group whose committed offsets it reads and writes (Kafka Streams: the application id).
        role: the role within an application; settings with its prefix override all others. ``restore`` consumers also report the end of
            each partition.
        overrides: settings of this consumer, with underscores instead of dots: ``enable_partition_eof=True``.
    """
    without_ends = role == "main" and not overrides.get("enable_partition_eof")
    defaults = {**_COMMON, **_CONSUMER, **(_CONSUMER_WITHOUT_ENDS if without_ends else {})}
    settings_of = {**defaults, **settings.revealed("consumer"), **_dotted(overrides)}
    if role is not None:
        settings_of |= {**settings.revealed_own(f"{role}.consumer"), "bootstrap.servers": settings.bootstrap_servers}
        if role == "restore" or overrides.get("enable_partition_eof"):
            settings_of["enable.partition.eof"] = True
    settings_of |= {**_CONSUMER_FIXED, "group.id": group_id, "isolation.level": isolation}
    return _make(_Consumer, settings_of, settings, events)


def producer_defaults(*, transactional: bool) -> Mapping[str, object]:
    """Return what a producer is set to unless the user sets it."""
    return {**_PRODUCER, **_IN_TRANSACTIONS} if transactional else _PRODUCER


def make_producer(
    settings: ClientSettings,
    *,
    events: ClientEvents | None = None,
    on_delivery_error: Callable[[KafkaError, Message], None] | None = None,
    **overrides: object,
) -> Producer:
    """Create an idempotent producer with Java's default partitioner.

    Args:
        on_delivery_error: called with (error, message) for each record that could not be delivered, during `poll` and `flush`. Successful
            deliveries cause no callback, which keeps the cost low at a million records per second.
    """
    own = _dotted(overrides)
    defaults = producer_defaults(transactional="transactional.id" in own)
    settings_of = {**_COMMON, **defaults, **settings.revealed("producer"), **own, **_PRODUCER_FIXED}
    if on_delivery_error is not None:
        settings_of |= {"on_delivery": on_delivery_error, "delivery.report.only.error": True}
    return _make(_Producer, settings_of, settings, events)


def make_transactional_producer(
    settings: ClientSettings,
    *,
    transactional_id: str,
    transaction_timeout_ms: int = 10_000,
    events: ClientEvents | None = None,
    **overrides: Any,
) -> Producer:
    """Create a producer for exactly-once; the caller runs `take_transactional_id`, which fences older producers with that id.

    The default timeout is Kafka Streams' 10 s: a zombie blocks ``read_committed`` readers for at most that long.
    """
    return make_producer(
        settings, events=events, **{**overrides, "transactional.id": transactional_id, "transaction.timeout.ms": transaction_timeout_ms}
    )


def take_transactional_id(producer: Producer, seconds: float) -> None:
    """Run `init_transactions`, which fences the producer that used the id before.

    An unconnected client looks for the coordinator immediately, finds no broker and, in one case out of four, waits half a second before it
    retries. Connecting first, within the same ``seconds``, avoids that.

    Raises:
        KafkaException: as `init_transactions` does.
    """
    deadline = time.monotonic() + seconds
    with suppress(KafkaException):  # init_transactions raises the better error
        producer.list_topics(timeout=min(_CONNECT_SECONDS, seconds))
    producer.init_transactions(max(_LEAST_SECONDS, deadline - time.monotonic()))


def make_admin_client(settings: ClientSettings, *, events: ClientEvents | None = None) -> AdminClient:
    """Create the plain admin client; use `admin.Admin` instead where possible."""
    return _make(AdminClient, {**_COMMON, **settings.revealed("admin")}, settings, events)


def ensure_reachable(settings: ClientSettings, *, seconds: float = REACH_SECONDS) -> None:
    """Return when a broker answers, or raise after about ``seconds``; the clients themselves would retry forever.

    Raises:
        BrokerUnavailableError: no broker answered, or it refused the credentials; the message contains the client's own reason.
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


def _refuse_fixed(name: str, value: object) -> None:
    prefix = next((prefix for prefix in _PREFIXES if name.startswith(prefix)), "")
    plain = name.removeprefix(prefix)
    if plain == "isolation.level" and (prefix not in ("", "consumer.", "main.consumer.") or value not in get_args(Isolation)):
        raise ConfigError(
            f"{name} cannot be set to {value!r}",
            hint="consumer.isolation.level applies to input topics: read_committed or, under at_least_once, read_uncommitted",
            key=name,
        )
    fixed = _REFUSED.get(plain)
    if fixed is None or prefix == "admin." or (fixed[0] is not None and str(value).lower() == fixed[0]):
        return
    only = "cannot be set as a client setting" if fixed[0] is None else f"must be {fixed[0]}"
    raise ConfigError(f"{name} {only}", hint=fixed[1], key=name)


def _dotted(overrides: Mapping[str, object]) -> dict[str, object]:
    return {name.replace("_", "."): value for name, value in overrides.items()}


class _Consumer(Consumer):  # type: ignore[misc]
    __slots__ = ("__weakref__",)


class _Producer(Producer):  # type: ignore[misc]
    __slots__ = ("__weakref__",)


def _make(
    kind: Callable[[dict[str, object]], T], properties: dict[str, object], settings: ClientSettings, events: ClientEvents | None
) -> T:
    properties.setdefault("error_cb", (events or ClientEvents()).on_error)
    try:
        return undying_when_forked(kind({**properties, "logger": _LIBRARY_LOGGER}))
    except (KafkaException, TypeError, ValueError) as error:
        inside = error_of(error) if isinstance(error, KafkaException) else None
        raise ConfigError(
            f"the Kafka client rejected its settings: {inside.str() if inside else error}",
            hint="use librdkafka's setting names, not the Java client's; see CONFIGURATION.md of librdkafka",
            bootstrap_servers=settings.bootstrap_servers,
        ) from error
