"""Which of several processes that could drive an application does: the first one, a standby when that one is gone, or one that takes over.

A driver process on this host has the application's driver lock; one elsewhere is a member of its consumer group
(`host.kafka.driver_member`). Neither decides about the data: if two drive it after all, the later one fences the earlier.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field

from kstreams_repl.host.instance.control.file_channel import read_lease
from kstreams_repl.host.instance.state.state_directory import control_directory
from kstreams_repl.host.journal.journal import generation_in_force
from kstreams_repl.host.kafka.driver_member import driving_hosts
from kstreams_repl.repl.session.application.detached.mailbox import Mailbox
from kstreams_repl.repl.session.cluster_client import ClusterClient
from kstreams_repl.repl.session.left_applications import driving_process
from kstreams_repl.system.errors import AlreadyOwnedError, BrokerUnavailableError

_LOCK_SECONDS = 0.02
_GROUP_SECONDS = 0.5


@dataclass(frozen=True, slots=True)
class Succession:
    """What a process does when another one drives the application it is to drive.

    Attributes:
        standby: wait until that one is gone, for whatever reason.
        take_over: end it at a commit if it is a driver process on this host, fence it if it is elsewhere.
    """

    standby: bool = False
    take_over: bool = False
    _seen: list[str] = field(default_factory=list, init=False)

    def take(self, mailbox: Mailbox, client: ClusterClient, check: Callable[[], object]) -> None:
        """Return, with the driver lock, when this process is to drive the application.

        Args:
            check: raises if the application could not be deployed; called before another process is ended.

        Raises:
            AlreadyOwnedError: another process drives it.
        """
        asked = False
        while not mailbox.take():
            driver = mailbox.driven
            if not self.take_over:
                self._wait_for(client, mailbox.application, f"process {'unknown' if driver is None else driver.pid}")
            elif driver is not None and not asked:
                self._prepare(client, check)
                driver.process.ask_to_end()
                asked = True
            time.sleep(_LOCK_SECONDS)
        if self.take_over and not asked and driving_hosts(client.admin, mailbox.application):
            self._prepare(client, check)
        while not self.take_over and (hosts := self._elsewhere(mailbox, client)):
            self._wait_for(client, mailbox.application, f"a process on {hosts[0]}")

    def _prepare(self, client: ClusterClient, check: Callable[[], object]) -> None:
        check()
        assert client.spark.session is not None

    def _wait_for(self, client: ClusterClient, name: str, driver: str) -> None:
        if not self.standby:
            raise AlreadyOwnedError(
                f"{name} is driven by {driver}",
                hint=f"--standby waits until it is gone, --take-over goes on here; ./kstreams apps stop {name} ends one on this host",
            )
        if driver not in self._seen:
            self._seen.append(driver)
            client.report(f"standby: {name} is driven by {driver}")
        time.sleep(_GROUP_SECONDS)

    def _elsewhere(self, mailbox: Mailbox, client: ClusterClient) -> tuple[str, ...]:
        """Return the hosts of other drivers. Not that of one that was killed on this host and drove the application last: the group keeps
        its member for some seconds."""
        name = mailbox.application
        try:
            lease = read_lease(control_directory(mailbox.root, name))
            last = lease is not None and lease.generation >= (generation_in_force(client.settings, name) or 0)
            if last and driving_process(mailbox.root, name) is None:
                return ()
            return driving_hosts(client.admin, name)
        except BrokerUnavailableError:
            return ("an unknown host",) if self.standby else ()
