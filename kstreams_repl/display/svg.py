"""A picture as SVG: topics as lying pipes, stores as standing cylinders, nodes as boxes; state by shape, label and colour.

Colours come from JupyterLab's ``--jp-*`` variables where the SVG stands in a page, else from fallbacks that follow the reader's
light or dark setting. Every shape carries ``data-node`` with its id, can be reached by the keyboard and says what it is.
"""

from __future__ import annotations

from collections.abc import Sequence

from kstreams_repl.display.arrange import Placed, Room, arrange, shorten
from kstreams_repl.display.layout import Point
from kstreams_repl.display.markup import Markup, element, one_line, style_sheet
from kstreams_repl.display.picture import Kind, Link, Mark, Picture

MARGIN = 10.0
LINE_LIMIT = 40
SPOKEN_LIMIT = 400

STATES = {
    "running": "▶",
    "restoring": "⟳",
    "paused": "‖",
    "failed": "✖",
    "stopped": "■",
    "stale": "✎",
}
"""The sign beside each state's word."""

_LIGHT = (
    "--ks-paper:var(--jp-layout-color0,#fff);--ks-ink:var(--jp-ui-font-color1,#1f2328);--ks-soft:var(--jp-ui-font-color2,#59636e);"
    "--ks-line:var(--jp-border-color1,#9aa4ae);--ks-block:var(--jp-layout-color1,#f6f8fa);--ks-node:var(--jp-layout-color0,#fff);"
    "--ks-topic:#ddf4ff;--ks-topic-line:#0969da;--ks-store:#fff8c5;--ks-store-line:#9a6700;"
    "--ks-ok:#1a7f37;--ks-bad:#cf222e;--ks-wait:#9a6700;"
)
_DARK = (
    "--ks-paper:var(--jp-layout-color0,#0d1117);--ks-ink:var(--jp-ui-font-color1,#e6edf3);--ks-soft:var(--jp-ui-font-color2,#9198a1);"
    "--ks-line:var(--jp-border-color1,#656c76);--ks-block:var(--jp-layout-color1,#161b22);--ks-node:var(--jp-layout-color0,#0d1117);"
    "--ks-topic:#0c2d4d;--ks-topic-line:#4493f8;--ks-store:#332a05;--ks-store-line:#d29922;"
    "--ks-ok:#3fb950;--ks-bad:#f85149;--ks-wait:#d29922;"
)
# The system's setting counts where nothing else is known (an image, a plain page); in JupyterLab its theme does.
_STYLE = (
    ".ks-picture{" + _LIGHT + "font:12px ui-sans-serif,system-ui,sans-serif}"
    "@media (prefers-color-scheme:dark){.ks-picture{" + _DARK + "}}"
    "[data-jp-theme-light='true'] .ks-picture{" + _LIGHT + "}[data-jp-theme-light='false'] .ks-picture{" + _DARK + "}"
) + """
.ks-picture .paper{fill:var(--ks-paper)}.ks-picture .block{fill:var(--ks-block);stroke:var(--ks-line);stroke-dasharray:4 3}
.ks-picture text{fill:var(--ks-ink);text-anchor:middle}.ks-picture .label{text-anchor:start;font-weight:600;fill:var(--ks-soft)}
.ks-picture .detail,.ks-picture .number{fill:var(--ks-soft);font-size:11px}
.ks-picture .number{font-variant-numeric:tabular-nums;fill:var(--ks-ink)}
.ks-picture .link{fill:none;stroke:var(--ks-line);stroke-width:1.4}.ks-picture .state{stroke-dasharray:3 3;stroke:var(--ks-store-line)}
.ks-picture .arrow{fill:var(--ks-line)}.ks-picture .outline{fill:var(--ks-node);stroke:var(--ks-line);stroke-width:1.4}
.ks-picture .topic .outline,.ks-picture .internal-topic .outline{fill:var(--ks-topic);stroke:var(--ks-topic-line)}
.ks-picture .internal-topic .outline{stroke-dasharray:5 3}
.ks-picture .store .outline{fill:var(--ks-store);stroke:var(--ks-store-line)}
.ks-picture .source .outline,.ks-picture .sink .outline{stroke-width:2}
.ks-picture .is-running .outline{stroke:var(--ks-ok)}.ks-picture .is-failed .outline{stroke:var(--ks-bad);stroke-width:3}
.ks-picture .is-paused .outline{stroke:var(--ks-wait);stroke-dasharray:6 3}
.ks-picture .is-stale .outline{stroke:var(--ks-wait);stroke-dasharray:2 2}
.ks-picture .is-restoring .outline{stroke:var(--ks-wait);stroke-dasharray:1 3}
.ks-picture .badge{font-weight:600;font-size:11px}.ks-picture .is-failed .badge{fill:var(--ks-bad)}
.ks-picture .is-running .badge{fill:var(--ks-ok)}
.ks-picture g[tabindex]:focus{outline:none}.ks-picture g[tabindex]:focus .outline{stroke-width:4}
""".replace("\n", "")


