"""`ApplicationState`: the status of an application, under this project's words and Kafka Streams' names."""

from __future__ import annotations

from enum import StrEnum


class ApplicationState(StrEnum):
    """The status of an application, a string (`app.status == "failed"`) with the names of Kafka Streams' `KafkaStreams.State`.

    ``RUNNING`` begins when the application has started; before that it is ``REBALANCING`` (or ``STARTING``). ``PAUSED`` has no
    counterpart: a paused Kafka Streams client stays RUNNING. ``NOT_RUNNING`` is ``STOPPED``, ``ERROR`` is ``FAILED``. The
    transitional states ``PENDING_SHUTDOWN`` and ``PENDING_ERROR`` are never reported: an application is running until it has
    stopped or failed.

    Example:
        >>> import kstreams_repl as ks
        >>> state = ks.reports.ApplicationState("failed")
        >>> state is ks.reports.ApplicationState.ERROR, state is ks.reports.ApplicationState.FAILED, state == "failed", str(state)
        (True, True, True, 'failed')
        >>> ks.reports.ApplicationState("NOT_RUNNING")
        <ApplicationState.NOT_RUNNING: 'stopped'>
    """

    CREATED = "created"
    REBALANCING = "starting"
    RUNNING = "running"
    PAUSED = "paused"
    PENDING_SHUTDOWN = "pending_shutdown"
    NOT_RUNNING = "stopped"
    PENDING_ERROR = "pending_error"
    ERROR = "failed"

    STARTING = "starting"
    STOPPED = "stopped"
    FAILED = "failed"

    @classmethod
    def _missing_(cls, value: object) -> ApplicationState | None:
        return cls.__members__.get(str(value))

    def has_not_started(self) -> bool:
        """Return whether it was created and not started yet.

        Example:
            >>> import kstreams_repl as ks
            >>> ks.reports.ApplicationState.CREATED.has_not_started()
            True
        """
        return self is ApplicationState.CREATED

    def is_running_or_rebalancing(self) -> bool:
        """Return whether it runs or is being started; False for a paused application.

        Example:
            >>> import kstreams_repl as ks
            >>> ks.reports.ApplicationState.PAUSED.is_running_or_rebalancing()
            False
        """
        return self in (ApplicationState.RUNNING, ApplicationState.REBALANCING)

    def is_shutting_down(self) -> bool:
        """Return whether it is being stopped or is failing; these states are never reported, see above.

        Example:
            >>> import kstreams_repl as ks
            >>> ks.reports.ApplicationState.NOT_RUNNING.is_shutting_down()
            False
        """
        return self in (ApplicationState.PENDING_SHUTDOWN, ApplicationState.PENDING_ERROR)

    def has_completed_shutdown(self) -> bool:
        """Return whether it has stopped or failed; False for a paused application.

        Example:
            >>> import kstreams_repl as ks
            >>> ks.reports.ApplicationState.FAILED.has_completed_shutdown()
            True
        """
        return self in (ApplicationState.NOT_RUNNING, ApplicationState.ERROR)

    def has_started_or_finished_shutting_down(self) -> bool:
        """Return whether it is being stopped, has stopped or has failed.

        Example:
            >>> import kstreams_repl as ks
            >>> ks.reports.ApplicationState.STOPPED.has_started_or_finished_shutting_down()
            True
        """
        return self.is_shutting_down() or self.has_completed_shutdown()
