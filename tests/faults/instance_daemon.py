"""Starts instances as plain processes, fast: one process that has everything imported and forks.

``python -m tests.faults.instance_daemon``: each line of standard input is a JSON object ``{"plan": file, "slot": n, "failpoints": text,
"inside": hit}``; the answer is the child's process id. The plan is the project's own, pickled as for Spark; a child runs `run_instance`
until it is told to stop or dies. The end of the input ends the daemon; its children see that by their parent.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import time
import traceback
from pathlib import Path
from typing import Any

from pyspark import cloudpickle

from kstreams_repl.engine.commit import failpoints
from kstreams_repl.engine.stores.engine.lmdb import LmdbEnvironment
from kstreams_repl.host.instance.control.file_channel import FileInstanceControl
from kstreams_repl.host.instance.epochs.instance_runner import run_instance
from kstreams_repl.host.instance.initialization.task_initialization import open_instance  # noqa: F401  imported before the fork
from tests.faults import inside


def _stop_inside(hit: int) -> None:
    """SIGSTOP inside the hit-th transaction of a store's commit, with LMDB's write lock held."""
    write, passed = LmdbEnvironment._write_meta, [0]

    def stopping(self: Any, *arguments: Any) -> None:
        write(self, *arguments)
        if arguments[-1] is not None:  # a commit, not a restore
            passed[0] += 1
            if passed[0] == hit:
                os.kill(os.getpid(), signal.SIGSTOP)

    LmdbEnvironment._write_meta = stopping  # type: ignore[method-assign]


def _child(order: dict[str, Any], parent: int) -> None:
    failpoints.arm(order.get("failpoints", ""))
    if order.get("inside"):
        _stop_inside(order["inside"])
    inside.install(Path(f"{order['plan']}.{os.getpid()}.story"))
    plan = cloudpickle.loads(Path(order["plan"]).read_bytes())
    control = FileInstanceControl(plan.control_directory, plan.generation, order["slot"], parent=parent)
    run_instance(plan, order["slot"], until=time.monotonic() + 3600, control=control, own_process=True)


def main() -> None:
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # children leave no zombies of the other kind
    print("ready", flush=True)
    own = os.getpid()  # a child whose parent dies before it looks would take the next one for its parent
    for line in sys.stdin:
        order = json.loads(line)
        child = os.fork()
        if child == 0:
            os.close(0)
            os.dup2(2, 1)  # the answers are the daemon's
            try:
                _child(order, own)
            except BaseException:  # nobody above would say it
                traceback.print_exc()
            finally:
                os._exit(0)
        print(child, flush=True)


if __name__ == "__main__":
    main()
