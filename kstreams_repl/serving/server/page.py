"""The server's page: the live picture of the application, from the same front end as JupyterLab's panel. It only shows; it has no actions.

The picture's state is built from the instances' reports at most twice a second, however many browsers show it.
"""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import AsyncIterator, Callable, Mapping
from pathlib import Path

from starlette.responses import Response

from kstreams_repl.engine import serdes
from kstreams_repl.engine.topology.store_builder import StoreBuilder
from kstreams_repl.host.instance.application_plan import ApplicationPlan
from kstreams_repl.pictures.front_end import bundle
from kstreams_repl.pictures.graph.live_marks import LiveDrawing
from kstreams_repl.pictures.graph.picture import Picture
from kstreams_repl.pictures.graph.view import View
from kstreams_repl.pictures.markup import clean_text
from kstreams_repl.serving.remote.discovery import Discovery
from kstreams_repl.serving.server.answers import encoded
from kstreams_repl.serving.server.parsing import refuse_unknown, truth
from kstreams_repl.serving.server.subscriptions import event_answer
from kstreams_repl.system.errors import CallError
from kstreams_repl.system.types import JsonObject

_SECONDS = 0.5
_MOST_VIEWS = 32
"""Pictures that are kept for open pages: options of their buttons."""
_STATIC = Path(__file__).parent / "static"


class Page:
    """The state of the picture.

    Args:
        read_picture: returns the picture with its present marks, and the line above it.
    """

    def __init__(self, plan: ApplicationPlan, discovery: Discovery, read_picture: Callable[[], tuple[Picture, str]]) -> None:
        self._plan = plan
        self._discovery = discovery
        self._read_picture = read_picture
        self._made: dict[View, tuple[float, JsonObject]] = {}
        self._drawings: dict[View, LiveDrawing] = {}
        self._beat = 0
        self._lock = threading.Lock()

    def state(self, view: View) -> JsonObject:
        """Return the state that the front end mirrors; `svg` is markup, the others are text and numbers."""
        with self._lock:
            made_at, state = self._made.get(view, (-1.0, {}))
            if time.monotonic() - made_at > _SECONDS:
                if view not in self._made and len(self._made) >= _MOST_VIEWS:
                    self._made.clear()
                    self._drawings.clear()
                state = self._state(view, state)
                self._made[view] = (time.monotonic(), state)
            return state

    def _state(self, view: View, last: JsonObject) -> JsonObject:
        whole, note = self._read_picture()
        drawing = self._drawings.setdefault(view, LiveDrawing())
        self._beat += 1
        return {
            **last,
            **drawing.state(whole, view),
            "name": clean_text(self._plan.application_id),
            "status": str(whole.state),
            "note": clean_text(note),
            "beat": self._beat,
            "stores": {
                name: [str(builder.kind), self._key_serde(builder)]
                for name, builder in self._discovery.stores.items()
                if name not in self._discovery.global_stores
            },
        }

    def _key_serde(self, builder: StoreBuilder) -> str:
        return serdes.resolve(builder.key_serde, self._plan.config["default.key.serde"]).name


def view_of(query: Mapping[str, str]) -> View:
    """Return how the picture is to be drawn.

    Raises:
        CallError: a parameter is unknown or has an invalid value.
    """
    refuse_unknown(query, ("names", "repartitions", "collapsed"))
    collapsed = query.get("collapsed", "")
    if len(collapsed) > 1_000 or not all(number.isdecimal() for number in collapsed.split(",") if collapsed):
        raise CallError(f"collapsed must be numbers of sub-topologies, got {collapsed[:40]!r}", hint="0,2", argument="collapsed")
    clusters = frozenset(int(number) for number in collapsed.split(",") if collapsed)
    return View(truth(query, "names"), truth(query, "repartitions"), clusters)


def picture_events(state: Callable[[], JsonObject]) -> Response:
    """Return the changes of the picture as server-sent events."""

    async def events() -> AsyncIterator[bytes]:
        sent: JsonObject = {}
        while True:
            now = await asyncio.to_thread(state)
            changed = {name: value for name, value in now.items() if sent.get(name) != value}
            sent = now
            yield b"data: " + encoded(changed) + b"\n\n"
            await asyncio.sleep(_SECONDS)

    return event_answer(events())


def files() -> dict[str, bytes]:
    """Return the files of the page by name. None refers to another host."""
    return {"panel.js": bundle("panel.js").encode()} | {path.name: path.read_bytes() for path in _STATIC.iterdir()}
