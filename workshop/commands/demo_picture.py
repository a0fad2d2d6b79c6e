"""The README's picture: ``python -m workshop.commands.demo_picture > docs/pictures/demo.svg``."""

from __future__ import annotations

import re

from kstreams_repl.demo import topology
from kstreams_repl.pictures.picture import picture_of
from kstreams_repl.pictures.svg import svg_of
from kstreams_repl.pictures.view import simplified


def svg() -> str:
    """Return the demo's topology, drawn by the same code as in a notebook, without the source locations in tooltips."""
    picture = simplified(picture_of(topology.build().build(), title="flights"))
    return re.sub(r"\\n[^<]*, line \d+</title>", "</title>", str(svg_of(picture)))


if __name__ == "__main__":
    print(svg())
