"""``python -m tests.faults.simulation.mutation``: run the simulation on every mutant, two at a time; print what noticed each as JSON.

Each mutant gets a forked process of its own, which imports the project anew; only third-party modules are there before.
"""

from __future__ import annotations

import io
import json
import os
import sys
from contextlib import redirect_stdout

import confluent_kafka.admin  # noqa: F401
import greenlet  # noqa: F401
import lmdb  # noqa: F401
import sortedcontainers  # noqa: F401

from tests.faults.mutants import MUTANTS, MutantRottenError

SEEDS = 150
AT_ONCE = 2


def _notice(name: str) -> str:
    from tests.faults.simulation.__main__ import main

    told = io.StringIO()
    with redirect_stdout(told):
        status = main(["--mutant", name, "0", str(SEEDS)])
    return told.getvalue()[:300] if status else ""


def _start(name: str) -> tuple[int, int]:
    """(process id, file that will hold what noticed it)"""
    read, write = os.pipe()
    child = os.fork()
    if child:
        os.close(write)
        return child, read
    os.close(read)
    try:
        what = _notice(name)
    except MutantRottenError:
        what = ""
    except Exception as error:
        what = f"{type(error).__name__}: {error}"
    os.write(write, what.encode()[:4000])
    os._exit(0)


def main() -> int:
    waiting = list(MUTANTS)
    running: dict[int, tuple[str, int]] = {}
    found: dict[str, str] = {}
    while waiting or running:
        while waiting and len(running) < AT_ONCE:
            name = waiting.pop(0)
            child, read = _start(name)
            running[child] = (name, read)
        child, _ = os.wait()
        name, read = running.pop(child)
        with os.fdopen(read, "rb") as file:
            found[name] = file.read().decode()
    print(json.dumps({name: found[name] for name in MUTANTS}, indent=1))
    return 0


if __name__ == "__main__":
    sys.exit(main())
