"""`LivePicture`: an application's picture and controls as a small state that a front end mirrors.

The widget and the side panel's tab share it. Actors: a front end (sends heartbeats, the selected shape and pressed buttons), the
application, and short-lived threads that update, control and look up, so that the kernel stays free. Invariants: updates continue
only while a front end is connected (it sends a heartbeat every few seconds; while a cell runs, a heartbeat may be waiting in the
queue, so silence does not count then), and for that time `beat` shows the front end that the kernel is alive; the drawing is sent
only when its shapes change, otherwise only numbers; a thread never prints.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable
from dataclasses import replace
from itertools import count

from kernel_ext.failures import failure_of
from kernel_ext.live.node_details import ROWS, about, live_values, rows_behind, sampled_values
from kernel_ext.live.rate_history import Histories
from kernel_ext.live.view_heartbeat import OpenViews
from kstreams_repl.engine.topology.differences.node_diff import whole_code
from kstreams_repl.pictures.graph.live_marks import LiveDrawing
from kstreams_repl.pictures.graph.picture import Mark, Picture
from kstreams_repl.pictures.graph.view import View, summary_of
from kstreams_repl.pictures.markup import clean_text, element, join
from kstreams_repl.repl.session import Application
from kstreams_repl.repl.session.application.application import handle_on
from kstreams_repl.repl.session.application.edits.edit import EditPlan
from kstreams_repl.repl.session.application.edits.topology_resolution import topology_of
from kstreams_repl.repl.session.application.forks.fork import Fork
from kstreams_repl.repl.session.application.forks.fork_record import read_records
from kstreams_repl.repl.session.topics.records import ReadRecord
from kstreams_repl.repl.session.views.stores.store_pages import StorePages
from kstreams_repl.repl.session.views.values.live_taps import LiveTap
from kstreams_repl.system.errors import KStreamsError, TapUnavailableError
from kstreams_repl.system.types import JsonMapping, JsonObject

UPDATE_SECONDS = 0.4
DETAIL_SECONDS = 2.0
ACTION_ERROR_SECONDS = 20.0  # how long the failure of a button's action is shown before rows replace it
BEAT_SECONDS = 0.5
FILTER_CHARACTERS = 1_000
COMPARED_RECORDS = 10_000
CONTROLS = ("pause", "resume", "stop")

START: JsonObject = {
    "name": "", "svg": "", "marks": {}, "flows": [], "status": "", "note": "", "busy": False, "changed": False, "planned": False,
    "outdated": False, "selected": "", "failure": "", "detail": "", "about": "", "values": "",
    "paging": {}, "history": [], "shape_history": [], "beat": 0, "detached": False, "view": summary_of(None, View()),
}  # fmt: skip
"""The state that a front end mirrors. `svg`, `failure`, `detail`, `about` and `values` are markup; the others are plain text."""


class LivePicture:
    """The state of one application's picture.

    Args:
        send: called with the changed part of the state, from any thread.
        kernel_busy: whether a cell is running, so that messages of front ends cannot arrive.
    """

    def __init__(
        self, application: Application, send: Callable[[JsonObject], None], kernel_busy: Callable[[], bool] = lambda: False
    ) -> None:
        self.application = application
        self.state: JsonObject = {**START, "name": clean_text(application.name)}
        self._send = send
        self._open_views = OpenViews(kernel_busy)
        self._kernel_busy = kernel_busy
        self._updating, self._beating = threading.Lock(), threading.Lock()
        self._view = View()
        self._histories = Histories()
        self._writing = threading.RLock()
        self._whole: Picture | None = None
        self._live = LiveDrawing()
        self._next_read = self._next_comparison = 0.0
        self._tap: LiveTap | None = None
        self._tapped: tuple[Application, str] | None = None
        self._not_tapped: tuple[Application, str] | None = None
        self._passed: deque[ReadRecord] = deque(maxlen=ROWS)
        self._shown_plan: object = None
        self._beside: Fork | None = None
        self._failed = ""
        self._with_record = False
        self._paging = threading.RLock()
        self._pages: tuple[Application, str, StorePages] | None = None

    # ---- from the front end

    def receive(self, message: JsonMapping) -> None:
        """Handle one message of a front end; returns at once. Unknown messages are ignored."""
        action, view = message.get("do"), str(message.get("view", ""))
        if action == "alive":
            self._open_views.heartbeat(view)
            self._start("update", self._update)
            self._start("beat", self._beat)
        elif action == "gone":
            self._open_views.close(view)
        elif action == "select":
            self._select(str(message.get("shape", "")))
        elif action in ("show", "fold"):
            self._start("view", lambda: self._change_view(message))
        elif action == "rows":
            self._start("rows", lambda: self._turn(message))
        elif action in CONTROLS:
            self._start(str(action), lambda: self._control(getattr(self.application, str(action)), again=True))
        elif action == "edit":
            self._start("edit", lambda: self._control(self._plan))
        elif action == "record":
            self._start("record", self._show_record)
        elif action == "skip":
            self._start("skip", lambda: self._control(lambda: self.application.skip(str(message.get("at", "")))))
        elif action == "apply" and self.state["planned"]:
            self._start("apply", lambda: self._control(self._apply))
        elif action in ("compare", "fork") and self.state["planned"]:
            self._start(str(action), lambda: self._control(self._compare_with_plan if action == "compare" else self._fork))

    def leave(self) -> None:
        """Record that no front end is connected any more."""
        self._open_views.close()

    # ---- to the front end

    def set(self, **values: object) -> None:
        """Change the state and send what changed. One thread at a time, so that the front end receives the last change last."""
        with self._writing:
            changed = {name: value for name, value in values.items() if self.state[name] != value}
            self.state.update(changed)
            if changed:
                self._send(changed)

    def refresh(self) -> None:
        """Send the current state: the whole drawing if its shapes changed, else the numbers."""
        core = self.application._core
        if core.client.closed:
            self._show_closed()
            return
        core = core.current
        app = self.application = handle_on(core)  # it may have been deployed again
        whole = self._whole = replace(app.picture(), title=app.name)  # the status is sent separately: it changes more often
        counts = app.counts
        self._histories.add(whole, counts.per_second, counts.lag)
        changes = f" · {len(core.stale)} changed in the notebook: edit shows the plan" if core.stale else ""
        self.set(
            **self._live.state(whole, self._view),
            status=app.status,
            note=clean_text(repr(app)) + changes,
            changed=bool(core.stale),
            detached=core.detached,
            history=self._histories.of(""),
            shape_history=self._histories.of(self.state["selected"]),
        )
        self._follow_failure(app)

    def _follow_failure(self, app: Application) -> None:
        """Select the node at which the application failed, unless another is selected; clear its failure when the application
        runs."""
        error = app.error if app.status == "failed" else None
        message = "" if error is None else str(error)
        if message == self._failed:
            return
        began, self._failed = not self._failed, message
        node, selected = "" if error is None else error.node, self.state["selected"]
        if error is None:
            self.set(failure="")
        elif node and began and not selected and not self.state["planned"]:
            self._select(f"node:{node}")
        elif selected.startswith("node:"):
            self._show_failure(selected)

    def _show_failure(self, shape: str) -> None:
        self._show(shape, failure=str(failure_of(self.application, shape.partition(":")[2], record=self._with_record)))

    def _show_record(self) -> None:
        """Show the whole record at which the selected node failed."""
        self._with_record = True
        self._show_failure(self.state["selected"])

    def _show_closed(self) -> None:
        """Show the picture at rest, with the counts of the last commit: the session has stopped its applications. Detached ones
        continue, which is not shown.
        """
        app, whole = self.application, self._whole
        detached = app._core.detached
        if whole is None:
            self.set(status="closed", note="the session is closed")
            return
        goes_on = f"; {app.name} continues in its own process: session.attach({app.name!r}) in a new session" if detached else ""
        if not detached:  # its last commit came after the last refresh; the rows of stores may be gone with the directory
            last = app.picture()
            marks = {shape: mark if mark.lines else whole.marks.get(shape, mark) for shape, mark in last.marks.items()}
            whole = replace(whole, marks=marks)
        still = at_rest(whole, None if detached else "stopped")
        self.set(**self._live.state(still, self._view), status="closed", note=clean_text(f"the session is closed{goes_on}"))

    def _change_view(self, message: JsonMapping) -> None:
        """Change how names, repartitioning, or a sub-topology (or ``all``, or ``none``) are drawn: in full or collapsed."""
        known = frozenset(cluster.id for cluster in self.application.picture().clusters)
        with self._writing:
            names = bool(message.get("names", self._view.names))
            self._view = replace(self._view, names=names, repartitions=bool(message.get("repartitions", self._view.repartitions)))
            if "cluster" in message:
                folded = {"all": known, "none": frozenset[int]()}.get(str(message["cluster"]))
                one = known & {message["cluster"]} if isinstance(message["cluster"], int) else frozenset[int]()
                self._view = replace(self._view, collapsed=self._view.collapsed ^ one if folded is None else folded)
        try:
            self.refresh()
        except Exception as error:
            self.set(note=_message(error))

    def _beat(self) -> None:
        if not self._beating.acquire(blocking=False):
            return
        try:
            while self._open_views.any:
                self.set(beat=self.state["beat"] + 1)
                time.sleep(BEAT_SECONDS)
        finally:
            self._beating.release()

    def _update(self) -> None:
        if not self._updating.acquire(blocking=False):
            return
        try:
            while self._open_views.any and not self.application._core.client.closed:
                self.refresh()
                self._refresh_details()
                self._read_tap()
                self._compare()
                time.sleep(UPDATE_SECONDS)
            self.refresh()
        except Exception as error:  # for example, the broker is unreachable; the next heartbeat tries again
            self.set(note=_message(error))
        finally:
            self._untap()
            self._updating.release()

    def _control(self, call: Callable[[], object], *, again: bool = False) -> None:
        self.set(busy=True)
        try:
            call()
            if again:  # the rows behind the selected shape are of the time before
                self._next_read = 0.0
        except Exception as error:  # shown where the button is
            self.set(detail=str(element("pre", str(error), role="alert")), about="", values="", planned=False)
            self._next_read = time.monotonic() + ACTION_ERROR_SECONDS
        finally:
            try:
                self.refresh()
            except Exception as error:
                self.set(note=_message(error))
            self.set(busy=False)

    def _plan(self, changed: str = "") -> None:
        plan = self.application.changes()
        if plan is None:
            self.set(detail=str(element("div", self._no_plan())), about="", values="", planned=False, outdated=False)
            return
        self._shown_plan = _content_of(plan)
        shown = join([element("div", changed) if changed else None, plan.table().html()])
        self.set(selected="", failure="", paging={}, detail=str(shown), about="", values="", planned=not plan.diff.refused, outdated=False)

    def _compare(self) -> None:
        """Update whether the shown plan is what apply would do now, since cells may have run. Not while a cell runs."""
        if not self.state["planned"] or time.monotonic() < self._next_comparison or self._kernel_busy():
            return
        began = time.monotonic()
        plan = self.application.changes()
        self.set(outdated=plan is None or _content_of(plan) != self._shown_plan)
        self._next_comparison = time.monotonic() + max(1.0, 10 * (time.monotonic() - began))

    def _no_plan(self) -> str:
        """Return why there is no plan to show; raises what prevents the build."""
        app = self.application
        definition = app._core.definition
        if definition is None:
            return f"this notebook has no builder of {app.name}: run the cells that define it, then session.attach({app.name!r}, builder)"
        topology_of(definition, app.config)
        return "nothing to apply: the notebook's builder equals what runs"

    def _current_plan(self) -> EditPlan | None:
        """Return the plan that is shown. If cells ran since and the plan differs, show the new plan instead, and return None."""
        plan = self.application.changes()
        if plan is None or _content_of(plan) != self._shown_plan:
            self._plan("cells have run since the plan was shown; this is the current plan")
            return None
        return plan

    def _apply(self) -> None:
        plan = self._current_plan()
        if plan is not None:
            applied = self.application.apply(plan)
            self.set(detail=str(applied.table().html()), about="", values="", planned=False)

    def _compare_with_plan(self) -> None:
        plan = self._current_plan()
        if plan is not None:
            found = self.application.compare(plan.definition, records=COMPARED_RECORDS)
            self.set(detail=str(join([plan.table().html(), found.table().html()])), about="", values="")

    def _fork(self) -> None:
        plan = self._current_plan()
        if plan is not None:
            app = self.application
            taken = {record.name for record in read_records(app._core.client.directory.path) if record.application == app.name}
            fork = app.fork(next(name for name in map("beside-{}".format, count(1)) if name not in taken), plan.definition)
            self._beside = fork
            self.set(detail=self._differing(fork), about="", values="", planned=False, selected="")
            self._next_read = time.monotonic() + DETAIL_SECONDS

    def _differing(self, fork: Fork) -> str:
        """Return how a fork differs so far, or what it is while it starts."""
        runs = fork.status == "running"
        then = f"In a cell: session.forks[{fork.id!r}].compare(), %topo_promote {fork.id}, or %topo_drop {fork.id}"
        return str(join([(fork.live() if runs else fork.table()).html(), element("div", then)]))

    # ---- details of the selected shape

    def _select(self, shape: str) -> None:
        if shape and not any(shape == known.id for known in self.application.picture().shapes):
            return
        if not shape and not self.state["selected"]:
            self._beside = None
        self._with_record, self._next_read, self._pages = False, 0.0, None
        reading = str(element("div", f"reading {shape.partition(':')[2]} …")) if shape else ""
        self.set(
            selected=shape, planned=False, failure="", about="", values="", detail=reading, paging={},
            shape_history=self._histories.of(shape) if shape else [],
        )
        if shape:
            self._start("details", lambda: self._read_details(shape))

    def _read_details(self, shape: str) -> None:
        try:
            kind, _, name = shape.partition(":")
            if kind == "node":
                self._show_failure(shape)
            self._show_rows(shape)
            if kind == "node":
                self._show(shape, about=str(about(self.application, name)))
                sampled = str(sampled_values(self.application, name))
                if not self._passed:
                    self._show(shape, values=sampled)
        except Exception as error:  # any error is shown in the drawer, where the user expects the rows
            self._show(shape, about=str(element("pre", str(error), role="alert")))

    def _show_rows(self, shape: str) -> None:
        """Read the rows of a shape; of a store, the page that was chosen."""
        kind, _, name = shape.partition(":")
        if kind != "store":
            self._show(shape, detail=str(rows_behind(self.application, shape)))
            return
        with self._paging:
            app = self.application
            if self._pages is None or self._pages[:2] != (app, shape):
                self._pages = (app, shape, StorePages(app._core, app.topology.store(name), ROWS))
            table, controls = self._pages[2].read()
            self._show(shape, detail=str(table.html()), paging=controls)

    def _turn(self, message: JsonMapping) -> None:
        """Show another page of the selected store's rows, or those that a filter names."""
        shape = self.state["selected"]
        with self._paging:
            if self._pages is not None and self._pages[1] == shape:
                if "filter" in message:
                    self._pages[2].filter(str(message["filter"])[:FILTER_CHARACTERS])
                if "earlier" in message:
                    self._pages[2].earlier(bool(message["earlier"]))
                if isinstance(message.get("moment"), int):
                    self._pages[2].choose(message["moment"])
                self._pages[2].turn(str(message.get("turn", "")))
        if isinstance(message.get("why"), int):
            self._explain(shape, message["why"])
        else:
            self._read_details(shape)

    def _explain(self, shape: str, index: int) -> None:
        """Show which records made a row of the present page."""
        store = shape.partition(":")[2]
        self._show(shape, values=str(element("div", "which records made it? …", role="status")))
        try:
            with self._paging:
                if self._pages is None or self._pages[1] != shape:
                    return
                key, window, as_of = self._pages[2].row(index)
            causes = self.application.why(store, key, window=window, as_of=as_of)
            self._show(shape, values=str(causes.table().html()))
        except Exception as error:  # any error is shown in the drawer, where the user expects the records
            self._show(shape, values=str(element("pre", str(error), role="alert")))

    def _refresh_details(self) -> None:
        """Read the rows of the selected store or topic, or how the panel's fork differs, every few seconds; less often if that is slow."""
        shape, now, fork = self.state["selected"], time.monotonic(), self._beside
        if not (shape or fork) or now < self._next_read or self.state["planned"]:
            return
        try:
            if shape:
                self._show_rows(shape)
            elif fork is not None:
                gone = all(record.id != fork.id for record in read_records(self.application._core.client.directory.path))
                self._beside = None if gone else fork
                self._show("", detail="" if gone else self._differing(fork))
        except Exception as error:
            self._show(shape, detail=str(element("pre", str(error), role="alert")))
        spent = time.monotonic() - now
        self._next_read = time.monotonic() + max(DETAIL_SECONDS, 10 * spent)

    def _read_tap(self) -> None:
        """Show values as they pass the selected node: the tasks have a tap while it is selected and a front end is connected."""
        kind, _, name = str(self.state["selected"]).partition(":")
        wanted = name if kind == "node" and self.application.status == "running" else None
        if self._tap is not None and (wanted is None or self._tapped != (self.application, wanted)):
            self._untap()
        if wanted is None or not self._can_be_tapped(wanted) or self._not_tapped == (self.application, wanted):
            return
        try:
            if self._tap is None:
                self._tapped = self.application, wanted
                self._tap = LiveTap(self.application._core, wanted, rows=ROWS).__enter__()
            fresh = self._tap.new()
        except TapUnavailableError as error:
            self._untap()
            self._not_tapped = self.application, wanted
            self._show(f"node:{wanted}", values=str(element("pre", str(error), role="status")))
            return
        if fresh:
            self._passed.extend(fresh)
            self._show(f"node:{wanted}", values=str(live_values(self._passed, self._tap.count)))

    def _can_be_tapped(self, node: str) -> bool:
        shared = self.application.topology.global_stores()  # nodes of a global table belong to no task
        return shared is None or all(other.name != node for other in shared.nodes)

    def _untap(self) -> None:
        if self._tap is not None:
            self._tap.__exit__(None, None, None)
            self._tap = None
        self._passed.clear()

    def _show(self, shape: str, **values: object) -> None:
        with self._writing:
            if self.state["selected"] == shape:
                self.set(**values)

    def _start(self, what: str, work: Callable[[], None]) -> None:
        threading.Thread(target=work, name=f"panel-{what}-{self.application.name}", daemon=True).start()


def _content_of(plan: EditPlan) -> object:
    """Return what a plan would run, in comparable form: cells, and helpers that functions call, may change after it was made."""
    return str(plan.topology.describe()), whole_code(plan.topology), plan.diff.empty


def _message(error: BaseException) -> str:
    return clean_text(error.message if isinstance(error, KStreamsError) else f"{type(error).__name__}: {error}")


def at_rest(picture: Picture, state: str | None) -> Picture:
    """Return the picture without rates, in a state of rest; failed and silent nodes keep their state."""

    def still(mark: Mark) -> Mark:
        moving = mark.state in ("running", "restoring", "paused")
        lines = tuple(line for line in mark.lines if not line.endswith(("records/s", "restored")))
        return Mark(state if moving else mark.state, lines, None if mark.rate is None else 0.0, mark.lag)

    return replace(picture, marks={shape: still(mark) for shape, mark in picture.marks.items()}, state=state)
