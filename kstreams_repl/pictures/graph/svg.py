"""A picture as SVG: topics as horizontal cylinders, stores as upright cylinders, nodes as boxes; state by shape, label and
colour.

Colours come from JupyterLab's ``--jp-*`` variables when the SVG is part of a page, otherwise from fallbacks that follow the
reader's light or dark setting. Every shape carries ``data-node`` with its id, is reachable by keyboard and has a label for screen
readers.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from kstreams_repl.pictures.graph.arrange import Arrangement, Placed, Room, arrange, characters_in, room_for, shorten
from kstreams_repl.pictures.graph.layout import Point
from kstreams_repl.pictures.graph.picture import Kind, Link, Mark, Picture, Shape
from kstreams_repl.pictures.graph.view import link_rates
from kstreams_repl.pictures.markup import Markup, element, one_line, style_sheet

MARGIN = 10.0
TITLE = 22.0
LINK_WIDTH, THICKEST = 1.4, 6.5
ARROW = 9.0
SPOKEN_LIMIT = 400

STATES = {
    "running": "▶",
    "restoring": "⟳",
    "paused": "‖",
    "failed": "✖",
    "stopped": "■",
    "stale": "✎",
    "silent": "∅",
    "differs": "≠",
}
"""The sign shown with each state's word."""
WORDS = {"silent": "nothing passes"}
"""Words for states that are not shown by their name."""

_LIGHT = (
    "--ks-paper:var(--jp-layout-color0,#fff);--ks-ink:var(--jp-ui-font-color1,#1f2328);--ks-soft:var(--jp-ui-font-color2,#59636e);"
    "--ks-line:#6e7781;--ks-frame:#afb8c1;--ks-block:#f6f8fa;--ks-node:#fff;"
    "--ks-topic:#ddf4ff;--ks-topic-line:#0969da;--ks-store:#fff8c5;--ks-store-line:#9a6700;"
    "--ks-ok:#1a7f37;--ks-bad:#cf222e;--ks-wait:#9a6700;"
)
_DARK = (
    "--ks-paper:var(--jp-layout-color0,#111);--ks-ink:var(--jp-ui-font-color1,#e6edf3);--ks-soft:var(--jp-ui-font-color2,#a8b1ba);"
    "--ks-line:#8b949e;--ks-frame:#4d5660;--ks-block:#1a1e23;--ks-node:#0d1117;"
    "--ks-topic:#0c2d4d;--ks-topic-line:#4493f8;--ks-store:#332a05;--ks-store-line:#d29922;"
    "--ks-ok:#3fb950;--ks-bad:#f85149;--ks-wait:#d29922;"
)
_PRINTED = "--ks-paper:#fff;--ks-ink:#1f2328;--ks-soft:#59636e;"
# The system's setting decides where nothing else is known (an image, a plain page); in JupyterLab its theme does. Paper is always
# light.
_STYLE = (
    ".ks-picture{" + _LIGHT + "font:12px ui-sans-serif,system-ui,sans-serif}"
    "@media (prefers-color-scheme:dark){.ks-picture{" + _DARK + "}}"
    "[data-jp-theme-light='true'] .ks-picture{" + _LIGHT + "}[data-jp-theme-light='false'] .ks-picture{" + _DARK + "}"
    "@media print{.ks-picture,[data-jp-theme-light] .ks-picture{" + _LIGHT + _PRINTED + "}}"
) + """
.ks-picture .paper{fill:var(--ks-paper)}.ks-picture .block{fill:var(--ks-block);stroke:var(--ks-frame);stroke-dasharray:4 3}
.ks-picture text{fill:var(--ks-ink);text-anchor:middle}
.ks-picture .label,.ks-picture .title,.ks-picture .badge{text-anchor:start}
.ks-picture .label,.ks-picture .title{font-weight:600;fill:var(--ks-soft)}
.ks-picture .label{paint-order:stroke;stroke:var(--ks-block);stroke-width:7px;stroke-linejoin:round}
.ks-picture .title{font-size:13px;fill:var(--ks-ink)}
.ks-picture .detail,.ks-picture .number{fill:var(--ks-soft);font-size:11px}
.ks-picture .number{font-variant-numeric:tabular-nums;fill:var(--ks-ink)}
.ks-picture .link{fill:none;stroke:var(--ks-line);stroke-width:1.4}.ks-picture .state{stroke-dasharray:3 3;stroke:var(--ks-store-line)}
.ks-picture .arrow{fill:var(--ks-line)}.ks-picture .outline{fill:var(--ks-node);stroke:var(--ks-line);stroke-width:1.4}
.ks-picture .topic .outline,.ks-picture .internal-topic .outline{fill:var(--ks-topic);stroke:var(--ks-topic-line)}
.ks-picture .internal-topic .outline{stroke-dasharray:5 3}
.ks-picture .repartition .outline{fill:var(--ks-paper);stroke:var(--ks-topic-line);stroke-dasharray:5 3}
.ks-picture .repartition .name{font-size:11px}.ks-picture .sub-topology .outline{fill:var(--ks-block)}
.ks-picture .store .outline{fill:var(--ks-store);stroke:var(--ks-store-line)}
.ks-picture .source .outline,.ks-picture .sink .outline{stroke-width:2}
.ks-picture .is-running .outline{stroke:var(--ks-ok)}
.ks-picture .is-failed .outline,.ks-picture .is-differs .outline{stroke:var(--ks-bad);stroke-width:3}
.ks-picture .is-paused .outline{stroke:var(--ks-wait);stroke-dasharray:6 3}
.ks-picture .is-stale .outline{stroke:var(--ks-wait);stroke-dasharray:2 2;stroke-width:2.5}
.ks-picture .is-silent .outline{stroke:var(--ks-wait);stroke-width:2.5}
.ks-picture .is-restoring .outline{stroke:var(--ks-wait);stroke-dasharray:1 3}
.ks-picture .badge{font-weight:600;font-size:11px;fill:var(--ks-wait)}
.ks-picture .badge{paint-order:stroke;stroke:var(--ks-paper);stroke-width:5px;stroke-linejoin:round}
.ks-picture .is-failed .badge,.ks-picture .is-differs .badge{fill:var(--ks-bad)}.ks-picture .is-running .badge{fill:var(--ks-ok)}
.ks-picture g[tabindex]:focus{outline:none}.ks-picture g[tabindex]:focus .outline{stroke-width:4}
.ks-picture .fold{cursor:pointer}.ks-picture .fold:hover .label,.ks-picture .fold:focus .label{text-decoration:underline;fill:var(--ks-ink)}
""".replace("\n", "")


