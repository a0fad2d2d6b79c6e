"""The kernel's side of the JupyterLab side panel: brokers, topics, stores and applications, and the actions of its buttons.

Two comm targets. ``kstreams_repl``: the panel sends ``{"do": "list"}`` and receives a `state`, or sends ``{"do": ACTION, "name":
APPLICATION}`` with the actions of the picture, ``attach``, or ``remove`` (which answers with the list of what it would delete,
`cleanup`, and deletes it with ``"confirm": true``). The buttons below an error output send ``record`` and ``skip`` with `at`, the
coordinates of the record at which the application failed (``record`` answers with its columns as texts). Each message is answered
at once by ``heard`` (a panel that receives none tells its user that a running cell blocks the kernel), and by ``done`` or
``error`` when the work ends. ``kstreams_repl.picture``: one open tab with the live picture of one application, with the protocol
of `live_picture.LivePicture`. Slow work runs on threads. What the panel sends is checked; it can name only an application, an
action, and the record at which that application failed.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from kernel_ext.live.live_picture import CONTROLS, LivePicture
from kernel_ext.live.subshells import handle_in_subshell
from kernel_ext.workspace import Workspace
from kstreams_repl.host.kafka.reading import FEW_OFFSETS
from kstreams_repl.host.kafka.record_counter import at_most
from kstreams_repl.pictures.markup import clean_text, one_line
from kstreams_repl.repl.session import Application, Records, Session
from kstreams_repl.repl.session.cleanup import Cleanup
from kstreams_repl.repl.session.left_applications import LeftApplication
from kstreams_repl.repl.session.session_directory import PROJECT
from kstreams_repl.repl.session.topics.internal_names import internal_names
from kstreams_repl.repl.session.topics.read import sizes_of_topics
from kstreams_repl.repl.session.views.stores.store_view import StoreView
from kstreams_repl.system.errors import IllegalStateError, KStreamsError, UnknownApplicationError
from kstreams_repl.system.types import JsonMapping, JsonObject

if TYPE_CHECKING:
    from comm.base_comm import BaseComm, CommManager

TARGET = "kstreams_repl"
PICTURE_TARGET = "kstreams_repl.picture"
TOPICS = 200


class SidePanel:
    """Serves the side panels of one kernel."""

    def __init__(self, workspace: Workspace, kernel_busy: Callable[[], bool] = lambda: False) -> None:
        self._workspace = workspace
        self._kernel_busy = kernel_busy
        self._comms: CommManager | None = None
        self._targets = {TARGET: self._opened, PICTURE_TARGET: self._picture_opened}

    def register(self, comm_manager: CommManager | None) -> None:
        """Register the comm targets; without a kernel (None) do nothing."""
        self._comms = comm_manager
        if comm_manager is not None:
            for name, opened in self._targets.items():
                comm_manager.register_target(name, opened)

    def unregister(self) -> None:
        if self._comms is not None:
            for name, opened in self._targets.items():
                self._comms.unregister_target(name, opened)
            self._comms = None

    # ---- the list

    def _opened(self, comm: BaseComm, message: JsonMapping) -> None:
        handle_in_subshell(comm)
        listing = threading.Lock()

        def send_state() -> None:
            if not listing.acquire(blocking=False):
                return  # a state that is being sent already is enough
            try:
                comm.send({"state": state_of(self._workspace.current, self._workspace.left)})
            finally:
                listing.release()

        def received(message: JsonMapping) -> None:
            content = message["content"]["data"]
            action, name = content.get("do"), str(content.get("name", ""))
            confirm = content.get("confirm") is True
            if action == "list":
                _start(send_state)
            elif action == "schema":
                comm.send({"heard": {"do": "schema", "name": one_line(name)}})
                _start(lambda: self._schema(comm, name))
            elif action in ("record", "skip"):
                comm.send({"heard": {"do": action, "name": one_line(name)}})
                _start(lambda: self._failure(comm, str(action), name, str(content.get("at", ""))))
            elif action in (*CONTROLS, "attach", "remove"):
                comm.send({"heard": {"do": action, "name": one_line(name)}})
                _start(lambda: self._control(comm, str(action), name, confirm, send_state))

        comm.on_msg(received)
        _start(send_state)

    def _schema(self, comm: BaseComm, name: str) -> None:
        """Send a topic's columns, as texts."""
        with _errors_sent(comm, "schema", name):
            session = self._workspace.current
            if session is None or not session.started:
                raise IllegalStateError("the session has not started yet")
            found = session.schema(name)
            columns = [[one_line(cell, limit=200) for cell in row] for row in found.rows]
            comm.send({"schema": {"name": one_line(name), "columns": columns, "note": one_line(found.note)}})

    def _failure(self, comm: BaseComm, action: str, name: str, at: str) -> None:
        """Show or skip the record at which an application failed. The error output may be older than the application's state."""
        with _errors_sent(comm, action, name):
            app = self._application(name)
            _refuse_unless_failed_at(app, at)
            if action == "skip":
                app.skip(at)
                comm.send({"done": {"do": action, "name": one_line(name)}})
                return
            comm.send({"record": {"name": one_line(name), "columns": _record_at_failure(app)}})

    def _control(self, comm: BaseComm, action: str, name: str, confirm: bool, send_state: Callable[[], None]) -> None:
        with _errors_sent(comm, action, name):
            if action == "attach":
                self._session().attach(name)
            elif action == "remove":
                found = self._session().cleanup(name, dry_run=not confirm)
                if not confirm:
                    comm.send({"cleanup": _cleanup_message(found)})
                    return
            else:
                getattr(self._application(name), action)()
            comm.send({"done": {"do": action, "name": one_line(name)}})
        send_state()

    def _session(self) -> Session:
        """Return the session; in a kernel without one, connect to the broker whose data is in the working directory.

        Raises:
            IllegalStateError: there is no such broker, so only the user knows which one to use.
        """
        if self._workspace.current is None and not (Path.cwd() / PROJECT / "broker").is_dir():
            raise IllegalStateError("this kernel has no session yet", hint="session = kstreams_repl.connect('HOST:PORT') in a cell")
        return self._workspace.session

    def _application(self, name: str) -> Application:
        session = self._workspace.current
        known = {} if session is None else session.applications
        if name not in known:
            raise UnknownApplicationError(f"no application {name!r} in this notebook")
        return known[name]

    # ---- a tab with the picture

    def _picture_opened(self, comm: BaseComm, message: JsonMapping) -> None:
        try:
            application = self._application(str(message["content"]["data"].get("name", "")))
        except KStreamsError as error:
            comm.send({"error": {"message": clean_text(error)}})
            return
        handle_in_subshell(comm)
        live = LivePicture(application, lambda changed: comm.send({"set": changed}), self._kernel_busy)
        comm.on_msg(lambda message: live.receive(message["content"]["data"]))
        comm.on_close(lambda message: live.leave())
        _start(lambda: self._send_first_state(comm, live))

    def _send_first_state(self, comm: BaseComm, live: LivePicture) -> None:
        comm.send({"set": live.state})
        live.refresh()


