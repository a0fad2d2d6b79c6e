"""A kernel that makes a fork, promotes or drops it, to be killed. Arguments: broker, directory, application, verb (fork, promote, drop).

It says ``begin`` and ``done`` with each step; failpoints come from the environment (`engine.commit.failpoints`).
"""

from __future__ import annotations

import sys
import time

import kstreams_repl as ks
from tests.faults.kernel_process import tagging

SETTINGS = {
    "processing.guarantee": "exactly_once_v2",
    "num.stream.threads": 1,
    "commit.interval.ms": 50,
    "auto.offset.reset": "earliest",
}


def main() -> None:
    bootstrap, directory, name, verb = sys.argv[1:]
    session = ks.connect(bootstrap, directory=directory, report=lambda line: None)
    source, sink = f"{name}-in", f"{name}-out"
    app = session.deploy(tagging(source, sink, "v1"), name, config=SETTINGS)
    assert app.wait(120)
    print("begin fork", flush=True)
    fork = app.fork("next", tagging(source, sink, "v2"))
    print("done fork", flush=True)
    if verb == "promote":
        print("begin promote", flush=True)
        fork.promote()
        print("done promote", flush=True)
    elif verb == "drop":
        print("begin drop", flush=True)
        fork.drop()
        print("done drop", flush=True)
    while True:
        time.sleep(1)


if __name__ == "__main__":
    main()