def svg_of(picture: Picture, *, room: Room | None = None, live: bool = False) -> Markup:
    """Return the picture as one self-contained ``<svg>``.

    Args:
        room: lines of marks for which each kind of box has room, if marks are updated later.
        live: for a front end: the frames of sub-topologies can be folded, and the title is drawn by the front end.
    """
    arranged = arrange(picture, room)
    width, height, head = _size(picture, arranged, live=live)
    labels = {cluster.id: cluster.label for cluster in picture.clusters}
    rates = dict(zip(picture.links, link_rates(picture), strict=True))
    indices = {link: index for index, link in enumerate(picture.links)}
    lines = room_for(picture) if room is None else room
    body = element(
        "g",
        *(_frame(*rectangle) for _, rectangle in arranged.blocks),
        *(_link(link, route, indices[link], rates[link]) for link, route in arranged.routes),
        *(_label(number, labels[number], left, top, live=live) for number, (left, top, _, _) in arranged.blocks),
        *(_shape(placed, picture, lines) for placed in arranged.shapes),
        transform=f"translate({MARGIN:g} {_n(MARGIN + head)})",
    )
    arrow = element(
        "marker", element("path", d="M0 0 10 6 0 12z", class_="arrow"),
        id="ks-arrow", viewBox="0 0 10 12", refX="0", refY="6", markerWidth="10", markerHeight="12", markerUnits="userSpaceOnUse",
        orient="auto-start-reverse",
    )  # fmt: skip
    title = element("text", one_line(picture.title, limit=80), class_="title", x=_n(MARGIN), y=_n(MARGIN + 11)) if head else None
    return element(
        "svg",
        element("title", picture.summary),
        style_sheet(_STYLE),
        element("defs", arrow),
        element("rect", class_="paper", width=_n(width), height=_n(height), rx="6"),
        title,
        body,
        xmlns="http://www.w3.org/2000/svg",
        class_="ks-picture",
        viewBox=f"0 0 {_n(width)} {_n(height)}",
        width=_n(width),
        height=_n(height),
        role="group",
        aria_label=picture.summary,
    )


