"""A driver in a process of its own that loses Spark under a running application, twice, and goes on. Arguments: broker, source, sink,
state directory, name. Prints a line of JSON for each loss; the test writes 1,000 records before the first and after each.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from typing import Any

from kstreams_repl.host.spark.application_state import Status
from kstreams_repl.host.spark.deployment import Deployment
from kstreams_repl.host.spark.startup.spark_session import get_session
from tests.spark.hosting import counting, processed, settle


def kill_jvm() -> None:
    from pyspark import SparkContext

    gateway: Any = SparkContext._gateway
    gateway.proc.kill()
    gateway.proc.wait()


def stop_spark() -> None:
    get_session().stop()


def main() -> None:
    bootstrap, source, sink, state, name = sys.argv[1:]
    settings = {
        "application.id": name,
        "bootstrap.servers": bootstrap,
        "processing.guarantee": "exactly_once_v2",
        "num.stream.threads": 2,
        "state.dir": state,
    }
    deployment = Deployment(counting(source, sink), settings, slots=4).start()
    losses: list[Callable[[], None]] = [kill_jvm, stop_spark]
    for number, lose in enumerate(losses, 1):
        processed(deployment, number * 1_000)
        lose()
        settle(lambda: deployment.status is Status.FAILED, "the application to see it", story=lambda: deployment)
        error = deployment.error
        assert error is not None
        print(json.dumps([lose.__name__, type(error).__name__, error.message, error.hint]), flush=True)
        deployment.resume()
    processed(deployment, 3_000)
    deployment.stop()
    print(json.dumps(["end", str(deployment.status)]), flush=True)


if __name__ == "__main__":
    main()
