"""Positions of the shapes of a picture: sub-topologies are blocks, laid out first inside, then among each other together with the
topics.

So clusters never overlap, and topics lie between the blocks that they separate. A link that crosses a block's border enters
through a *port*, a point on the border, and avoids the boxes inside.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache

from kstreams_repl.pictures.graph.layout import Box, Layout, Point, lay_out, lay_out_parts
from kstreams_repl.pictures.graph.picture import Kind, Link, Picture, Shape

WIDE = 1800.0
"""Width to which unconnected parts are placed in one row; further parts start a new row below."""
PADDING = 14.0
HEADER = 22.0
LABEL_LIMIT = 44
_CHARACTER = 7.3
_SMALL_CHARACTER = 6.0
_LINE = 15.0


@dataclass(frozen=True, slots=True)
class Placed:
    """A shape with its position (centre) and size."""

    shape: Shape
    x: float
    y: float
    width: float
    height: float


@dataclass(frozen=True, slots=True)
class Arrangement:
    """A picture with coordinates; `blocks` are the clusters' rectangles (left, top, width, height)."""

    shapes: tuple[Placed, ...]
    routes: tuple[tuple[Link, tuple[Point, ...]], ...]
    blocks: tuple[tuple[int, tuple[float, float, float, float]], ...]
    width: float
    height: float


def shorten(name: str) -> str:
    """Return a name that fits its box, cut in the middle, because generated names differ at the end."""
    if len(name) <= LABEL_LIMIT:
        return name
    keep = (LABEL_LIMIT - 1) // 2
    return f"{name[:keep]}…{name[-keep:]}"


Room = Mapping[Kind, int]
"""Number of lines of marks for which a box of each kind has room."""


def room_for(picture: Picture, at_least: Room | None = None) -> Room:
    """Return the room that the current marks need, at least `at_least`, so that a live picture does not change its layout."""
    room = dict(at_least or {})
    for shape in picture.shapes:
        mark = picture.marks.get(shape.id)
        if mark is not None:
            room[shape.kind] = max(room.get(shape.kind, 0), len(mark.lines))
    if picture.state is not None and any(shape.kind is Kind.REPARTITION for shape in picture.shapes):
        room[Kind.REPARTITION] = 1  # for a lag that may be shown later
    return room


def characters_in(shape: Shape, lines: int) -> int:
    """Return how many characters of a line of numbers fit into the shape's box."""
    return int((_box(shape, lines).width - 12) / _SMALL_CHARACTER)


def arrange(picture: Picture, room: Room | None = None) -> Arrangement:
    """Return positions for all shapes; recent arrangements are cached, independent of marks.

    Args:
        room: lines of marks to leave room for; None: as many as the current marks need.
    """
    lines = tuple(sorted((room_for(picture) if room is None else room).items()))
    return _arrange(Picture(picture.title, picture.shapes, picture.links, picture.clusters), lines)


@lru_cache(maxsize=64)
def _arrange(picture: Picture, room: tuple[tuple[Kind, int], ...]) -> Arrangement:
    lines = dict(room)
    size = {shape.id: _box(shape, lines.get(shape.kind, 0)) for shape in picture.shapes}
    cluster_of = {shape.id: shape.cluster for shape in picture.shapes}
    inner = {cluster.id: _inside(cluster.id, picture, size, cluster_of) for cluster in picture.clusters}
    outer = _outside(picture, size, cluster_of, inner)
    return _together(picture, size, cluster_of, inner, outer)


def _box(shape: Shape, lines: int) -> Box:
    text = max(len(shorten(shape.label or shape.name)), len(shorten(shape.detail)))
    if shape.kind is Kind.REPARTITION:
        return Box(shape.id, max(96.0, text * _SMALL_CHARACTER + 28), 22 + _LINE * lines)
    tall = 30 + _LINE * (1 if shape.detail else 0) + _LINE * lines + (8 if shape.kind is Kind.STORE else 0)
    if shape.kind is Kind.SUBTOPOLOGY:
        return Box(shape.id, max(150.0, text * _CHARACTER + 44), tall + 10)
    ends = 12 if shape.kind in (Kind.TOPIC, Kind.INTERNAL_TOPIC) else 0
    return Box(shape.id, max(152.0 if lines else 96.0, text * _CHARACTER + 28 + ends), tall)


def _ports(cluster: int, links: Sequence[Link], cluster_of: dict[str, int | None]) -> tuple[list[Link], list[Link]]:
    entering = [link for link in links if cluster_of[link.target] == cluster and cluster_of[link.source] != cluster]
    leaving = [link for link in links if cluster_of[link.source] == cluster and cluster_of[link.target] != cluster]
    return entering, leaving