def size_of(picture: Picture) -> tuple[float, float]:
    """Return width and height of the SVG."""
    return _size(picture, arrange(picture))[:2]


def _size(picture: Picture, arranged: Arrangement, *, live: bool = False) -> tuple[float, float, float]:
    """Return width, height, and the height of the title: a saved or printed picture of an application shows its state."""
    head = 0.0 if live or picture.state is None else TITLE
    return arranged.width + 2 * MARGIN, arranged.height + 2 * MARGIN + head, head


def line_width(rate: float | None) -> float:
    """Return the width of a link: each tenfold of records per second adds the same."""
    return LINK_WIDTH if not rate or rate < 1 else min(LINK_WIDTH + 0.9 * (1 + math.log10(rate)), THICKEST)


def _n(number: float) -> str:
    return f"{round(number, 1):g}"


def _frame(left: float, top: float, width: float, height: float) -> Markup:
    return element("rect", class_="block", x=_n(left), y=_n(top), width=_n(width), height=_n(height), rx="8")


def _label(number: int, label: str, left: float, top: float, *, live: bool) -> Markup:
    label = one_line(label, limit=80)
    x, y = left + 10, top + 15
    text = element("text", f"▾ {label}" if live else label, class_="label", x=_n(x), y=_n(y))
    if not live:
        return text
    return element(
        "g", element("title", f"Draw {label} as one box"), text,
        class_="fold", data_fold=number, data_node=f"block:{number}", data_x=_n(x + 4 * len(label)), data_y=_n(y), tabindex="-1",
        role="button", aria_expanded="true", aria_label=f"{label}: draw as one box",
    )  # fmt: skip


def _link(link: Link, route: Sequence[Point], index: int, rate: float | None) -> Markup | None:
    if len(route) < 2:
        return None
    return element(
        "path",
        d=_curve(route if link.state else _short_of_its_arrow(route)),
        class_="link state" if link.state else "link",
        marker_end=None if link.state else "url(#ks-arrow)",
        style=f"stroke-width:{_n(line_width(rate))}" if rate else None,
        data_link=index,
        data_from=link.source,
        data_to=link.target,
    )


def _short_of_its_arrow(route: Sequence[Point]) -> Sequence[Point]:
    """Return the route without its end under the arrow head: a thick line would hide the head."""
    (_, before), (x, y) = route[-2], route[-1]
    return (*route[:-1], (x, y - math.copysign(min(ARROW, abs(y - before) / 2), y - before)))


def _curve(route: Sequence[Point]) -> str:
    """Return a smooth path through the points, vertical at each."""
    parts = [f"M{_n(route[0][0])} {_n(route[0][1])}"]
    for (x1, y1), (x2, y2) in zip(route, route[1:], strict=False):
        middle = (y1 + y2) / 2
        parts.append(
            f"L{_n(x2)} {_n(y2)}" if abs(x1 - x2) < 0.5 else f"C{_n(x1)} {_n(middle)} {_n(x2)} {_n(middle)} {_n(x2)} {_n(y2)}"
        )
    return "".join(parts)


def _shape(placed: Placed, picture: Picture, room: Room) -> Markup:
    shape, mark = placed.shape, picture.marks.get(placed.shape.id, Mark())
    state = mark.state if mark.state in STATES else None
    name = shape.label or shape.name
    rows = [("name", shorten(name))]
    if shape.detail:
        rows.append(("detail", shorten(shape.detail)))
    added = marked_rows(mark, shape, room, general=picture.common_state)
    badges = [row for kind, row in added if kind == "badge"]
    rows += [row for row in added if row[0] != "badge"]
    sign = shape.kind is Kind.SUBTOPOLOGY
    middle = placed.y + (3 if shape.kind is Kind.STORE else 0)
    top = middle - len(rows) * 7.5 + 11
    lines = [element("text", f"▸ {one_line(row)}" if sign and kind == "name" else one_line(row), class_=kind, x=_n(placed.x),
                     y=_n(top + 15 * index)) for index, (kind, row) in enumerate(rows)]  # fmt: skip
    edge = placed.y - placed.height / 2
    start = placed.x - placed.width / 2
    lines += [element("text", row, class_="badge", x=_n(start + 10), y=_n(edge + 4)) for row in badges]
    label = one_line(", ".join(filter(None, (f"{shape.kind} {name}" if not sign else name, shape.detail))), limit=SPOKEN_LIMIT)
    return element(
        "g",
        element("title", _tooltip(placed)),
        _outline(placed),
        *lines,
        class_=f"{shape.kind.replace(' ', '-')}{f' is-{state}' if state else ''}",
        data_node=shape.id,
        data_fold=shape.id.partition(":")[2] if sign else None,
        data_x=_n(placed.x),
        data_y=_n(middle),
        data_top=_n(edge),
        data_left=_n(start),
        data_label=label,
        tabindex="0",
        role="img",
        aria_expanded="false" if sign else None,
        aria_label=one_line(", ".join([label, *badges, *(row for kind, row in rows if kind == "number")]), limit=SPOKEN_LIMIT),
    )


