"""Calls of an admin client: each returns its result or raises a typed error within its timeout."""

from __future__ import annotations

import _thread
import time
from collections.abc import Callable
from concurrent.futures import Future
from contextlib import suppress
from typing import Any, TypeVar

from confluent_kafka import KafkaError, KafkaException

from kstreams_repl.host.kafka.clients import ClientEvents, ClientSettings, make_admin_client
from kstreams_repl.host.kafka.failures import is_unknown_topic, translate
from kstreams_repl.system.durations import Seconds, as_seconds
from kstreams_repl.system.errors import BrokerUnavailableError, KStreamsError

T = TypeVar("T")


class _Interruptible:
    """An admin client whose calls are interrupted by KeyboardInterrupt: CPython raises SystemError for one inside the C library.

    It is destroyed in a thread of its own: librdkafka waits for the client's threads, now and then for ever, and the garbage collector
    may run in any thread, a notebook's main thread too. The low-level call takes no lock, so it is safe in the collector.
    """

    def __init__(self, client: object) -> None:
        self._client = client

    def __del__(self) -> None:
        client = self.__dict__.pop("_client", None)
        if client is not None:
            held = [client]
            del client
            with suppress(RuntimeError):  # Python starts no more threads while it exits
                _thread.start_new_thread(held.clear, ())

    def __getattr__(self, name: str) -> Any:
        method = getattr(self._client, name)

        def call(*args: object, **options: object) -> Any:
            try:
                return method(*args, **options)
            except SystemError as lost:
                if isinstance(lost.__cause__, KeyboardInterrupt):
                    raise lost.__cause__ from None
                raise

        return call


class AdminCalls:
    """The connection of `Admin` and how it waits; `topics` is here because the hints of all errors need the names."""

    def __init__(self, settings: ClientSettings, *, seconds: Seconds = 10.0) -> None:
        self.settings = settings
        self._seconds = as_seconds(seconds, "seconds", above=True)
        self._events = ClientEvents()
        self._reconnect()

    def _reconnect(self) -> None:
        self._client = _Interruptible(make_admin_client(self.settings, events=self._events))

    def __repr__(self) -> str:
        return f"Admin({self.settings.bootstrap_servers!r})"

    def topics(self, *, internal: bool = False) -> dict[str, int]:
        """Return the number of partitions of each topic, by name.

        Args:
            internal: whether Kafka's own topics (``__consumer_offsets``, …) are included.

        Raises:
            BrokerUnavailableError: no answer in time.

        Example:
            >>> session.admin.topics()["words"]
            2
        """
        listed = self._call("listing topics", lambda: self._client.list_topics(timeout=self._seconds))
        return {
            name: len(topic.partitions) for name, topic in sorted(listed.topics.items()) if internal or not name.startswith("__")
        }

    def _await(self, what: str, condition: Callable[[], bool]) -> None:
        deadline = time.monotonic() + self._seconds
        while not condition():
            if time.monotonic() > deadline:
                raise BrokerUnavailableError(
                    f"waited {self._seconds:.0f} s for {what}, the timeout of a call",
                    hint="check the broker's log",
                    bootstrap_servers=self.settings.bootstrap_servers,
                )
            time.sleep(0.02)

    def _call(self, doing: str, call: Callable[[], T]) -> T:
        try:
            return call()
        except KafkaException as error:
            raise self._translated(error, doing) from error

    def _result(self, future: Future[object], doing: str, *, topic: str | None = None, missing: object = ...) -> Any:
        """Return the future's result, or ``missing`` (when given) if the topic does not exist."""
        try:
            return self._in_time(future, doing)
        except KafkaException as error:
            if missing is not ... and is_unknown_topic(error):
                return missing
            raise self._translated(error, doing, topic=topic) from error

    def _in_time(self, future: Future[object], doing: str) -> Any:
        try:
            return future.result(self._seconds + 1)
        except TimeoutError as error:
            servers = self.settings.bootstrap_servers
            raise BrokerUnavailableError(
                f"{doing}: no broker answered at {servers}", hint="check that the broker is running", bootstrap_servers=servers
            ) from error

    def _translated(self, error: KafkaException | KafkaError, doing: str, *, topic: str | None = None) -> KStreamsError:
        known = list(self.topics()) if topic is not None and is_unknown_topic(error) else ()
        return translate(
            error,
            doing,
            bootstrap_servers=self.settings.bootstrap_servers,
            topic=topic,
            known_topics=known,
            reason=self._events.last,
        )
