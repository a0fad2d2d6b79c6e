"""`LivePicture`: an application's picture and controls as a small state that a front end mirrors.

The widget and the side panel's tab share it. Actors: a front end (says that it is there, what is selected, which button was pressed), the
application, and short-lived threads that update, control and look things up, so that the kernel stays free. Invariants: updates go on
only while a front end is there (it says so every few seconds; while a cell runs its word may be waiting, so silence does not count then);
the drawing is sent when its shapes change, and only numbers otherwise; nothing is ever printed from a thread.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

from kernel_ext.shape_detail import ROWS, about, live_values, rows_behind, sampled_values
from kernel_ext.watched import Watched
from kstreams_repl.display.arrange import Room, room_for
from kstreams_repl.display.markup import clean_text, element, join
from kstreams_repl.display.picture import Picture
from kstreams_repl.display.svg import marked_rows, svg_of
from kstreams_repl.errors import KStreamsError, TapUnavailableError
from kstreams_repl.session import Application
from kstreams_repl.session.editing import EditPlan
from kstreams_repl.session.live_taps import LiveTap
from kstreams_repl.session.records import ReadRecord
from kstreams_repl.session.topologies import topology_of
from kstreams_repl.topology.diff import whole_code

UPDATE_SECONDS = 0.4
DETAIL_SECONDS = 2.0
CONTROLS = ("pause", "resume", "stop")

START: dict[str, Any] = {
    "name": "", "svg": "", "marks": {}, "status": "", "note": "", "busy": False, "changed": False, "planned": False,
    "selected": "", "detail": "", "about": "", "values": "",
}  # fmt: skip
"""What a front end mirrors. `svg`, `detail`, `about` and `values` are markup; everything else is text that it must not take for markup."""


class LivePicture:
    """The state of one application's picture.

    Args:
        tell: called with the part of the state that has changed; from any thread.
        kernel_busy: whether a cell is running, so that front ends cannot be heard.
    """

    def __init__(
        self, application: Application, tell: Callable[[dict[str, Any]], None], kernel_busy: Callable[[], bool] = lambda: False
    ) -> None:
        self.application = application
        self.state: dict[str, Any] = {**START, "name": clean_text(application.name)}
        self._tell = tell
        self._watched = Watched(kernel_busy)
        self._updating = threading.Lock()
        self._writing = threading.RLock()
        self._drawn: tuple[Any, ...] | None = None
        self._room: Room = {}
        self._looked = 0.0
        self._tap: LiveTap | None = None
        self._tapped: tuple[Application, str] | None = None
        self._passed: deque[ReadRecord] = deque(maxlen=ROWS)
        self._shown_plan: Any = None

    # ---- from the front end

    def receive(self, message: Mapping[str, Any]) -> None:
        """One message of a front end; returns at once. What is no message of ours is ignored."""
        action, view = message.get("do"), str(message.get("view", ""))
        if action == "alive":
            self._watched.hear(view)
            self._start("update", self._update)
        elif action == "gone":
            self._watched.leave(view)
        elif action == "select":
            self._select(str(message.get("shape", "")))
        elif action in CONTROLS:
            self._start(str(action), lambda: self._control(getattr(self.application, str(action))))
        elif action == "edit":
            self._start("edit", lambda: self._control(self._plan))
        elif action == "apply" and self.state["planned"]:
            self._start("apply", lambda: self._control(self._apply))

    @property
    def updating(self) -> bool:
        """Whether updates are going on."""
        return self._updating.locked()

    def leave(self) -> None:
        """No front end is there any more."""
        self._watched.leave()

    # ---- to the front end

    def set(self, **values: Any) -> None:
        """Change the state and tell what is different, one thread after the other: the front end hears of the last change last."""
        with self._writing:
            changed = {name: value for name, value in values.items() if self.state[name] != value}
            self.state.update(changed)
            if changed:
                self._tell(changed)

    def refresh(self) -> None:
        """Say what is known now: the whole drawing when its shapes changed, else the numbers."""
        app = self.application
        if app.session.closed:
            self.set(status="closed", note="the session is closed")
            return
        app = self.application = app.session.applications.get(app.name, app)  # it may have been deployed anew
        picture = replace(app.picture(), title=app.name)  # the status is told beside it: the drawing outlives it
        self._room = room_for(picture, self._room)
        shape = (picture.shapes, picture.links, picture.clusters, tuple(sorted(self._room.items())))
        drawing = {}
        if shape != self._drawn:
            self._drawn = shape
            drawing = {"svg": str(svg_of(picture, room=self._room))}
        changes = f" · {len(app.stale)} changed in the notebook: edit shows the plan" if app.stale else ""
        self.set(**drawing, marks=marks(picture), status=app.status, note=clean_text(repr(app)) + changes, changed=bool(app.stale))

    def _update(self) -> None:
        if not self._updating.acquire(blocking=False):
            return
        try:
            while self._watched.now and not self.application.session.closed:
                self.refresh()
                self._look_again()
                self._look_live()
                time.sleep(UPDATE_SECONDS)
            self.refresh()
        except Exception as error:  # the broker is away, say; the next sign of life tries again
            self.set(note=_said(error))
        finally:
            self._untap()
            self._updating.release()

    def _control(self, call: Callable[[], Any]) -> None:
        self.set(busy=True)
        try:
            call()
        except Exception as error:  # shown where the button is
            self.set(detail=str(element("pre", str(error), role="alert")), about="", values="", planned=False)
        finally:
            self.set(busy=False)
            try:
                self.refresh()
            except Exception as error:
                self.set(note=_said(error))

    def _plan(self, changed: str = "") -> None:
        plan = self.application.changes()
        if plan is None:
            self.set(detail=str(element("div", self._no_plan())), about="", values="", planned=False)
            return
        self._shown_plan = _content_of(plan)
        shown = join([element("div", changed) if changed else None, plan.table().html()])
        self.set(selected="", detail=str(shown), about="", values="", planned=not plan.diff.refused)

    def _no_plan(self) -> str:
        """Why there is nothing to show; what hinders the build is raised."""
        app = self.application
        if app.definition is None:
            return f"this notebook has no builder of {app.name}: run the cells that make it, then session.attach({app.name!r}, builder)"
        topology_of(app.definition, app.config)
        return "nothing to apply: the notebook's builder says what runs already"

    def _apply(self) -> None:
        """Apply the plan that is shown; another one, because cells ran meanwhile, is shown first."""
        plan = self.application.changes()
        if plan is None or _content_of(plan) != self._shown_plan:
            self._plan("cells have run since the plan was shown; this is the plan now")
            return
        plan.apply()
        self.set(detail=str(plan.table().html()), about="", values="", planned=False)

    # ---- what is behind a shape

    def _select(self, shape: str) -> None:
        if shape and not any(shape == known.id for known in self.application.picture().shapes):
            return
        reading = element("div", f"reading {shape.partition(':')[2]} …")
        self.set(selected=shape, planned=False, about="", values="", detail=str(reading))
        if shape:
            self._start("look", lambda: self._look(shape))
        else:
            self.set(detail="")

    def _look(self, shape: str) -> None:
        try:
            self._show(shape, detail=str(rows_behind(self.application, shape)))
            kind, _, name = shape.partition(":")
            if kind == "node":
                self._show(shape, about=str(about(self.application, name)))
                sampled = str(sampled_values(self.application, name))
                if not self._passed:
                    self._show(shape, values=sampled)
        except Exception as error:  # whatever it is, it belongs where the user looks
            self._show(shape, about=str(element("pre", str(error), role="alert")))

    def _look_again(self) -> None:
        """Rows of the selected store or topic, every few seconds; less often where reading them takes its time."""
        shape, now = self.state["selected"], time.monotonic()
        if not shape or now < self._looked or self.state["planned"]:
            return
        try:
            self._show(shape, detail=str(rows_behind(self.application, shape)))
        except Exception as error:
            self._show(shape, detail=str(element("pre", str(error), role="alert")))
        spent = time.monotonic() - now
        self._looked = time.monotonic() + max(DETAIL_SECONDS, 10 * spent)

    def _look_live(self) -> None:
        """Values as they pass the selected node: a tap is on the tasks while it is selected and somebody looks."""
        kind, _, name = str(self.state["selected"]).partition(":")
        wanted = name if kind == "node" and self.application.status == "running" else None
        if self._tap is not None and (wanted is None or self._tapped != (self.application, wanted)):
            self._untap()
        if wanted is None or not self._can_be_tapped(wanted):
            return
        try:
            if self._tap is None:
                self._tapped = self.application, wanted
                self._tap = LiveTap(self.application, wanted, rows=ROWS).__enter__()
            fresh = self._tap.new()
        except TapUnavailableError as error:
            self._untap()
            self._show(f"node:{wanted}", values=str(element("pre", str(error), role="status")))
            return
        if fresh:
            self._passed.extend(fresh)
            self._show(f"node:{wanted}", values=str(live_values(wanted, self._passed, self._tap.count)))

    def _can_be_tapped(self, node: str) -> bool:
        shared = self.application.topology.global_stores()  # a global table's nodes belong to no task
        return shared is None or all(other.name != node for other in shared.nodes)

    def _untap(self) -> None:
        if self._tap is not None:
            self._tap.__exit__(None, None, None)
            self._tap = None
        self._passed.clear()

    def _show(self, shape: str, **values: str) -> None:
        with self._writing:
            if self.state["selected"] == shape:
                self.set(**values)

    def _start(self, what: str, work: Callable[[], None]) -> None:
        threading.Thread(target=work, name=f"panel-{what}-{self.application.name}", daemon=True).start()


def _content_of(plan: EditPlan) -> Any:
    """What a plan would put in place, comparable: cells, and helpers that functions call, may change after it was made."""
    return str(plan.topology.describe()), whole_code(plan.topology), plan.diff.empty


def _said(error: BaseException) -> str:
    return clean_text(error.message if isinstance(error, KStreamsError) else f"{type(error).__name__}: {error}")


def marks(picture: Picture) -> dict[str, list[list[str]]]:
    """For each shape the lines of its mark: [class, text], the state's class first ("is-running", "")."""
    found: dict[str, list[list[str]]] = {}
    for shape in picture.shapes:
        mark = picture.marks.get(shape.id)
        if mark is not None:
            found[shape.id] = [["state", f"is-{mark.state}" if mark.state else ""], *map(list, marked_rows(mark))]
    return found
