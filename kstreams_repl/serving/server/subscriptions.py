"""Subscriptions: server-sent events of a store. First its rows (``row``, then ``snapshot``), then each change as it commits (``change``).

The id of an event is the position of the changelog after it; a subscription that begins with it goes on there, without a gap. The rows
are read page by page while changes pass, so a row may be sent again as a change: the last value of a key is always right.
A reader that takes events more slowly than they come gets a last event ``dropped`` with the reason, and the stream ends.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

from starlette.responses import StreamingResponse

from kstreams_repl.engine.topology.store_builder import StoreBuilder, StoreKind
from kstreams_repl.serving.queries.read import Read
from kstreams_repl.serving.queries.wire import to_wire
from kstreams_repl.serving.server.answers import encoded
from kstreams_repl.serving.server.changes import Change, ChangelogFeed, Offsets
from kstreams_repl.serving.server.routing import Router
from kstreams_repl.system.errors import CallError, KStreamsError

BEHIND = 20_000
"""Number of changes by which a reader may be behind."""
_PAGE = 1_000
_ALIVE_SECONDS = 10.0
_KIND = {
    StoreKind.WINDOW: "windows",
    StoreKind.TIMESTAMPED_WINDOW: "windows",
    StoreKind.SESSION: "sessions",
    StoreKind.VERSIONED: "range",
}


class Queue:
    """What one subscription has not sent yet; filled from the feed's thread."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._changes: list[Change] = []
        self._waiting = asyncio.Event()
        self.end = ""

    def offer(self, changes: list[Change], after: Offsets, at: float) -> None:
        """Add changes; called in any thread."""
        self._loop.call_soon_threadsafe(self._add, changes, at)

    def _add(self, changes: list[Change], at: float) -> None:
        if at < 0:
            self.end = "the changelog cannot be read now"
        elif len(self._changes) + len(changes) > BEHIND:
            self.end = f"the reader is more than {BEHIND} changes behind"
        else:
            self._changes += changes
        self._waiting.set()

    async def take(self, seconds: float) -> list[Change]:
        """Return what there is, after at most so many seconds."""
        if not self._changes and not self.end:
            try:
                await asyncio.wait_for(self._waiting.wait(), seconds)
            except TimeoutError:
                return []
        self._waiting.clear()
        taken, self._changes = self._changes, []
        return taken


def subscribe(router: Router, builder: StoreBuilder, feed: ChangelogFeed, start: str | None, snapshot: bool) -> AsyncIterator[bytes]:
    """Return the events of one subscription.

    Args:
        start: id of the last event that the reader has; None: now.
        snapshot: begin with the rows.

    Raises:
        CallError: `start` is not an id of an event.
    """
    return _events(router, builder, feed, None if start is None else position_of_id(start), snapshot)


async def _events(
    router: Router, builder: StoreBuilder, feed: ChangelogFeed, start: Offsets | None, snapshot: bool
) -> AsyncIterator[bytes]:
    queue = Queue(asyncio.get_running_loop())
    offer = queue.offer
    try:
        live = await asyncio.to_thread(feed.join, offer)
        reached = dict(live)
        if start is not None:
            reached |= {part: offset for part, offset in start.items() if part in live}
        if snapshot:
            reached = dict(live)  # changes from here on are sent; rows read later contain some of them already
            async for event in _snapshot(router, builder):
                yield event
            yield _event("snapshot", {"position": id_of(reached)}, reached)
        async for changes, after in _in_thread(feed.between(reached, live)):
            reached |= after
            for change in changes:
                yield _event("change", change, {**reached, change["partition"]: change["offset"] + 1})
        while True:
            changes = await queue.take(_ALIVE_SECONDS)
            if not changes and not queue.end:
                yield b": alive\n\n"
            parts = []
            for change in changes:
                part, offset = change["partition"], change["offset"]
                if offset >= reached.get(part, 0):
                    reached[part] = offset + 1
                    parts.append(_event("change", change, reached))
            if parts:
                yield b"".join(parts)
            if queue.end:
                yield _event("dropped", {"reason": queue.end}, reached)
                return
    except KStreamsError as error:
        yield _event("dropped", {"reason": error.message, "error": type(error).__name__}, {})
    finally:
        feed.leave(offer)


async def _snapshot(router: Router, builder: StoreBuilder) -> AsyncIterator[bytes]:
    after = None
    while True:
        answer = await router.answer(Read(_KIND.get(builder.kind, "range"), builder.name, limit=_PAGE, after=after))
        rows = [_event("row", {name: to_wire(value) for name, value in row.items()}, None) for row in answer.rows]
        if rows:
            yield b"".join(rows)
        after = answer.next
        if after is None:
            return


async def _in_thread(iterator: Any) -> AsyncIterator[Any]:
    done = object()
    try:
        while (item := await asyncio.to_thread(next, iterator, done)) is not done:
            yield item
    finally:
        await asyncio.to_thread(iterator.close)


def _event(kind: str, content: object, position: Offsets | None) -> bytes:
    head = b"" if not position else b"id: " + id_of(position).encode() + b"\n"
    return head + b"event: " + kind.encode() + b"\ndata: " + encoded(content) + b"\n\n"


def id_of(position: Offsets) -> str:
    """Return a position as the id of an event."""
    return ",".join(f"{partition}:{offset}" for partition, offset in sorted(position.items()))


def position_of_id(text: str) -> Offsets:
    """Read what `id_of` has written.

    Raises:
        CallError: it is something else.
    """
    try:
        pairs = [part.split(":") for part in text.split(",")]
        found = {int(partition): int(offset) for partition, offset in pairs}
        if len(text) < 20_000 and all(0 <= offset < 2**62 and partition >= 0 for partition, offset in found.items()):
            return found
    except ValueError:
        pass
    raise CallError("from must be the id of an event", hint="0:17,1:4", argument="from")


def event_answer(events: AsyncIterator[bytes]) -> StreamingResponse:
    """Return events as an answer without an end."""
    return StreamingResponse(events, media_type="text/event-stream", headers={"X-Accel-Buffering": "no"})
