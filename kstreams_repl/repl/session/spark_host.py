"""`SparkHost`: the Spark session that hosts a session's applications: given, or a local one that starts when it is first needed."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from kstreams_repl.host.spark.startup.prestart import Prestart


class SparkHost:
    """The Spark session of one session.

    Args:
        given: a Spark session that belongs to the user.
        master: the master of the session to start; None: local.

    Attributes:
        prestart: starts Spark ahead of the first deploy; None: no prestart.
        used: whether this process's applications, or the user, have asked for Spark.
    """

    def __init__(self, given: Any, master: str | None) -> None:
        self.given = given
        self.requested_master = master
        self.prestart: Prestart | None = None
        self.used = False

    @property
    def master(self) -> str | None:
        """The master that was requested, or that of the given Spark session; None: local."""
        return self.requested_master if self.given is None else str(self.given.sparkContext.master)

    @property
    def session(self) -> Any:
        """The Spark session. Starts it if it is not running."""
        from kstreams_repl.host.spark.startup.spark_session import get_session

        self.used = True
        return self.given if self.given is not None else get_session(self.requested_master)

    def closing_steps(self) -> list[Callable[[], object]]:
        """Return the calls that end Spark: all of it if it was used, else only the prestart; none for a given session."""
        if self.given is not None:
            return []
        if self.used:
            from kstreams_repl.host.spark.startup.spark_session import stop_session

            return [stop_session]
        return [] if self.prestart is None else [self.prestart.stop]
