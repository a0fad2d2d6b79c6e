"""Pictures of the import graph, drawn from grimp's data: one row and one column for each part of a package.

A dot means that the row imports the column. Parts are ordered so that a row imports parts to its left, as far as possible; a dot
right of the diagonal is part of a cycle, and red.
"""

from __future__ import annotations

from collections.abc import Mapping
from html import escape
from pathlib import Path

import grimp

PICTURES = ("kstreams_repl", "kstreams_repl.engine", "kstreams_repl.host", "kstreams_repl.repl.session")
FOLDER = Path(__file__).resolve().parents[2] / "docs" / "pictures"
CELL, MARGIN, SIZE = 18, 150, 12


def pictures() -> dict[Path, str]:
    """Return the SVG text of each package's picture, by file."""
    graph = grimp.build_graph("kstreams_repl", exclude_type_checking_imports=True, cache_dir=None)
    return {FOLDER / f"imports-{package.replace('.', '-')}.svg": _svg(package, _imports(graph, package)) for package in PICTURES}


def _imports(graph: grimp.ImportGraph, package: str) -> dict[str, set[str]]:
    """Return, by part of the package, the other parts that it imports."""
    parts = {child.rpartition(".")[2]: {child, *graph.find_descendants(child)} for child in graph.find_children(package)}
    home = {module: part for part, modules in parts.items() for module in modules}
    return {
        part: {
            home[imported]
            for module in modules
            for imported in graph.find_modules_directly_imported_by(module)
            if imported in home and home[imported] != part
        }
        for part, modules in parts.items()
    }


def _ordered(imports: Mapping[str, set[str]]) -> list[str]:
    """Return each part after all parts that it imports; the parts of one cycle are adjacent, as they reach the same parts."""
    reached = {part: set(direct) for part, direct in imports.items()}
    while any(found - reached[part] for part in reached for other in list(reached[part]) for found in [reached[other]]):
        for part in reached:
            reached[part] |= {found for other in reached[part] for found in reached[other]}
    cycle = {part: {other for other in reached[part] if part in reached[other]} for part in reached}
    return sorted(imports, key=lambda part: (len(reached[part] | {part}), sorted(cycle[part]), len(imports[part] & cycle[part]), part))


def _svg(package: str, imports: Mapping[str, set[str]]) -> str:
    order = _ordered(imports)
    side = MARGIN + CELL * len(order) + 10
    lines = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {side} {side}" width="{side}" height="{side}" '
        f'font-family="sans-serif" font-size="{SIZE}" fill="#666"><title>Imports within {escape(package)}</title>'
    ]
    for row, part in enumerate(order):
        at = MARGIN + row * CELL
        lines.append(f'<text x="{MARGIN - 6}" y="{at + 13}" text-anchor="end">{escape(part)}</text>')
        lines.append(f'<text transform="translate({at + 13},{MARGIN - 6}) rotate(-90)">{escape(part)}</text>')
        lines.append(f'<rect x="{at}" y="{at}" width="{CELL}" height="{CELL}" fill="#8884"/>')
        for column, other in enumerate(order):
            if other in imports[part]:
                color = "#d33" if column > row else "#2a7fd4"
                lines.append(
                    f'<circle cx="{MARGIN + column * CELL + 9}" cy="{at + 9}" r="5" fill="{color}">'
                    f"<title>{escape(part)} imports {escape(other)}</title></circle>"
                )
    return "\n".join([*lines, "</svg>"]) + "\n"
