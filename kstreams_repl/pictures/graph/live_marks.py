"""What changes in a drawn picture while its shapes stay: lines of the marks, widths of the links. The front end applies them."""

from __future__ import annotations

from kstreams_repl.pictures.graph.arrange import Room, room_for
from kstreams_repl.pictures.graph.picture import Picture
from kstreams_repl.pictures.graph.svg import line_width, marked_rows, svg_of
from kstreams_repl.pictures.graph.view import View, link_rates, simplified, summary_of
from kstreams_repl.system.types import JsonObject


def mark_lines(picture: Picture, room: Room | None = None) -> dict[str, list[list[str]]]:
    """Return the lines of each shape's mark: [class, text], the state's class first ("is-running", "")."""
    room = room_for(picture) if room is None else room
    found: dict[str, list[list[str]]] = {}
    for shape in picture.shapes:
        mark = picture.marks.get(shape.id)
        if mark is not None:
            rows = marked_rows(mark, shape, room, general=picture.common_state)
            found[shape.id] = [["state", f"is-{mark.state}" if mark.state else ""], *map(list, rows)]
    return found


def link_widths(picture: Picture) -> list[list[float | None]]:
    """Return width and records per second of each link, rounded so that small changes are not sent."""
    rates = link_rates(picture)
    return [[round(line_width(rate), 1), None if rate is None else float(f"{rate:.2g}")] for rate in rates]


class LiveDrawing:
    """What a front end gets of a live picture: lines and widths each time, the drawing itself when its shapes have changed."""

    def __init__(self) -> None:
        self._room: Room = {}
        self._drawn: tuple[object, ...] | None = None

    def state(self, whole: Picture, view: View) -> JsonObject:
        """Return the changed part of the state: ``marks`` and ``flows``; ``svg`` and ``view`` if the shapes have changed."""
        picture = simplified(whole, view)
        room = self._room = room_for(picture, self._room)
        shape = (picture.shapes, picture.links, picture.clusters, view, tuple(sorted(room.items())))
        drawing = {}
        if shape != self._drawn:
            self._drawn = shape
            drawing = {"svg": str(svg_of(picture, room=room, live=True)), "view": summary_of(whole, view)}
        return {**drawing, "marks": mark_lines(picture, room), "flows": link_widths(picture)}
