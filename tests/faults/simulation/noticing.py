"""What the simulation makes of one mutant: it notices the rule that is gone, or it meets a mistake in the mutant's own writing.

A failed assertion, a violation and the project's own errors are a notice; any other exception is so only where the mutant says that the
missing rule shows in it (`Mutant.shows_as`). Else a mutant with a misspelt name would be "noticed" for ever, and its rule have no test.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any
from unittest.mock import patch

from tests.faults.mutants import MUTANTS, install

_OWN_FAULTS = (NameError, AttributeError, ImportError, SyntaxError)
"""Of a mutant's text; told also when the project wrapped them in an error of its own."""


@dataclass(frozen=True)
class Notice:
    """Args:
    what: showed, or "" when nothing did.
    broken: the exception that says that the mutant does not run as it was meant to, or "".
    """

    what: str
    broken: str = ""


def notice(name: str, first: int, count: int) -> Notice:
    """Run the single steps, then seeds, on a mutant until something shows. In a process that has not imported the project yet."""
    try:
        return _notice(name, range(first, first + count))
    except Exception as error:  # it cannot even be imported, or its text is not in the source any more
        return Notice("", f"{type(error).__name__}: {error}")


def _notice(name: str, seeds: range) -> Notice:
    install(name)
    from tests.faults.simulation.seed import run_seed
    from tests.faults.simulation.steps import STEPS

    allowed = MUTANTS[name].shows_as
    for step, run in STEPS.items():
        with _failures() as met:
            try:
                run()
            except Exception as error:
                return judged(f"{step}: {type(error).__name__}: {error}", [error, *met], allowed)
    for seed in seeds:
        with _failures() as met:
            try:
                found = run_seed(seed).violations
            except Exception as error:
                return judged(f"seed {seed}: {type(error).__name__}: {error}", [error, *met], allowed)
            if found:
                return judged(f"seed {seed}: " + "\n  ".join(found[:4]), met, allowed)
    return Notice("")


def judged(what: str, errors: Sequence[BaseException], allowed: Sequence[str]) -> Notice:
    """A notice, broken by the first of the errors that neither the checks, the project nor the mutant's rule account for.

    Args:
        allowed: names of further exceptions in which the rule may show.
    """
    from kstreams_repl.system.errors import KStreamsError

    for error in errors:
        if type(error).__name__ in allowed:
            continue
        cause = error
        while cause.__cause__ is not None and not isinstance(cause, _OWN_FAULTS):
            cause = cause.__cause__
        if isinstance(cause, _OWN_FAULTS) or not isinstance(error, (AssertionError, KStreamsError)):
            return Notice(what, f"{type(cause).__name__}: {cause}")
    return Notice(what)


@contextmanager
def _failures() -> Iterator[list[BaseException]]:
    """The errors that instances fail of meanwhile."""
    from kstreams_repl.host.instance.epochs import instance_runner

    met: list[BaseException] = []
    tell = instance_runner.failure_of

    def told(error: BaseException) -> dict[str, Any]:
        met.append(error)
        return tell(error)

    with patch.object(instance_runner, "failure_of", told):
        yield met
