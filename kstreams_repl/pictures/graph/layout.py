"""A layered layout of a directed graph, top to bottom: longest-path layers, barycentre ordering, isotonic coordinates.

It knows only boxes and edges, no topologies. Steps (Sugiyama): 1. reverse back edges; 2. assign layers, then move sources down;
3. split long edges by bends; 4. order layers by repeated barycentre sweeps and keep the best; 5. assign coordinates: each layer's
boxes as near to the middle of their neighbours as order and gaps allow, which is an isotonic regression; 6. route. Two hundred
boxes take some tens of ms.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

Point = tuple[float, float]

SWEEPS = 6
PLACEMENTS = 6
BEND_WIDTH = 8.0


@dataclass(frozen=True, slots=True)
class Box:
    """An object with a size to be laid out."""

    id: str
    width: float
    height: float


@dataclass(frozen=True, slots=True)
class Layout:
    """Positions and routes.

    Attributes:
        centres: centre of each box.
        routes: one list of points per edge, in the order and direction of the given edges, from border to border.
    """

    centres: Mapping[str, Point]
    routes: tuple[tuple[Point, ...], ...]
    width: float
    height: float


def lay_out(
    boxes: Sequence[Box],
    edges: Sequence[tuple[str, str]],
    *,
    top: Iterable[str] = (),
    bottom: Iterable[str] = (),
    gap_x: float = 24.0,
    gap_y: float = 34.0,
) -> Layout:
    """Place boxes in layers so that edges point down where possible.

    Args:
        edges: pairs of box ids; several edges of one pair are allowed; self-loops are routed as points.
        top, bottom: boxes that must be in the first or the last layer.
    """
    if not boxes:
        return Layout({}, (), 0.0, 0.0)
    size = {box.id: box for box in boxes}
    order_of = {box.id: index for index, box in enumerate(boxes)}
    forward = _without_cycles(list(size), [(a, b) for a, b in edges if a != b])
    layer = _layers(list(size), forward, frozenset(top), frozenset(bottom))
    layers, chains = _split(size, layer, forward)
    neighbours = _Neighbours(layers, chains)
    _order(layers, neighbours, order_of)
    widths = {name: size[name].width if name in size else BEND_WIDTH for row in layers for name in row}
    x = _place(layers, neighbours, widths, gap_x, frozenset(size))
    y, height = _rows(layers, size, gap_y)
    left = min(x[name] - widths[name] / 2 for row in layers for name in row)
    right = max(x[name] + widths[name] / 2 for row in layers for name in row)
    centres = {name: (x[name] - left, y[layer[name]]) for name in size}
    points = {name: (x[name] - left, y[index]) for index, row in enumerate(layers) for name in row}
    # edges and chains correspond, except for self-loops, which have no chain
    remaining = iter(chains)
    routes = tuple(_route(edge, next(remaining) if edge[0] != edge[1] else [edge[0], edge[1]], points, size) for edge in edges)
    return Layout(centres, routes, right - left, height)


def lay_out_parts(
    boxes: Sequence[Box], edges: Sequence[tuple[str, str]], *, gap_x: float, gap_y: float, width: float
) -> Layout:
    """Lay out as `lay_out` does, with unconnected parts next to each other, and in further rows below if a row would become too
    wide.

    Args:
        width: always available to a row. With many parts a row becomes wider, so that the whole is twice as wide as high.
    """
    parts = _parts([box.id for box in boxes], edges)
    if len(parts) == 1:
        return lay_out(boxes, edges, gap_x=gap_x, gap_y=gap_y)
    centres: dict[str, Point] = {}
    routes: dict[int, tuple[Point, ...]] = {}
    left = top = tallest = widest = 0.0
    inner = []
    for part in parts:
        mine = [index for index, (a, _) in enumerate(edges) if a in part]
        inner.append((mine, lay_out([box for box in boxes if box.id in part], [edges[one] for one in mine], gap_x=gap_x, gap_y=gap_y)))
    width = max(width, math.sqrt(2 * sum(laid.width * laid.height for _, laid in inner)))
    for mine, laid in inner:
        if left and left + laid.width > width:
            left, top, tallest = 0.0, top + tallest + gap_y, 0.0
        centres |= {name: (x + left, y + top) for name, (x, y) in laid.centres.items()}
        routes |= {index: tuple((x + left, y + top) for x, y in way) for index, way in zip(mine, laid.routes, strict=True)}
        left, tallest = left + laid.width + gap_x, max(tallest, laid.height)
        widest = max(widest, left - gap_x)
    return Layout(centres, tuple(routes[index] for index in range(len(edges))), widest, top + tallest)


def _parts(names: Sequence[str], edges: Sequence[tuple[str, str]]) -> list[set[str]]:
    """Return the connected components, in the order of each component's first name."""
    near: dict[str, list[str]] = {name: [] for name in names}
    for a, b in edges:
        near[a].append(b)
        near[b].append(a)
    parts: list[set[str]] = []
    seen: set[str] = set()
    for name in names:
        if name in seen:
            continue
        part, waiting = {name}, [name]
        while waiting:
            fresh = set(near[waiting.pop()]) - part
            part |= fresh
            waiting += fresh
        seen |= part
        parts.append(part)
    return parts


