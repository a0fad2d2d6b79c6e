"""Extension for mkdocstrings: the ``Example:`` section of a docstring is shown as code, as griffe shows ``Examples:``."""

from __future__ import annotations

import re

import griffe

_EXAMPLE = re.compile(r"^Example:$", re.MULTILINE)


class ExampleSections(griffe.Extension):
    """Renames the section before griffe parses it."""

    def on_object(self, *, obj: griffe.Object, **kwargs: object) -> None:
        if obj.docstring is not None:
            obj.docstring.value = _EXAMPLE.sub("Examples:", obj.docstring.value)
