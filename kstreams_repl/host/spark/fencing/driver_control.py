"""The driver's control of one application: commands and reports through the lease, the generation through the journal."""

from __future__ import annotations

import logging
from collections.abc import Collection, Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from kstreams_repl.host.instance.application_plan import ApplicationPlan
from kstreams_repl.host.instance.control.channel import Signal
from kstreams_repl.host.instance.control.open_channel import open_channel
from kstreams_repl.host.instance.initialization.task_initialization import fence_instances
from kstreams_repl.host.kafka.admin import Admin
from kstreams_repl.host.kafka.clients import ClientSettings
from kstreams_repl.host.kafka.driver_member import DriverMember
from kstreams_repl.host.kafka.exact_metadata import OffsetAndMetadata
from kstreams_repl.host.spark.failures.failure_translation import taken_over
from kstreams_repl.host.spark.fencing.generation_fencing import Generations, VersionText
from kstreams_repl.host.spark.fencing.state_migration import NewRows, migrate_stores
from kstreams_repl.system.errors import KStreamsError, TaskMigratedError
from kstreams_repl.system.types import TopicPartition

_LOG = logging.getLogger("kstreams_repl.host.spark")


class DriverControl:
    """The lease, and the journal while it is open: from the first start until a stop or a migration.

    Args:
        directory: the application's control directory.
        timeout_ms: transaction timeout of its instances.

    Attributes:
        lease: on a cluster it uses the journal.
        generations: the open journal, or None.
    """

    def __init__(self, settings: ClientSettings, application_id: str, directory: Path, *, timeout_ms: int) -> None:
        self._settings = settings
        self._application_id = application_id
        self._timeout_ms = timeout_ms
        self.lease = open_channel(directory, settings, application_id)
        self.generations: Generations | None = None
        self._member: DriverMember | None = None

    def open(self, admin: Admin, *, remote: bool) -> Generations:
        """Return the open journal, or open it, which fences the previous driver.

        Args:
            remote: instances run on a cluster.
        """
        if remote and not self.lease.remote:
            self.lease = open_channel(self.lease.directory, self._settings, self._application_id, remote=True)
        if self.generations is None or self.generations.is_broken:
            self.generations = Generations(self._settings, admin, self._application_id, self.lease)
        return self.generations

    def join(self, topics: Iterable[str]) -> None:
        """Be a member of the application's group until `close`, as the reader of these topics."""
        wanted = tuple(sorted(topics))
        if self._member is not None and self._member.topics != wanted:
            self._leave()
        if self._member is None and wanted:
            self._member = DriverMember(self._settings, self._application_id, wanted)

    def _leave(self) -> None:
        if self._member is not None:
            self._member.close()
            self._member = None

    def close(self) -> None:
        self._leave()
        if self.generations is not None:
            self.generations.close()
            self.generations = None

    def fence(self, slots: Iterable[int]) -> None:
        """Fence the transactional ids of these slots: no instance that started earlier can commit any more."""
        fence_instances(self._settings, self._application_id, slots, timeout_ms=self._timeout_ms)

    def record(self, plan: ApplicationPlan, signal: Signal, *, finished: bool = False) -> bool:
        """Write the state to the journal, for drivers that attach later. Log a failure (no broker, fenced by a successor) and return
        False."""
        try:
            if self.generations is not None:
                self.generations.tell(plan, signal, finished=finished)
        except KStreamsError as error:
            _LOG.warning("the journal was not written: %s", error, extra={"application": self._application_id})
            return False
        return True

    def successor(self) -> TaskMigratedError | None:
        """Return the error of an application that another program has taken over; None: none has, or the broker does not answer."""
        try:
            desired = None if self.generations is None else self.generations.successor()
        except KStreamsError as error:
            _LOG.info("the journal cannot be read now: %s", error, extra={"application": self._application_id})
            return None
        return None if desired is None else taken_over(self._application_id, desired.generation, desired.version)

    def keep_alive(self) -> None:
        """Keep the control id from expiring on the broker (`Generations.stay`)."""
        if self.generations is not None:
            self.generations.stay()

    def declare(self, version: VersionText) -> None:
        """Write which version the next start of an application at rest runs."""
        with self._held() as generations:
            generations.declare(version)

    def delete_changelogs(self, topics: Collection[str]) -> None:
        """Delete changelogs of an application at rest.

        Every instance that may still hold a transactional id of the application is fenced first: a late record of it would be written to
        the topic that the next start creates under the same name.
        """
        if topics:
            with self._held() as generations:
                self.fence(range(generations.slots))
            Admin(self._settings).delete_topics(topics)

    def migrate(
        self, migrations: Collection[NewRows], version: VersionText, offsets: Mapping[TopicPartition, OffsetAndMetadata]
    ) -> None:
        """Give an application at rest new rows (`migrate_stores`), which uses the control id and closes the journal."""
        self.close()
        migrate_stores(
            migrations, version, self._settings, self._application_id, self.lease, timeout_ms=self._timeout_ms, offsets=offsets
        )

    @contextmanager
    def _held(self) -> Iterator[Generations]:
        """Yield the open journal, or open it for this block if it is closed or broken."""
        if self.generations is not None and not self.generations.is_broken:
            yield self.generations
            return
        generations = Generations(self._settings, Admin(self._settings), self._application_id, self.lease)
        try:
            yield generations
        finally:
            generations.close()
