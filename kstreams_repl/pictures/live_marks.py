"""What changes in a drawn picture while its shapes stay: lines of the marks, widths of the links. The front end applies them."""

from __future__ import annotations

from kstreams_repl.pictures.arrange import Room, room_for
from kstreams_repl.pictures.picture import Picture
from kstreams_repl.pictures.svg import line_width, marked_rows
from kstreams_repl.pictures.view import link_rates


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
