"""``python -m tests.faults.simulation.mutation NAME...``: run the simulation on these mutants; print a `Notice` of each as JSON.

Two run at a time. Each gets a forked process of its own, which imports the project itself; only third-party modules are imported before.
"""

from __future__ import annotations

import json
import os
import sys
from dataclasses import asdict

import confluent_kafka.admin  # noqa: F401
import greenlet  # noqa: F401
import lmdb  # noqa: F401
import sortedcontainers  # noqa: F401

from tests.faults.simulation.noticing import Notice, notice

SEEDS = 150
AT_ONCE = 2


def _start(name: str) -> tuple[int, int]:
    """(process id, file that will hold what noticed it)"""
    read, write = os.pipe()
    child = os.fork()
    if child:
        os.close(write)
        return child, read
    os.close(read)
    found = notice(name, 0, SEEDS)
    short = Notice(found.what[:300], found.broken[:300])  # fits into the pipe
    os.write(write, json.dumps(asdict(short)).encode())
    os._exit(0)


def main() -> int:
    names = sys.argv[1:]
    waiting = list(names)
    running: dict[int, tuple[str, int]] = {}
    found: dict[str, dict[str, str]] = {}
    while waiting or running:
        while waiting and len(running) < AT_ONCE:
            name = waiting.pop(0)
            child, read = _start(name)
            running[child] = (name, read)
        child, _ = os.wait()
        name, read = running.pop(child)
        with os.fdopen(read, "rb") as file:
            found[name] = json.load(file)
    print(json.dumps({name: found[name] for name in names}, indent=1))
    return 0


if __name__ == "__main__":
    sys.exit(main())
