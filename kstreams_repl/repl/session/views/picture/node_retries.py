"""The records of a deployed application that wait for another try: rows of the last commit, orders through the control channel."""

from __future__ import annotations

import secrets
import struct
import time
from collections.abc import Callable, Mapping

from kstreams_repl.engine.runtime.calls.async_calls import RetryAction
from kstreams_repl.engine.runtime.calls.pending_rows import PendingRow
from kstreams_repl.host.instance.control.open_channel import open_orders
from kstreams_repl.host.instance.state.state_directory import control_directory, state_root
from kstreams_repl.host.journal.journal_records import RetryOrder
from kstreams_repl.pictures.retries import Retries, WaitingRecord, async_operator, waiting_record
from kstreams_repl.repl.session.application.core import ApplicationCore
from kstreams_repl.repl.session.views.stores.store_reader import read_store
from kstreams_repl.system.errors import IllegalStateError, InvalidStateStoreError

_LONG = struct.Struct(">q")
_POLL_SECONDS = 0.1


class DeployedRetries:
    """`pictures.retries.RetrySource` of one node of an application."""

    def __init__(self, application: ApplicationCore, node: str) -> None:
        self._application, self._node = application, node
        self._operator = async_operator(application.topology.nodes, node)

    def read(self) -> list[WaitingRecord]:
        """Return the records that wait as of the last commit; none before the first one."""
        app = self._application
        try:
            rows = read_store(app.client.admin, app.config, app.topology, app.topology.store(self._operator.store), limit=None)
        except InvalidStateStoreError:
            return []
        found = (
            waiting_record(part.partition, _LONG.unpack(key)[0], PendingRow.decode(value), self._operator, app.config)
            for part in rows.parts
            for key, value in zip(part.keys, part.values, strict=True)
        )
        return [record for record in found if record is not None]

    def order(self, action: RetryAction, rows: Mapping[int, list[int]], done: Callable[[], bool], timeout: float) -> None:
        """Have the tasks do something with records, and wait until `done` or the timeout (seconds).

        Raises:
            IllegalStateError: the application does not run.
            BrokerUnavailableError: its instances run on other hosts, and the journal cannot be written now.
        """
        app = self._application
        if app.status != "running":
            raise IllegalStateError(
                f"{app.name} is {app.status}: only a running application tries or drops waiting records",
                hint="app.resume(), then again; the records wait in the store", application=app.name,
            )  # fmt: skip
        until_ms = int((time.time() + timeout) * 1000)
        numbers = {str(task): tuple(each) for task, each in rows.items()}
        order = RetryOrder(app.generation, secrets.token_hex(8), self._node, action, numbers, until_ms)
        box = open_orders(control_directory(state_root(app.config), app.name), app.client.settings, app.name, remote=app.reports.remote)
        try:
            box.put(order)
            deadline = time.monotonic() + timeout
            while not done() and time.monotonic() < deadline:
                time.sleep(_POLL_SECONDS)
        finally:
            box.close()


def retries_of(application: ApplicationCore, node: str) -> Retries:
    """Return the waiting records of a node."""
    source = DeployedRetries(application, node)
    return Retries(node, source, source.read())
