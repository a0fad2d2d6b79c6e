"""The notebook integration: magics, completion, short error messages and cell tracking. The only package that imports IPython and
Jupyter.

``%load_ext kstreams_repl`` loads it. Every magic is one documented call of the Python API; loading and unloading can be repeated.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from IPython.core.interactiveshell import InteractiveShell


def load_ipython_extension(ipython: InteractiveShell) -> None:
    """Add magics, completion, error display and cell tracking, and print a three-line greeting. Loading twice does nothing."""
    from kernel_ext.extension import Extension

    if Extension.of(ipython) is None:
        Extension(ipython).load()


def unload_ipython_extension(ipython: InteractiveShell) -> None:
    """Remove what loading added; sessions and applications stay."""
    from kernel_ext.extension import Extension

    extension = Extension.of(ipython)
    if extension is not None:
        extension.unload()
