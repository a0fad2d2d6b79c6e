"""A driver in a process of its own, to be killed: deploys a count, says so, and waits. Arguments: broker, source, sink, state
directory, name, and more settings as JSON.
"""

from __future__ import annotations

import json
import sys
import time

from kstreams_repl.host.spark.deployment import Deployment
from tests.spark.hosting import counting


def main() -> None:
    bootstrap, source, sink, state, name, *more = sys.argv[1:]
    settings = {
        "application.id": name,
        "bootstrap.servers": bootstrap,
        "processing.guarantee": "exactly_once_v2",
        "num.stream.threads": 2,
        "state.dir": state,
        **(json.loads(more[0]) if more else {}),
    }
    deployment = Deployment(counting(source, sink), settings, slots=4).start()
    said = False
    while True:
        report = deployment.reports
        if not said and len(report.instances) == 2 and all(one.state == "running" for one in report.instances.values()):
            print("running", *(one.pid for one in report.instances.values()), flush=True)
            said = True
        time.sleep(0.02)


if __name__ == "__main__":
    main()