def marked_rows(mark: Mark, shape: Shape, room: Room, *, general: str | None = None) -> list[tuple[str, str]]:
    """Return (class, text) of what a mark adds to its shape: the state's sign and word, unless all have it, then lines of
    numbers."""
    differs = mark.state in STATES and mark.state != general
    badge = [("badge", f"{STATES[mark.state]} {WORDS.get(mark.state, mark.state)}")] if differs and mark.state else []
    limit = characters_in(shape, room.get(shape.kind, 0))
    return [*badge, *(("number", one_line(line, limit=limit)) for line in mark.lines)]


def _tooltip(placed: Placed) -> str:
    shape = placed.shape
    if shape.kind is Kind.SUBTOPOLOGY:
        return one_line(f"{shape.name}: draw its nodes", limit=SPOKEN_LIMIT)
    where = f"cell {shape.origin.cell}" if shape.origin.cell else shape.origin.file
    return one_line(shape.name + (f"\n{where}, line {shape.origin.line}" if where and shape.origin.line else ""), limit=SPOKEN_LIMIT)


def _outline(placed: Placed) -> Markup:
    left, top = placed.x - placed.width / 2, placed.y - placed.height / 2
    width, height = placed.width, placed.height
    right, bottom = left + width, top + height
    match placed.shape.kind:
        case Kind.STORE:  # an upright cylinder
            lid = 7
            path = (
                f"M{_n(left)} {_n(top + lid)}A{_n(width / 2)} {lid} 0 0 1 {_n(right)} {_n(top + lid)}V{_n(bottom - lid)}"
                f"A{_n(width / 2)} {lid} 0 0 1 {_n(left)} {_n(bottom - lid)}Z"
                f"M{_n(left)} {_n(top + lid)}A{_n(width / 2)} {lid} 0 0 0 {_n(right)} {_n(top + lid)}"
            )
            return element("path", d=path, class_="outline")
        case Kind.SUBTOPOLOGY:  # stacked boxes
            back = f"M{_n(left + 5)} {_n(top)}H{_n(right)}V{_n(bottom - 5)}"
            front = f"M{_n(left)} {_n(top + 5)}H{_n(right - 5)}V{_n(bottom)}H{_n(left)}Z"
            return element("path", d=f"{front}{back}H{_n(right - 5)}V{_n(top + 5)}H{_n(left + 5)}Z", class_="outline")
        case Kind.TOPIC | Kind.INTERNAL_TOPIC | Kind.REPARTITION:  # a horizontal cylinder
            end = 7
            path = (
                f"M{_n(left + end)} {_n(top)}H{_n(right - end)}A{end} {_n(height / 2)} 0 0 1 {_n(right - end)} {_n(bottom)}"
                f"H{_n(left + end)}A{end} {_n(height / 2)} 0 0 1 {_n(left + end)} {_n(top)}Z"
                f"M{_n(right - end)} {_n(top)}A{end} {_n(height / 2)} 0 0 0 {_n(right - end)} {_n(bottom)}"
            )
            return element("path", d=path, class_="outline")
        case Kind.SOURCE | Kind.SINK:
            return element("rect", class_="outline", x=_n(left), y=_n(top), width=_n(width), height=_n(height), rx="16")
        case _:
            return element("rect", class_="outline", x=_n(left), y=_n(top), width=_n(width), height=_n(height), rx="4")
