"""The session's embedded broker: started when first needed, or shared when another kernel of this project runs it."""

from __future__ import annotations

import os
import time
from pathlib import Path

from kstreams_repl.host.kafka.embedded import EmbeddedBroker
from kstreams_repl.host.kafka.embedded.layout import BrokerDirectory
from kstreams_repl.host.kafka.embedded.registry import EmbeddedRegistry
from kstreams_repl.repl.session.progress_messages import Report, step
from kstreams_repl.repl.session.shutdown import close_first

OLD_OWNER_SECONDS = 20.0
"""Seconds to wait for the broker of a restarted kernel: it ends by itself when its owner is gone."""


class SessionBroker:
    """An embedded broker that this session started, or shares.

    Args:
        directory: where its data are kept; None: a temporary directory.
    """

    def __init__(self, directory: Path | None, report: Report) -> None:
        self._directory = directory
        self._report = report
        self._broker: EmbeddedBroker | None = None
        self.shared = False
        """Whether another process started it and stops it."""

    @property
    def started(self) -> bool:
        return self._broker is not None and self._broker.is_alive

    @property
    def directory(self) -> Path | None:
        """Where its data are kept; None: a temporary directory."""
        return self._directory

    @property
    def stays(self) -> bool:
        """Whether it outlives the processes that use it (``./kstreams broker start``). Starts no broker."""
        if self._directory is None:
            return False
        where = BrokerDirectory(self._directory)
        record = where.read_record()
        return record is not None and record.detached and where.is_locked()

    @property
    def has_ended(self) -> bool:
        """Whether it was started and has ended unexpectedly."""
        return self._broker is not None and not self._broker.is_alive

    @property
    def log(self) -> Path | None:
        """The broker's log file; None before it was started."""
        return None if self._broker is None else self._broker.log_path

    def start(self) -> EmbeddedBroker:
        """Start the broker if necessary and return it.

        Raises:
            JavaNotFoundError, EmbeddedBrokerError: as `EmbeddedBroker.start`.
        """
        broker = self._broker
        if broker is not None and broker.is_alive:
            return broker
        if self._directory is not None and is_taken(self._directory):
            self._broker, self.shared = EmbeddedBroker.attach(self._directory), True
            self._report(f"using the Kafka that runs in {self._directory} already, at {self._broker.bootstrap_servers}")
            return self._broker
        if broker is not None and not self.shared:
            self._say_why_it_ended(broker)
        broker = broker if broker is not None and not self.shared else EmbeddedBroker(self._directory)
        with step(self._report, "starting Kafka (embedded)", lambda: f"Kafka is ready at {broker.bootstrap_servers}"):
            broker.start()
        close_first()
        self._broker, self.shared = broker, False
        return broker

    def check(self) -> None:
        """Raise if the broker was started and no longer lives.

        Raises:
            EmbeddedBrokerError: it has ended unexpectedly; the error has the cause.
        """
        broker = self._broker
        if broker is not None and not broker.is_alive:
            raise broker.why_ended()

    def _say_why_it_ended(self, broker: EmbeddedBroker) -> None:
        """Report why it ended before it is started again; raise if its disk is full."""
        why = broker.why_ended()
        if why.disk_is_full:
            raise why
        self._report(why.message)

    def stop(self) -> None:
        """Stop the broker if this session started it; the data in its directory stay."""
        if self._broker is not None and not self.shared:
            self._broker.stop()
        self._broker = None


def is_taken(path: Path) -> bool:
    """Return whether a live owner has a broker in that directory. Waits for a broker whose owner has ended."""
    where = BrokerDirectory(path)
    deadline = time.monotonic() + OLD_OWNER_SECONDS
    while path.exists() and where.is_locked():
        record = where.read_record()
        if record is not None and (record.detached or _lives(record.owner_pid)):
            return True
        if time.monotonic() > deadline:
            return record is not None
        time.sleep(0.05)
    return False


def _lives(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True


class SessionRegistry:
    """An embedded Schema Registry that this session started.

    Args:
        directory: where its schemas are kept; None: a temporary directory.
    """

    def __init__(self, directory: Path | None, report: Report) -> None:
        self._registry = EmbeddedRegistry(directory)
        self._report = report

    def start(self) -> str:
        """Start it if necessary, and return its address.

        Raises:
            JavaNotFoundError, EmbeddedBrokerError: as `EmbeddedRegistry.start`.
        """
        ready = lambda: f"the Schema Registry is ready at {self._registry.url}"  # noqa: E731
        with step(self._report, "starting a Schema Registry (embedded)", ready):
            return self._registry.start().url

    def stop(self) -> None:
        """Stop it."""
        self._registry.stop()
