"""Builds a front end as one module: imports from its own folder are replaced by their text, so that a browser fetches no other
file."""

from __future__ import annotations

import re
from pathlib import Path

STATIC = Path(__file__).parent / "static"
_IMPORT = re.compile(r'^import \{[^}]*\} from "\./(\w+\.js)";\n', re.MULTILINE)
_EXPORT = re.compile(r"^export (?!default)", re.MULTILINE)


def bundle(name: str) -> str:
    """Return the text of a front end (for example `panel.js`) with its imports inlined, each file once, in the module's
    namespace."""
    taken: list[str] = []

    def text_of(file: str) -> str:
        text = (STATIC / file).read_text(encoding="utf-8")
        before = [text_of(other) for other in _IMPORT.findall(text) if other not in taken and not taken.append(other)]  # type: ignore[func-returns-value]
        return "".join(before) + _EXPORT.sub("", _IMPORT.sub("", text))

    return text_of(name)
