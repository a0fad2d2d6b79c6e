"""Instances of the application of test_as_of.py in a process of their own, to be killed: NAME BOOTSTRAP STATE GENERATION INSTANCES."""

from __future__ import annotations

import sys
import threading
import time
from pathlib import Path
from typing import Any

from kstreams_repl.engine.config import StreamsConfig
from kstreams_repl.host.instance.control.channel import Signal
from kstreams_repl.host.instance.control.file_channel import FileChannel, FileInstanceControl
from kstreams_repl.host.instance.epochs.instance_runner import run_instance
from kstreams_repl.host.kafka.admin import Admin
from kstreams_repl.host.kafka.clients import ClientSettings
from kstreams_repl.host.spark.planning.plan_builder import make_plan


def config_of(name: str, bootstrap: str, root: Path, instances: int = 1) -> StreamsConfig:
    return StreamsConfig({
        "application.id": name, "bootstrap.servers": bootstrap, "state.dir": str(root), "num.stream.threads": instances,
        "processing.guarantee": "exactly_once_v2", "commit.interval.ms": 20,
    })  # fmt: skip


def start(
    settings: ClientSettings, config: StreamsConfig, topology: Any, generation: int, instances: int = 1, version: int = 1
) -> tuple[list[threading.Thread], Any]:
    """Start all instances of a generation; return their threads, and what stops them."""
    root = Path(config["state.dir"])
    plan = make_plan(topology, config, settings, admin=Admin(settings), generation=generation, state_root=root, version=version)
    lease = FileChannel(Path(plan.control_directory))
    lease.signal(plan.generation, Signal.RUN)
    threads = []
    for slot in range(instances):
        control = FileInstanceControl(plan.control_directory, plan.generation, slot)
        options = {"until": time.monotonic() + 120, "control": control}
        threads.append(threading.Thread(target=run_instance, args=(plan, slot), kwargs=options))
        threads[-1].start()
    return threads, lambda: lease.signal(plan.generation, Signal.STOP)


def main(name: str, bootstrap: str, state: str, generation: str, instances: str) -> None:
    from tests.kafka.test_as_of import topology

    config = config_of(name, bootstrap, Path(state), int(instances))
    threads, _ = start(ClientSettings(bootstrap), config, topology(name, int(generation)), int(generation), int(instances))
    for thread in threads:
        thread.join()


if __name__ == "__main__":
    main(*sys.argv[1:])
