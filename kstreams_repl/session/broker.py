"""The session's embedded broker: started when it is first needed, found again when another kernel of this project has it running."""

from __future__ import annotations

import os
import time
from pathlib import Path

from kstreams_repl.kafka.embedded import EmbeddedBroker
from kstreams_repl.kafka.embedded.layout import BrokerDirectory
from kstreams_repl.session.ending import close_first
from kstreams_repl.session.progress import Report, step

OLD_OWNER_SECONDS = 20.0
"""How long to wait for the broker of a kernel that was restarted: it ends by itself when its owner is gone."""


class SessionBroker:
    """An embedded broker that this session started, or shares.

    Args:
        directory: where its data are kept; None = a temporary directory.
    """

    def __init__(self, directory: Path | None, report: Report) -> None:
        self._directory = directory
        self._report = report
        self._broker: EmbeddedBroker | None = None
        self.shared = False
        """Another process started it and stops it."""

    @property
    def started(self) -> bool:
        return self._broker is not None and self._broker.is_alive

    @property
    def directory(self) -> Path | None:
        """Where its data are kept; None: a temporary directory."""
        return self._directory

    @property
    def stays(self) -> bool:
        """Whether it runs on when every process that uses it has ended (``./kstreams broker start``); starts none."""
        if self._directory is None:
            return False
        where = BrokerDirectory(self._directory)
        record = where.read_record()
        return record is not None and record.detached and where.is_locked()

    @property
    def has_ended(self) -> bool:
        """It was started and ended by itself."""
        return self._broker is not None and not self._broker.is_alive

    @property
    def log(self) -> Path | None:
        """Where the broker writes its log; None before it was started."""
        return None if self._broker is None else self._broker.log_path

    def start(self) -> EmbeddedBroker:
        """The running broker.

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
        """See that the broker, once started, still lives.

        Raises:
            EmbeddedBrokerError: it has ended by itself; the error says why.
        """
        broker = self._broker
        if broker is not None and not broker.is_alive:
            raise broker.why_ended()

    def _say_why_it_ended(self, broker: EmbeddedBroker) -> None:
        """It is started again, but not on a disk that is full."""
        why = broker.why_ended()
        if "needed_bytes" in why.fields and why.fields["free_bytes"] < why.fields["needed_bytes"]:
            raise why
        self._report(why.message)

    def stop(self) -> None:
        """Stop the broker if it is ours; what it keeps in a directory stays."""
        if self._broker is not None and not self.shared:
            self._broker.stop()
        self._broker = None


def is_taken(path: Path) -> bool:
    """Whether a living owner has a broker in that directory; waits for one whose owner has gone."""
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
