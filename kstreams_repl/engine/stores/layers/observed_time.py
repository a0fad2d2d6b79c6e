"""The largest timestamp put into a store, which decides what has expired. Committed with the rows, so a restart changes no result."""

from __future__ import annotations

from kstreams_repl.engine.stores.engine.environment import Environment
from kstreams_repl.engine.stores.kinds.typed_store import LONG


class ObservedTime:
    """Rows that follow the commits and rollbacks of their environment.

    Args:
        follow: save with each commit and load after each rollback.

    Attributes:
        observed_time: -1 before the first put.
    """

    def __init__(self, environment: Environment, name: str, *, follow: bool = True) -> None:
        self.environment = environment
        self._attribute = f"{name}/observed-time"
        self.observed_time = -1
        self._load()
        if follow:
            environment.before_commit(self.save)
            environment.after_rollback(self._load)

    def _load(self) -> None:
        """Read the committed time, and whatever else depends on the committed rows."""
        kept = self.environment.attribute(self._attribute)
        self.observed_time = -1 if kept is None else LONG.unpack(kept)[0]

    def save(self) -> None:
        if self.observed_time >= 0:
            self.environment.set_attribute(self._attribute, LONG.pack(self.observed_time))