def _without_cycles(names: Sequence[str], edges: Sequence[tuple[str, str]]) -> list[tuple[str, str]]:
    """Return the edges, reversing those that would close a cycle in a depth-first walk in the given order."""
    children: dict[str, list[str]] = {name: [] for name in names}
    for a, b in edges:
        children[a].append(b)
    open_, done, back = set[str](), set[str](), set[tuple[str, str]]()
    for root in names:
        if root in done:
            continue
        stack = [(root, iter(children[root]))]
        open_.add(root)
        while stack:
            name, following = stack[-1]
            for child in following:
                if child in open_:
                    back.add((name, child))
                elif child not in done:
                    open_.add(child)
                    stack.append((child, iter(children[child])))
                    break
            else:
                stack.pop()
                open_.discard(name)
                done.add(name)
    return [(b, a) if (a, b) in back else (a, b) for a, b in edges]


def _layers(
    names: Sequence[str], edges: Sequence[tuple[str, str]], top: frozenset[str], bottom: frozenset[str]
) -> dict[str, int]:
    children: dict[str, list[str]] = {name: [] for name in names}
    waiting = dict.fromkeys(names, 0)
    for a, b in edges:
        children[a].append(b)
        waiting[b] += 1
    layer = dict.fromkeys(names, 0)
    ready = [name for name in names if waiting[name] == 0]
    walk = []
    while ready:
        name = ready.pop()
        walk.append(name)
        for child in children[name]:
            layer[child] = max(layer[child], layer[name] + 1)
            waiting[child] -= 1
            if waiting[child] == 0:
                ready.append(child)
    has_parent = {b for _, b in edges}
    for name in reversed(walk):  # move sources down to their children
        if name not in has_parent and name not in top and children[name]:
            layer[name] = min(layer[child] for child in children[name]) - 1
    last = max(layer.values())
    for name in bottom:
        layer[name] = last
    return layer


def _split(
    size: Mapping[str, Box], layer: Mapping[str, int], edges: Sequence[tuple[str, str]]
) -> tuple[list[list[str]], list[list[str]]]:
    """Return rows of names, bends included, and for each edge the chain of names from its upper to its lower end."""
    rows: list[list[str]] = [[] for _ in range(max(layer.values()) + 1)]
    for name in size:
        rows[layer[name]].append(name)
    chains = []
    for index, (a, b) in enumerate(edges):
        chain = [a]
        for between in range(layer[a] + 1, layer[b]):
            bend = f"\0{index}:{between}"
            rows[between].append(bend)
            chain.append(bend)
        chain.append(b)
        chains.append(chain)
    return rows, chains


class _Neighbours:
    """Names above and below each name."""

    def __init__(self, layers: Sequence[Sequence[str]], chains: Sequence[Sequence[str]]) -> None:
        self.up: dict[str, list[str]] = {name: [] for row in layers for name in row}
        self.down: dict[str, list[str]] = {name: [] for row in layers for name in row}
        for chain in chains:
            for upper, lower in zip(chain, chain[1:], strict=False):
                self.down[upper].append(lower)
                self.up[lower].append(upper)


