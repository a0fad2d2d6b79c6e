"""The kernel's side of the JupyterLab side panel: brokers, topics, stores, applications, and what its buttons do.

Two comm targets. ``kstreams_repl``: the panel sends ``{"do": "list"}`` and gets a `state` back, or ``{"do": ACTION, "name": APPLICATION}``
with the actions of the picture; these are answered by ``heard`` at once (a panel that hears nothing tells its user that a cell is in the
way) and by ``done`` or ``error`` at their end. ``kstreams_repl.picture``: one open tab with the live picture of one application, the
protocol of `live.LivePicture`. Everything slow runs on a thread; what the panel sends is checked, and all it can name is an application
and an action.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

from kernel_ext.live import CONTROLS, LivePicture
from kernel_ext.subshells import heard_at_once
from kernel_ext.workspace import Workspace
from kstreams_repl.display.markup import clean_text, one_line
from kstreams_repl.errors import KStreamsError
from kstreams_repl.kafka.reading import ranges_of
from kstreams_repl.session import Application, Session
from kstreams_repl.session.internal_names import internal_names
from kstreams_repl.session.store_view import StoreView

TARGET = "kstreams_repl"
PICTURE_TARGET = "kstreams_repl.picture"
TOPICS = 200


class SidePanel:
    """Answers the side panels of one kernel."""

    def __init__(self, workspace: Workspace, kernel_busy: Callable[[], bool] = lambda: False) -> None:
        self._workspace = workspace
        self._kernel_busy = kernel_busy
        self._comms: Any = None
        self._targets = {TARGET: self._opened, PICTURE_TARGET: self._picture_opened}

    def register(self, comm_manager: Any) -> None:
        """Make the targets known; without a kernel (None) nothing happens."""
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

    def _opened(self, comm: Any, message: Any) -> None:
        heard_at_once(comm)
        listing = threading.Lock()

        def send_state() -> None:
            if not listing.acquire(blocking=False):
                return  # the one that is on its way will do
            try:
                comm.send({"state": state_of(self._workspace.current)})
            finally:
                listing.release()

        def received(message: Any) -> None:
            content = message["content"]["data"]
            action, name = content.get("do"), str(content.get("name", ""))
            if action == "list":
                _start(send_state)
            elif action in CONTROLS:
                comm.send({"heard": {"do": action, "name": one_line(name)}})
                _start(lambda: self._control(comm, str(action), name, send_state))

        comm.on_msg(received)
        _start(send_state)

    def _control(self, comm: Any, action: str, name: str, send_state: Callable[[], None]) -> None:
        try:
            getattr(self._application(name), action)()
            comm.send({"done": {"do": action, "name": one_line(name)}})
        except Exception as error:  # shown where the button is
            comm.send({"error": {"do": action, "name": one_line(name), "message": clean_text(error, limit=2000)}})
        send_state()

    def _application(self, name: str) -> Application:
        session = self._workspace.current
        known = {} if session is None else session.applications
        if name not in known:
            raise KStreamsError(f"there is no application {name!r} in this notebook")
        return known[name]

    # ---- a tab with the picture

    def _picture_opened(self, comm: Any, message: Any) -> None:
        try:
            application = self._application(str(message["content"]["data"].get("name", "")))
        except KStreamsError as error:
            comm.send({"error": {"message": clean_text(error)}})
            return
        heard_at_once(comm)
        live = LivePicture(application, lambda changed: comm.send({"set": changed}), self._kernel_busy)
        comm.on_msg(lambda message: live.receive(message["content"]["data"]))
        comm.on_close(lambda message: live.leave())
        _start(lambda: self._first_look(comm, live))

    def _first_look(self, comm: Any, live: LivePicture) -> None:
        comm.send({"set": live.state})
        live.refresh()


def state_of(session: Session | None) -> dict[str, Any]:
    """What the panel shows, as plain values; every text is clean, none is markup."""
    if session is None or session.closed:
        return {"session": None, "brokers": [], "topics": [], "stores": [], "applications": [], "apart": []}
    state: dict[str, Any] = {"session": one_line(repr(session)), "brokers": [], "topics": [], "problem": ""}
    if session.started:
        try:
            state["brokers"] = [one_line(address) for address in session.bootstrap_servers.split(",")]
            state["topics"] = _topics(session)
        except KStreamsError as error:  # the rest can be said all the same
            state["problem"] = clean_text(error.message)
    applications = tuple(session.applications.values())
    state["stores"] = [_store_row(app, store, state) for app in applications for store in app.stores.values()]
    state["applications"] = [_application_row(app) for app in applications]
    apart = {name: status for name, status in session.detached.items() if name not in session.applications}
    state["apart"] = [{"name": one_line(name), "status": one_line(status)} for name, status in apart.items()]
    return state


def _topics(session: Session) -> list[dict[str, Any]]:
    counts, own = session.admin.topics(), internal_names(session.admin)
    rows = []
    for name in list(counts)[:TOPICS]:
        ranges = ranges_of(session.admin, name, isolation="read_uncommitted")
        records = sum(item.end - item.start for item in ranges)
        rows.append({"name": one_line(name), "partitions": counts[name], "records": records, "internal": name in own})
    return rows


def _store_row(app: Application, store: StoreView, state: dict[str, Any]) -> dict[str, Any]:
    rows = None
    try:
        rows = store.count()
    except KStreamsError as error:  # damaged, say
        state["problem"] = clean_text(error.message)
    return {"name": one_line(store.name), "kind": store.kind, "rows": rows, "application": one_line(app.name)}


def _application_row(app: Application) -> dict[str, Any]:
    told, error = app.reports, app.error
    return {
        "name": one_line(app.name),
        "status": app.status,
        "detached": app.detached,
        "records": told.records,
        "rate": round(told.rate) if app.status == "running" else 0,
        "lag": told.lag if told.lag >= 0 else None,
        "stale": len(app.stale),
        "error": "" if error is None else one_line(error.message.splitlines()[0], limit=200),
    }


def _start(work: Callable[[], None]) -> None:
    threading.Thread(target=work, name="kstreams-side-panel", daemon=True).start()
