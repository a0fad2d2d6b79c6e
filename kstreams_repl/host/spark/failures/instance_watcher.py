"""Watch the instances of a running generation: one thread that ends when an instance has failed, slots are missing, the query ended, or
another program took over."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Collection
from itertools import count
from typing import Protocol

from kstreams_repl.host.spark.epochs.generation_run import GenerationRun
from kstreams_repl.host.spark.failures.failure_translation import failure_from, has_failed
from kstreams_repl.host.spark.failures.missing_executors import MissingExecutors
from kstreams_repl.system.errors import KStreamsError
from kstreams_repl.system.types import JsonMapping

_CHECK_SECONDS, _CHECKS_PER_CALL = 0.2, 5


class OnEnd(Protocol):
    """Called once, in the watcher's thread, when a generation has ended by itself."""

    def __call__(
        self, run: GenerationRun, reports: Collection[JsonMapping], cause: str | None, lost: KStreamsError | None
    ) -> None:
        """Args:
        reports: the last reports of the instances.
        cause: Spark's reason why the query ended; None if it gave none.
        lost: the error of missing executors, or of a take-over.
        """


def watch_instances(run: GenerationRun, successor: Callable[[], KStreamsError | None], on_end: OnEnd) -> None:
    """Start the thread. It also ends, without a call, when the run has been ended by a signal.

    Args:
        successor: returns an error once another program has taken over the application.
    """
    threading.Thread(target=_watch, args=(run, successor, on_end), name=f"watch-{run.plan.application_id}", daemon=True).start()


def _watch(run: GenerationRun, successor: Callable[[], KStreamsError | None], on_end: OnEnd) -> None:
    try:
        _watch_query(run, successor, on_end)
    except Exception as error:  # of Spark, whose JVM may end in the middle of a call
        if run.query is not None:
            on_end(run, (), None, failure_from(run.plan.application_id, error))


def _watch_query(run: GenerationRun, successor: Callable[[], KStreamsError | None], on_end: OnEnd) -> None:
    query = run.query
    if query is None:
        return
    executors = MissingExecutors(run.session, query, run.plan.application_id)
    for check in count(1):
        time.sleep(_CHECK_SECONDS)
        if run.query is None:
            return
        reports = run.lease.reports(run.plan.generation).values()
        lost = None
        if not has_failed(reports):
            if check % _CHECKS_PER_CALL:  # a call to the JVM costs more than reading the reports
                continue
            lost = executors.check() or successor()
            if lost is None and query.active:
                continue
        on_end(run, reports, query.cause(), lost)
        return