def _port(link: Link) -> str:
    return f"{link.source}\0{link.target}"


def _inside(cluster: int, picture: Picture, size: dict[str, Box], cluster_of: dict[str, int | None]) -> Layout:
    entering, leaving = _ports(cluster, picture.links, cluster_of)
    boxes = [size[shape.id] for shape in picture.shapes if shape.cluster == cluster]
    boxes += [Box(_port(link), 2.0, 0.0) for link in (*entering, *leaving)]
    edges = [
        (link.source, link.target) for link in picture.links if cluster_of[link.source] == cluster_of[link.target] == cluster
    ]
    edges += [(_port(link), link.target) for link in entering] + [(link.source, _port(link)) for link in leaving]
    return lay_out(boxes, edges, top=map(_port, entering), bottom=map(_port, leaving), gap_y=26.0)


def _outside(picture: Picture, size: dict[str, Box], cluster_of: dict[str, int | None], inner: dict[int, Layout]) -> Layout:
    blocks = [
        Box(f"cluster:{number}", laid.width + 2 * PADDING, laid.height + HEADER + PADDING) for number, laid in inner.items()
    ]
    topics = [size[shape.id] for shape in picture.shapes if shape.cluster is None]

    def block_of(shape: str) -> str:
        cluster = cluster_of[shape]
        return shape if cluster is None else f"cluster:{cluster}"

    edges = [(block_of(link.source), block_of(link.target)) for link in picture.links if block_of(link.source) != block_of(link.target)]
    return lay_out_parts([*topics, *blocks], edges, gap_x=30.0, gap_y=36.0, width=WIDE)


def _together(
    picture: Picture, size: dict[str, Box], cluster_of: dict[str, int | None], inner: dict[int, Layout], outer: Layout
) -> Arrangement:
    corner = {
        number: (
            outer.centres[f"cluster:{number}"][0] - (laid.width + 2 * PADDING) / 2,
            outer.centres[f"cluster:{number}"][1] - (laid.height + HEADER + PADDING) / 2,
        )
        for number, laid in inner.items()
    }

    def moved(cluster: int, point: Point) -> Point:
        left, top = corner[cluster]
        return (left + PADDING + point[0], top + HEADER + point[1])

    placed = []
    for shape in picture.shapes:
        at = outer.centres[shape.id] if shape.cluster is None else moved(shape.cluster, inner[shape.cluster].centres[shape.id])
        placed.append(Placed(shape, *at, size[shape.id].width, size[shape.id].height))
    routes = _routes(picture, cluster_of, inner, outer, moved)
    blocks = tuple(
        (number, (*corner[number], laid.width + 2 * PADDING, laid.height + HEADER + PADDING)) for number, laid in inner.items()
    )
    return Arrangement(tuple(placed), routes, blocks, outer.width, outer.height)


def _routes(
    picture: Picture,
    cluster_of: dict[str, int | None],
    inner: dict[int, Layout],
    outer: Layout,
    moved: Callable[[int, Point], Point],
) -> tuple[tuple[Link, tuple[Point, ...]], ...]:
    inside: dict[tuple[int, str, str], list[Point]] = {}
    for cluster, laid in inner.items():
        entering, leaving = _ports(cluster, picture.links, cluster_of)
        edges = [
            (link.source, link.target) for link in picture.links if cluster_of[link.source] == cluster_of[link.target] == cluster
        ]
        edges += [(_port(link), link.target) for link in entering] + [(link.source, _port(link)) for link in leaving]
        for (upper, lower), route in zip(edges, laid.routes, strict=True):
            inside[cluster, upper, lower] = [moved(cluster, point) for point in route]

    def block_of(shape: str) -> str:
        cluster = cluster_of[shape]
        return shape if cluster is None else f"cluster:{cluster}"

    between = iter(outer.routes)
    routes = []
    for link in picture.links:
        source, target = cluster_of[link.source], cluster_of[link.target]
        if source is not None and source == target:
            routes.append((link, tuple(inside[source, link.source, link.target])))
            continue
        middle = list(next(between)) if block_of(link.source) != block_of(link.target) else []
        head = inside[source, link.source, _port(link)] if source is not None else []
        tail = inside[target, _port(link), link.target] if target is not None else []
        # the outer route ends in the middle of the blocks; the ports are nearer
        if head:
            middle = middle[1:]
        if tail:
            middle = middle[:-1]
        routes.append((link, tuple(head + middle + tail)))
    return tuple(routes)
