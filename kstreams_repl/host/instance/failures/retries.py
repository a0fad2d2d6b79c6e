"""Which errors make a slot initialise its tasks again, after which delay, and what is logged about it."""

from __future__ import annotations

import logging
import time

from kstreams_repl.engine.calls.log_throttle import LogThrottle
from kstreams_repl.host.kafka.transactional import TransactionDoubtError
from kstreams_repl.system.errors import (
    BrokerUnavailableError,
    KStreamsError,
    OutputRetryError,
    ProducerFencedError,
    SchemaRegistryUnavailableError,
    TaskMigratedError,
)

_LOG = logging.getLogger("kstreams_repl.host.instance")
_TRANSIENT = (
    TransactionDoubtError, BrokerUnavailableError, ProducerFencedError, TaskMigratedError, OutputRetryError, SchemaRegistryUnavailableError,
)  # fmt: skip
_MOST_RETRIES = 10
"""Maximum retries after errors that are not known to be transient, without a commit in between."""
_BACKOFF_SECONDS = 0.1
_BACKOFF_MOST_SECONDS = 2.0
_THROTTLE = LogThrottle()
"""Of the whole process: a runner ends with its epoch, while a broker may be unavailable for many epochs."""


class SlotRetries:
    """The retries of one slot in one run."""

    def __init__(self, application_id: str, slot: int) -> None:
        self._slot = (application_id, slot)
        self._count = 0
        self._backoff = _BACKOFF_SECONDS

    def allow(self, error: KStreamsError) -> bool:
        """Return whether to initialise the tasks again after this error, and count the retry."""
        if not isinstance(error, _TRANSIENT) and (type(error) is not KStreamsError or self._count >= _MOST_RETRIES):
            return False
        self._count += 1
        return True

    def reset(self) -> None:
        """Start counting again: there was a commit since the last error."""
        self._count = 0

    def log(self, error: KStreamsError) -> None:
        """Log the retry, at most once a minute for each class of errors."""
        cause = type(error).__name__
        times = _THROTTLE.due((*self._slot, cause), time.monotonic())
        if times is not None:
            repeated = "" if times == 1 else f" ({times} times since the last such line)"
            what = "fenced by a newer owner" if isinstance(error, ProducerFencedError | TaskMigratedError) else cause
            _LOG.warning("%s, retry %d%s; re-initialising the tasks: %s", what, self._count, repeated, error)

    def wait(self, until: float) -> None:
        """Sleep for the current delay, but not beyond the monotonic time `until`; the next delay is twice as long."""
        time.sleep(min(self._backoff, max(0.0, until - time.monotonic())))
        self._backoff = min(2 * self._backoff, _BACKOFF_MOST_SECONDS)
