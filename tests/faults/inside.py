"""What an instance of a test process holds: queues, positions, ends, open commits, and where its threads are. For runs that do not end.

A process calls `install`; `SIGUSR1` makes it append its story to the file. Signal handlers run between two bytecodes of the main thread,
which runs the poll loop, so nothing is half done.
"""

from __future__ import annotations

import faulthandler
import gc
import json
import signal
from pathlib import Path
from typing import Any

from kstreams_repl.host.instance.instance import Instance
from kstreams_repl.host.kafka.group_offsets import known_end, positions


def install(path: Path) -> None:
    """Write the story of this process's instances to the file at SIGUSR1."""

    def tell(number: int, frame: Any) -> None:
        found = [stories(each) for each in gc.get_objects() if isinstance(each, Instance)]
        with open(path, "a", encoding="utf-8") as file:
            for story in found:
                file.write(json.dumps(story, indent=1, default=repr) + "\n")
            file.flush()
            faulthandler.dump_traceback(file, all_threads=True)

    signal.signal(signal.SIGUSR1, tell)


def stories(instance: Instance) -> dict[str, Any]:
    """The state of one open instance."""
    consumer, bounds, read = instance.clients.consumer, instance.bounds, instance.input
    tasks = {}
    for task in instance.tasks:
        group = task.task.group
        at = positions(consumer, task.committed)
        tasks[str(task.id)] = {
            "touched": task.touched,
            "passed more": task.has_passed_more(),
            "partitions": {
                str(partition): {
                    "queue": group.queues[partition].size,
                    "head": group.queues[partition].has_head,
                    "committed": offset,
                    "position": at.get(partition),
                    "known end": known_end(consumer, partition),
                    "end met": read.ends.get(partition),
                    "reached": read._reached.get(partition),
                    "stable": read._stable.get(partition),
                    "lag": group._lags.get(partition),
                    "bound": None if bounds is None else bounds._positions.get(partition),
                }
                for partition, offset in task.committed.items()
            },
        }
    return {
        "slot": instance.slot,
        "state": str(instance.life.state),
        "commits": instance.committer.commit_id,
        "restoring": instance.updater is not None,
        "in transaction": instance.clients.fence.in_transaction,
        "tasks": tasks,
    }
