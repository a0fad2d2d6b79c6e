"""How much of a picture is shown: repartitioning as one edge, sub-topologies as one box, generated names without their numbers.

`simplified` turns a whole `Picture`, marks included, into the one that is drawn, so that static and live pictures agree. A state
that differs from the application's is never hidden: a shape that stands for several shapes takes their most serious state.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace

from kstreams_repl.pictures.graph.picture import Kind, Link, Mark, Picture, Shape
from kstreams_repl.pictures.wording import counted

_NODES = (Kind.SOURCE, Kind.PROCESSOR, Kind.SINK)
_SERIOUS = ("failed", "differs", "stale", "silent", "restoring", "paused", "stopped", "running")
_NUMBER = re.compile(r"-\d{10}(?!\d)")
_GENERATED_NODE = re.compile(r"(KSTREAM|KTABLE)-[A-Z-]+-(\d{10})")
_SCOPE = re.compile(r"^(stream|table) (?!(stream|table|source)\b)")


@dataclass(frozen=True, slots=True)
class View:
    """What is shown.

    Attributes:
        names: show generated names in full, with their numbers.
        repartitions: show every node of a repartitioning instead of one edge.
        collapsed: sub-topologies that are drawn as one box.
    """

    names: bool = False
    repartitions: bool = False
    collapsed: frozenset[int] = frozenset()


def simplified(picture: Picture, view: View | None = None) -> Picture:
    """Return the picture as a view shows it."""
    view = view or View()
    if not view.repartitions:
        picture = _fold_repartitions(picture)
    clusters = {cluster.id for cluster in picture.clusters}
    for cluster in sorted(view.collapsed & clusters):
        picture = _collapse(picture, cluster)
    return picture if view.names else replace(picture, shapes=tuple(map(_plainly_named, picture.shapes)))


def summary_of(picture: Picture | None, view: View) -> dict[str, bool | int]:
    """Return a view for a front end's buttons: its options, how many nodes and sub-topologies there are, and how many of these
    are one box."""
    clusters = {cluster.id for cluster in picture.clusters} if picture else set[int]()
    foldable = picture is not None and len(_fold_repartitions(picture).shapes) < len(picture.shapes)
    return {
        "names": view.names,
        "repartitions": view.repartitions,
        "foldable": foldable,
        "nodes": sum(shape.kind in _NODES for shape in picture.shapes) if picture else 0,
        "clusters": len(clusters),
        "collapsed": len(clusters & view.collapsed),
    }


def link_rates(picture: Picture) -> list[float | None]:
    """Return the records per second over each link, in the order of the links; None if unknown."""
    entering: dict[str, int] = {}
    for link in picture.links:
        if not link.state:
            entering[link.target] = entering.get(link.target, 0) + 1

    def of(shape: str) -> float | None:
        mark = picture.marks.get(shape)
        return None if mark is None else mark.rate

    kinds = {shape.id: shape.kind for shape in picture.shapes}
    rates: list[float | None] = []
    for link in picture.links:
        if link.state:
            rates.append(None)
        elif entering[link.target] == 1 and of(link.target) is not None:
            rates.append(of(link.target))  # the only link into its target
        elif kinds[link.source] in (Kind.SOURCE, Kind.SINK, Kind.REPARTITION):
            rates.append(of(link.source))  # these kinds forward every record
        else:
            rates.append(None)
    return rates


# ---- repartitioning


def _fold_repartitions(picture: Picture) -> Picture:
    shapes = {shape.id: shape for shape in picture.shapes}
    children, parents = _neighbours(picture.links)
    goes: dict[str, str] = {}  # shape -> the repartition topic that stands for it
    for topic in picture.shapes:
        if topic.kind is not Kind.INTERNAL_TOPIC or not topic.name.endswith("-repartition"):
            continue
        writers, readers = parents.get(topic.id, []), children.get(topic.id, [])
        if len(writers) != 1 or len(readers) != 1 or len(parents.get(writers[0], [])) != 1 or not children.get(readers[0]):
            continue
        goes |= {writers[0]: topic.id, readers[0]: topic.id, topic.id: topic.id}
        before = parents[writers[0]][0]
        if _is_filter_of(shapes[before], shapes[writers[0]], topic) and children[before] == [writers[0]]:
            goes[before] = topic.id
    if not goes:
        return picture
    drawn = tuple(
        replace(shape, kind=Kind.REPARTITION, detail="") if goes.get(shape.id) == shape.id else shape
        for shape in picture.shapes
        if goes.get(shape.id, shape.id) == shape.id
    )
    return _merged(picture, drawn, goes, _repartition_mark)


def _is_filter_of(shape: Shape, sink: Shape, topic: Shape) -> bool:
    """Return whether a shape is the filter that repartitioning adds before its sink: it drops records without a key."""
    if shape.kind is not Kind.PROCESSOR:
        return False
    numbers = [_GENERATED_NODE.fullmatch(one.name) for one in (shape, sink)]
    if numbers[0] and numbers[1]:
        return shape.name.startswith("KSTREAM-FILTER-") and int(numbers[0][2]) == int(numbers[1][2]) + 1
    return shape.name == f"{topic.name}-filter"


def _repartition_mark(marks: list[tuple[Shape, Mark]], general: str | None) -> Mark:
    read = [mark for shape, mark in marks if shape.kind is Kind.SOURCE]
    rate, lag = (read[0].rate, read[0].lag) if read else (None, None)
    state = _most_serious((mark for _, mark in marks), general)
    lines = [line for _, mark in marks if mark.state == state != general for line in mark.lines]
    return Mark(state, tuple(lines[:1]) or ((f"lag {lag:,}",) if lag else ()), rate, lag)


# ---- sub-topologies


def _collapse(picture: Picture, cluster: int) -> Picture:
    inside = [shape for shape in picture.shapes if shape.cluster == cluster]
    label = next(each.label for each in picture.clusters if each.id == cluster)
    nodes, stores = (sum(shape.kind in kinds for shape in inside) for kinds in (_NODES, (Kind.STORE,)))
    counts = [counted(nodes, "node"), *([counted(stores, "store")] if stores else [])]
    box = Shape(f"part:{cluster}", Kind.SUBTOPOLOGY, label, ", ".join(counts))
    drawn: list[Shape] = []
    for shape in picture.shapes:
        if shape.cluster != cluster:
            drawn.append(shape)
        elif shape is inside[0]:
            drawn.append(box)
    merged = _merged(picture, tuple(drawn), {shape.id: box.id for shape in inside}, _subtopology_mark)
    return replace(merged, clusters=tuple(each for each in picture.clusters if each.id != cluster))


def _subtopology_mark(marks: list[tuple[Shape, Mark]], general: str | None) -> Mark:
    sources = [mark for shape, mark in marks if shape.kind is Kind.SOURCE]
    rates = [mark.rate for mark in sources if mark.rate is not None]
    lags = [mark.lag for mark in sources if mark.lag is not None]
    lines = [f"{sum(rates):,.0f} records/s"] if rates else []
    lines += [f"lag {sum(lags):,}"] if lags else []
    state = _most_serious((mark for _, mark in marks), general)
    return Mark(state, tuple(lines), sum(rates) if rates else None, sum(lags) if lags else None)


def _most_serious(marks: Iterable[Mark], general: str | None) -> str | None:
    states = {mark.state for mark in marks if mark.state is not None}
    return next((state for state in _SERIOUS if state in states and state != general), general if states else None)


def _merged(
    picture: Picture,
    shapes: tuple[Shape, ...],
    goes: Mapping[str, str],
    mark_of: Callable[[list[tuple[Shape, Mark]], str | None], Mark],
) -> Picture:
    """Return the picture with the shapes that stand for others: links lead to these, marks are merged."""
    links: dict[Link, None] = {}
    for link in picture.links:
        source, target = goes.get(link.source, link.source), goes.get(link.target, link.target)
        if source != target:
            links[Link(source, target, link.state)] = None
    marks = {name: mark for name, mark in picture.marks.items() if name not in goes}
    standing: dict[str, list[tuple[Shape, Mark]]] = {}
    for shape in picture.shapes:
        if shape.id in goes and shape.id in picture.marks:
            standing.setdefault(goes[shape.id], []).append((shape, picture.marks[shape.id]))
    marks |= {name: mark_of(state, picture.common_state) for name, state in standing.items()}
    return replace(picture, shapes=shapes, links=tuple(links), marks=marks)


def _neighbours(links: Iterable[Link]) -> tuple[dict[str, list[str]], dict[str, list[str]]]:
    children: dict[str, list[str]] = {}
    parents: dict[str, list[str]] = {}
    for link in links:
        if not link.state:
            children.setdefault(link.source, []).append(link.target)
            parents.setdefault(link.target, []).append(link.source)
    return children, parents


# ---- names


def _plainly_named(shape: Shape) -> Shape:
    """Return a shape whose generated name is replaced by a plain one: what a node does, whose store or topic it is."""
    if shape.kind is Kind.REPARTITION:
        own = not _NUMBER.search(shape.name)
        return replace(shape, label=shape.name if own else "repartition")
    if shape.kind in _NODES:
        if not _GENERATED_NODE.match(shape.name):
            return shape
        return replace(shape, label=_SCOPE.sub("", shape.detail) or shape.name, detail="")
    if not _NUMBER.search(shape.name):
        return shape
    if shape.kind is Kind.TOPIC:
        return shape
    scope, plain = re.fullmatch(r"(KSTREAM-|KTABLE-)?(.*)", _NUMBER.sub("", shape.name), re.DOTALL).groups()  # type: ignore[union-attr]
    plain = plain.replace("STATE-STORE", "store").replace("-", " ")
    return replace(shape, label=plain.lower() if scope else plain)