@contextmanager
def _errors_sent(comm: BaseComm, action: str, name: str) -> Iterator[None]:
    """Send what the block raises to the panel, which shows it next to the button or in the list of topics."""
    try:
        yield
    except Exception as error:  # of the user's code, the broker or Spark: this thread has no other place to report it
        comm.send({"error": {"do": action, "name": one_line(name), "message": clean_text(error, limit=2000)}})


def state_of(session: Session | None, left: Collection[LeftApplication] = ()) -> JsonObject:
    """Return what the panel shows, as plain values; all texts are cleaned, none is markup.

    Args:
        left: applications in the session's directory that are not attached.
    """
    applications = () if session is None or session.closed else tuple(session.applications.values())
    attached = {app.name for app in applications}  # perhaps since the others were listed
    others = [
        {"name": one_line(item.name), "status": item.status, "standing": one_line(item.standing), "detached": item.detached,
         "driven": item.pid is not None, "error": item.error}
        for item in left
        if item.name not in attached
    ]  # fmt: skip
    if session is None or session.closed:
        return {"session": None, "brokers": [], "topics": [], "stores": [], "applications": [], "left": others}
    state: JsonObject = {"session": one_line(repr(session)), "brokers": [], "topics": [], "problem": "", "left": others}
    if session.started:
        try:
            state["brokers"] = [one_line(address) for address in session.bootstrap_servers.split(",")]
            state["topics"] = _topics(session)
        except KStreamsError as error:  # the other values can still be shown
            state["problem"] = clean_text(error.message)
    state["stores"] = [_store_row(app, store, state) for app in applications for store in app.stores.values()]
    state["applications"] = [_application_row(app) for app in applications]
    return state


def _topics(session: Session) -> list[JsonObject]:
    counts, own = session.admin.topics(), internal_names(session.admin)
    rows = []
    sizes = sizes_of_topics(session.admin, session.client.counter, list(counts)[:TOPICS], most=FEW_OFFSETS)
    for name in sizes:
        records, offsets = sizes[name]
        shown = at_most(None, offsets) if records is None else records
        rows.append({"name": one_line(name), "partitions": counts[name], "records": shown, "internal": name in own})
    return rows


def _store_row(app: Application, store: StoreView, state: JsonObject) -> JsonObject:
    rows = None
    try:
        rows = store.count()
    except KStreamsError as error:  # for example, a damaged store
        state["problem"] = clean_text(error.message)
    return {"name": one_line(store.name), "kind": store.kind, "rows": rows, "application": one_line(app.name)}


def _application_row(app: Application) -> JsonObject:
    counts, error = app.counts, app.error
    return {
        "name": one_line(app.name),
        "status": app.status,
        "detached": app._core.detached,
        "records": counts.records,
        "rate": round(counts.per_second),
        "lag": counts.lag if counts.lag >= 0 else None,
        "stale": len(app._core.stale),
        "error": "" if error is None else one_line(error.message.splitlines()[0], limit=200),
    }


def _refuse_unless_failed_at(app: Application, at: str) -> None:
    """Raise IllegalStateError unless the application is failed at this record."""
    error = app.error
    failed = None if error is None else error.record_position
    if str(failed) != at:
        found = f"failed at {failed}" if failed else f"is {app.status}"
        raise IllegalStateError(f"expected {app.name} to have failed at {at}, but it {found}")


def _record_at_failure(app: Application) -> list[list[str]]:
    """Return names and values of the record at which an application failed, as texts.

    Raises:
        KStreamsError: the broker no longer has it.
    """
    record = app.failed_record
    if record is None:
        raise KStreamsError(f"the broker no longer has the record at which {app.name} failed")
    shown = Records([record]).table()
    (row,) = shown.rows
    return [[one_line(name), one_line(value, limit=2000)] for name, value in zip(shown.columns, row, strict=True)]


def _cleanup_message(cleanup: Cleanup) -> JsonObject:
    """Return what removing an application would delete."""
    table = cleanup.table()
    rows = [[one_line(cell) for cell in row] for row in table.rows]
    return {"name": one_line(cleanup.name), "rows": rows, "note": clean_text(table.note)}


def _start(work: Callable[[], None]) -> None:
    threading.Thread(target=work, name="kstreams-side-panel", daemon=True).start()
