"""The notebook's side: magics, completion, short errors, cells. The only place that knows IPython and Jupyter.

``%load_ext kstreams_repl`` comes here. Every magic is one documented call of the Python API; loading and unloading may be repeated.
"""

from __future__ import annotations

from typing import Any


def load_ipython_extension(ipython: Any) -> None:
    """Add magics, completion, error display and cell tracking; says in three lines what is there. Loading twice does nothing."""
    from kernel_ext.extension import Extension

    if Extension.of(ipython) is None:
        Extension(ipython).load()


def unload_ipython_extension(ipython: Any) -> None:
    """Take away what loading added; sessions and applications stay."""
    from kernel_ext.extension import Extension

    extension = Extension.of(ipython)
    if extension is not None:
        extension.unload()