def _order(layers: list[list[str]], neighbours: _Neighbours, order_of: Mapping[str, int]) -> None:
    """Sort each layer in place so that few edges cross."""
    best, fewest = [list(row) for row in layers], _crossings(layers, neighbours)
    for sweep in range(SWEEPS):
        if fewest == 0:
            break
        downwards = sweep % 2 == 0
        rows = range(1, len(layers)) if downwards else range(len(layers) - 2, -1, -1)
        for index in rows:
            fixed = {name: position for position, name in enumerate(layers[index - 1 if downwards else index + 1])}
            towards = neighbours.up if downwards else neighbours.down
            here = {name: position for position, name in enumerate(layers[index])}

            middle = {
                name: sum(fixed[other] for other in near) / len(near) if (near := towards[name]) else float(here[name])
                for name in layers[index]
            }
            layers[index].sort(key=middle.__getitem__)
        crossings = _crossings(layers, neighbours)
        if crossings < fewest:
            best, fewest = [list(row) for row in layers], crossings
    layers[:] = best


def _crossings(layers: Sequence[Sequence[str]], neighbours: _Neighbours) -> int:
    """Return the number of crossing edges between neighbouring layers: inversions, counted by a Fenwick tree."""
    total = 0
    for upper, lower in zip(layers, layers[1:], strict=False):
        position = {name: index for index, name in enumerate(lower)}
        tree = [0] * (len(lower) + 1)
        seen = 0
        for name in upper:
            targets = sorted(position[child] for child in neighbours.down[name] if child in position)
            for target in targets:
                below, index = 0, target + 1
                while index:
                    below += tree[index]
                    index -= index & -index
                total += seen - below
            for target in targets:
                index = target + 1
                while index <= len(lower):
                    tree[index] += 1
                    index += index & -index
            seen += len(targets)
    return total


def _place(
    layers: Sequence[Sequence[str]], neighbours: _Neighbours, widths: Mapping[str, float], gap: float, real: frozenset[str]
) -> dict[str, float]:
    x: dict[str, float] = {}
    for row in layers:
        edge = 0.0
        for name in row:
            x[name] = edge + widths[name] / 2
            edge += widths[name] + gap
        for name in row:
            x[name] -= edge / 2
    for step in range(PLACEMENTS):
        downwards = step % 2 == 0
        for row in layers if downwards else reversed(layers):
            towards, other = (neighbours.up, neighbours.down) if downwards else (neighbours.down, neighbours.up)
            wanted, weights = [], []
            for name in row:
                near = towards[name] or other[name]
                wanted.append(sum(x[neighbour] for neighbour in near) / len(near) if near else x[name])
                # bends have a high weight so that long edges are straight; a box without neighbours in this direction has a low
                # one
                weights.append(4.0 if name not in real else 1.0 if towards[name] else 0.25)
            apart = [(widths[a] + widths[b]) / 2 + gap for a, b in zip(row, row[1:], strict=False)]
            x.update(zip(row, _nearest(wanted, weights, apart), strict=True))
    return x


def _nearest(wanted: Sequence[float], weights: Sequence[float], apart: Sequence[float]) -> list[float]:
    """Return the positions nearest to the wanted ones (weighted squares) that keep order and distances: pool adjacent
    violators."""
    shift = [0.0]
    for distance in apart:
        shift.append(shift[-1] + distance)
    blocks: list[list[float]] = []  # weighted sum, weight, count
    for position, weight, offset in zip(wanted, weights, shift, strict=True):
        blocks.append([(position - offset) * weight, weight, 1])
        while len(blocks) > 1 and blocks[-2][0] / blocks[-2][1] > blocks[-1][0] / blocks[-1][1]:
            total, weight_of, count = blocks.pop()
            blocks[-1][0] += total
            blocks[-1][1] += weight_of
            blocks[-1][2] += count
    placed = [total / weight for total, weight, count in blocks for _ in range(int(count))]
    return [position + offset for position, offset in zip(placed, shift, strict=True)]


def _rows(layers: Sequence[Sequence[str]], size: Mapping[str, Box], gap: float) -> tuple[list[float], float]:
    y, edge = [], 0.0
    for row in layers:
        tallest = max((size[name].height for name in row if name in size), default=0.0)
        y.append(edge + tallest / 2)
        edge += tallest + gap
    return y, max(edge - gap, 0.0)


def _route(
    edge: tuple[str, str], chain: Sequence[str], points: Mapping[str, Point], size: Mapping[str, Box]
) -> tuple[Point, ...]:
    """Return the route from the lower border of the upper box to the upper border of the lower one, in the edge's direction."""
    upper, lower = chain[0], chain[-1]
    start = (points[upper][0], points[upper][1] + size[upper].height / 2)
    end = (points[lower][0], points[lower][1] - size[lower].height / 2)
    route = (start, *(points[bend] for bend in chain[1:-1]), end)
    return route if upper == edge[0] else tuple(reversed(route))
