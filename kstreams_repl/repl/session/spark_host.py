"""`SparkHost`: the Spark session that hosts a session's applications: given, or a local one that starts when it is first needed."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from kstreams_repl.system.errors import ConfigError
from kstreams_repl.system.types import SparkMaster

if TYPE_CHECKING:
    from kstreams_repl.host.spark.startup.prestart import Prestart
    from kstreams_repl.host.spark.startup.spark_session import SparkSession


class SparkHost:
    """The Spark session of one session.

    Args:
        given: a Spark session that belongs to the user.
        master: the master of the session to start, or settings of Spark with it; None: local.

    Raises:
        ConfigError: with speculative execution.

    Attributes:
        prestart: starts Spark ahead of the first deploy; None: no prestart.
        used: whether this process's applications, or the user, have asked for Spark.
    """

    def __init__(self, given: Any, master: SparkMaster) -> None:
        settings = master if isinstance(master, Mapping) else {} if given is None else dict(given.sparkContext.getConf().getAll())
        if settings.get("spark.speculation") == "true":
            raise ConfigError(
                "spark.speculation runs a slow task a second time, and the tasks here are instances, which run as long as the application",
                hint="leave it off; a worker that does not answer is replaced and fenced",
                key="spark.speculation",
            )
        self.given = given
        self.requested_master = master
        self.prestart: Prestart | None = None
        self.used = False

    @property
    def master(self) -> str | None:
        """The master that was requested, or that of the given Spark session; None: local."""
        return self.wanted.get("spark.master") if isinstance(self.wanted, Mapping) else self.wanted

    @property
    def wanted(self) -> SparkMaster:
        """What to start another Spark session with: what was requested, or the master of the given one."""
        return self.requested_master if self.given is None else str(self.given.sparkContext.master)

    @property
    def session(self) -> SparkSession:
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