def svg_of(picture: Picture, *, room: Room | None = None) -> Markup:
    """The picture as one self-contained ``<svg>``.

    Args:
        room: lines of marks each kind of box has room for, where marks will be changed in place.
    """
    arranged = arrange(picture, room)
    width, height = arranged.width + 2 * MARGIN, arranged.height + 2 * MARGIN
    labels = {cluster.id: cluster.label for cluster in picture.clusters}
    body = element(
        "g",
        *(_block(labels[number], *rectangle) for number, rectangle in arranged.blocks),
        *(_link(link, route) for link, route in arranged.routes),
        *(_shape(placed, picture.marks.get(placed.shape.id, Mark())) for placed in arranged.shapes),
        transform=f"translate({MARGIN:g} {MARGIN:g})",
    )
    arrow = element(
        "marker", element("path", d="M0 0 8 4 0 8z", class_="arrow"),
        id="ks-arrow", viewBox="0 0 8 8", refX="7.5", refY="4", markerWidth="7", markerHeight="7", orient="auto-start-reverse",
    )  # fmt: skip
    return element(
        "svg",
        element("title", picture.summary),
        style_sheet(_STYLE),
        element("defs", arrow),
        element("rect", class_="paper", width=_n(width), height=_n(height), rx="6"),
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
    """Width and height of the SVG."""
    arranged = arrange(picture)
    return arranged.width + 2 * MARGIN, arranged.height + 2 * MARGIN


def _n(number: float) -> str:
    return f"{round(number, 1):g}"


def _block(label: str, left: float, top: float, width: float, height: float) -> Markup:
    return element(
        "g",
        element("rect", class_="block", x=_n(left), y=_n(top), width=_n(width), height=_n(height), rx="8"),
        element("text", one_line(label, limit=80), class_="label", x=_n(left + 10), y=_n(top + 15)),
    )


def _link(link: Link, route: Sequence[Point]) -> Markup | None:
    if len(route) < 2:
        return None
    return element(
        "path",
        d=_curve(route),
        class_="link state" if link.state else "link",
        marker_end=None if link.state else "url(#ks-arrow)",
        data_from=link.source,
        data_to=link.target,
    )


def _curve(route: Sequence[Point]) -> str:
    """A smooth way through the points, vertical at each."""
    parts = [f"M{_n(route[0][0])} {_n(route[0][1])}"]
    for (x1, y1), (x2, y2) in zip(route, route[1:], strict=False):
        middle = (y1 + y2) / 2
        parts.append(
            f"L{_n(x2)} {_n(y2)}" if abs(x1 - x2) < 0.5 else f"C{_n(x1)} {_n(middle)} {_n(x2)} {_n(middle)} {_n(x2)} {_n(y2)}"
        )
    return "".join(parts)


def _shape(placed: Placed, mark: Mark) -> Markup:
    shape = placed.shape
    state = mark.state if mark.state in STATES else None
    lines: list[Markup] = []
    rows = [("name", shorten(shape.name))]
    if shape.detail:
        rows.append(("detail", shorten(shape.detail)))
    rows += marked_rows(mark)
    top = placed.y - len(rows) * 7.5 + 11 + (3 if shape.kind is Kind.STORE else 0)
    for index, (kind, row) in enumerate(rows):
        lines.append(element("text", one_line(row), class_=kind, x=_n(placed.x), y=_n(top + 15 * index)))
    classes = f"{shape.kind.replace(' ', '-')}{f' is-{state}' if state else ''}"
    spoken = ", ".join([f"{shape.kind} {shape.name}", *(row for _, row in rows[1:])])
    return element(
        "g",
        element("title", _tooltip(placed)),
        _outline(placed),
        *lines,
        class_=classes,
        data_node=shape.id,
        data_x=_n(placed.x),
        data_y=_n(placed.y + (3 if shape.kind is Kind.STORE else 0)),
        data_said=one_line(", ".join(filter(None, (f"{shape.kind} {shape.name}", shape.detail))), limit=SPOKEN_LIMIT),
        tabindex="0",
        role="img",
        aria_label=one_line(spoken, limit=SPOKEN_LIMIT),
    )


def marked_rows(mark: Mark) -> list[tuple[str, str]]:
    """(class, text) of the lines that a mark adds to its shape: the state's sign and word, then numbers."""
    badge = [("badge", f"{STATES[mark.state]} {mark.state}")] if mark.state in STATES else []
    return [*badge, *(("number", one_line(line, limit=LINE_LIMIT)) for line in mark.lines)]


def _tooltip(placed: Placed) -> str:
    origin = placed.shape.origin
    where = f"cell {origin.cell}" if origin.cell else origin.file
    return one_line(placed.shape.name + (f"\n{where}, line {origin.line}" if where and origin.line else ""), limit=SPOKEN_LIMIT)


def _outline(placed: Placed) -> Markup:
    left, top = placed.x - placed.width / 2, placed.y - placed.height / 2
    width, height = placed.width, placed.height
    right, bottom = left + width, top + height
    match placed.shape.kind:
        case Kind.STORE:  # a standing cylinder
            lid = 7
            path = (
                f"M{_n(left)} {_n(top + lid)}A{_n(width / 2)} {lid} 0 0 1 {_n(right)} {_n(top + lid)}V{_n(bottom - lid)}"
                f"A{_n(width / 2)} {lid} 0 0 1 {_n(left)} {_n(bottom - lid)}Z"
                f"M{_n(left)} {_n(top + lid)}A{_n(width / 2)} {lid} 0 0 0 {_n(right)} {_n(top + lid)}"
            )
            return element("path", d=path, class_="outline")
        case Kind.TOPIC | Kind.INTERNAL_TOPIC:  # a lying pipe
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
