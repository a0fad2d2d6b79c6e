"""A progress bar in the output of a cell: one display that is updated in place, and that the saved notebook keeps."""

from __future__ import annotations

from typing import Any

from IPython.display import display

from kstreams_repl.pictures.markup import clean_text, element


class ProgressBar:
    """`ProgressView` of a notebook."""

    seconds = 0.5

    def __init__(self) -> None:
        self._done, self._total, self._text = 0, 1, ""
        self._handle: Any = None

    def show(self, done: int, total: int, text: str) -> None:
        self._done, self._total, self._text = done, max(total, 1), text
        if self._handle is None:
            self._handle = display(self, display_id=True)
        else:
            self._handle.update(self)

    def _repr_mimebundle_(self, include: object = None, exclude: object = None) -> dict[str, str]:
        bar = element("progress", value=self._done, max=self._total, style="width: 16em; vertical-align: middle")
        return {"text/plain": clean_text(self._text), "text/html": str(element("div", bar, " ", self._text))}
