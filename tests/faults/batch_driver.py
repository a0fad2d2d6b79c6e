"""The driver of one bounded run in a process of its own, without Spark: what `Deployment` does, by the project's own functions.

The instances are plain processes of `instance_daemon`. One that dies is started again, as Spark does.
``python -m tests.faults.batch_driver JSON``, with ``bootstrap``, ``directory``, ``name``, ``topology`` (of `batch_topologies`, or the
format of `table_of`), ``config`` and ``failpoints`` (by slot, of its first process). Exits with 0 when the run is finished; prints the
pids of instances.
"""

from __future__ import annotations

import faulthandler
import json
import os
import signal
import subprocess
import sys
import threading
import time
from functools import partial
from pathlib import Path

from pyspark import cloudpickle

from kstreams_repl.engine.config import StreamsConfig
from kstreams_repl.host.batch.completion import CompletionWatch
from kstreams_repl.host.batch.stop_offsets import bounded_plan
from kstreams_repl.host.instance.control.channel import Signal
from kstreams_repl.host.instance.control.file_channel import FileChannel
from kstreams_repl.host.instance.initialization.task_initialization import fence_instances
from kstreams_repl.host.instance.state.state_directory import control_directory
from kstreams_repl.host.kafka.admin import Admin
from kstreams_repl.host.kafka.clients import ClientSettings
from kstreams_repl.host.spark.fencing.generation_fencing import Generations
from kstreams_repl.host.spark.planning.plan_builder import make_plan
from tests.faults.batch_topologies import TOPOLOGIES, table_of

ROOT = Path(__file__).parents[2]


def main() -> int:
    faulthandler.register(signal.SIGUSR1, all_threads=True)  # to standard error
    given = json.loads(sys.argv[1])
    directory = Path(given["directory"])
    settings = ClientSettings(given["bootstrap"])
    config = StreamsConfig({"application.id": f"{given['name']}-app", "bootstrap.servers": given["bootstrap"]} | given["config"])
    name = str(config["application.id"])
    admin = Admin(settings)
    build = TOPOLOGIES.get(given["topology"]) or partial(table_of, directory, given["topology"])
    topology = build(given["name"])
    lease = FileChannel(control_directory(directory, name))
    generations = Generations(settings, admin, name, lease)
    number, previous = generations.next(), generations.previous
    plan = make_plan(topology, config, settings, admin=admin, generation=number, state_root=directory, previous=previous)
    plan, bounded = bounded_plan(admin, topology, plan, generations.run)
    before = generations.raise_to(plan, bounded=bounded)
    lease.clear()
    fence_instances(settings, name, range(before), timeout_ms=config["transaction.timeout.ms"])
    file = directory / f"{name}-{plan.generation}.plan"
    file.write_bytes(cloudpickle.dumps(plan))
    daemon = subprocess.Popen(
        [sys.executable, "-m", "tests.faults.instance_daemon"],
        cwd=ROOT,
        env={name: text for name, text in os.environ.items() if name != "KSTREAMS_FAILPOINTS"} | {"PYTHONPATH": str(ROOT)},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert daemon.stdin is not None and daemon.stdout is not None and daemon.stdout.readline() == "ready\n"

    def start(slot: int, failpoints: str = "") -> int:
        assert daemon.stdin is not None and daemon.stdout is not None
        daemon.stdin.write(json.dumps({"plan": str(file), "slot": slot, "failpoints": failpoints}) + "\n")
        daemon.stdin.flush()
        pid = int(daemon.stdout.readline())
        print(json.dumps({"slot": slot, "pid": pid, "generation": plan.generation}), flush=True)
        return pid

    pids = {slot: start(slot, given.get("failpoints", {}).get(str(slot), "")) for slot in range(plan.instances)}
    over = threading.Event()
    CompletionWatch(admin, plan, over.set).start()
    while not over.wait(0.02):
        for slot, report in lease.reports(plan.generation).items():
            if report.get("state") == "failed":
                print(json.dumps({"failed": report.get("failure"), "slot": slot}), flush=True)
                return 1
        for slot, pid in pids.items():
            if not _alive(pid, daemon.pid):
                pids[slot] = start(slot)
    lease.signal(plan.generation, Signal.STOP)
    deadline = time.monotonic() + 30
    while any(_alive(pid, daemon.pid) for pid in pids.values()) and time.monotonic() < deadline:
        time.sleep(0.01)
    generations.tell(plan, Signal.STOP, finished=True)
    generations.close()
    daemon.stdin.close()
    daemon.wait(30)
    return 0


def _alive(pid: int, parent: int) -> bool:
    try:
        return int(Path(f"/proc/{pid}/stat").read_text().rpartition(") ")[2].split()[1]) == parent
    except OSError:
        return False


if __name__ == "__main__":
    sys.exit(main())
