"""Finds the checkout, for the commands that need more than the installed package: notebooks, tests, lock file."""

from __future__ import annotations

import sys
from pathlib import Path

import kstreams_repl
from kstreams_repl.system.errors import KStreamsError


def find_checkout() -> Path | None:
    """Return the folder that contains ``pyproject.toml`` and this package; None if the package was installed from a wheel."""
    root = Path(kstreams_repl.__file__).resolve().parent.parent
    return root if (root / "pyproject.toml").is_file() and (root / "kstreams").is_file() else None


def require_checkout(what: str) -> Path:
    """Return the folder as `find_checkout` does, or raise.

    Raises:
        KStreamsError: the package is not part of a checkout.
    """
    root = find_checkout()
    if root is None:
        raise KStreamsError(
            f"{what} needs the project's checkout, and this package was installed without one.",
            hint="clone the repository and call ./kstreams there",
        )
    return root


def compile_sources() -> None:
    """Compile the checkout's modules that have changed. Where ``PYTHONDONTWRITEBYTECODE`` is set, as in many containers, each process that
    a command starts, Spark's Python daemon too, would compile them by itself, which takes three quarters of a second.
    """
    root = find_checkout()
    if sys.dont_write_bytecode and root is not None:
        import compileall

        compileall.compile_dir(root / "kstreams_repl", quiet=2)
