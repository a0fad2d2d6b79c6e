"""`./kstreams bench costs`: the processor time per record of one deployed instance, by what it is spent on, and beside it the floor of each
part: a loop over the same records that does only this.

py-spy samples the worker's stacks, with the frames of C libraries; the kernel says what each thread has used. The polling thread's time is
divided by its samples (`part_of`), what the client's own threads use is a part of its own.
"""

from __future__ import annotations

import shutil
import signal
import subprocess
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import Any

import click
import psutil

from kstreams_repl import serdes
from kstreams_repl.engine.runtime.queues.record_queue import READ_AHEAD
from kstreams_repl.host.kafka.clients import make_consumer
from kstreams_repl.host.kafka.group_offsets import assign
from kstreams_repl.host.kafka.record_batch import columns
from kstreams_repl.host.kafka.transactional import TransactionalProducer
from kstreams_repl.system.errors import KStreamsError
from kstreams_repl.system.types import TopicPartition
from workshop.bench.nexmark import case_of
from workshop.bench.rig import json_output
from workshop.bench.rig.deployed import DEFAULTS, Settings, run_topology
from workshop.bench.rig.nexmark_queries import QUERIES
from workshop.bench.rig.nexmark_values import Values
from workshop.bench.rig.query_cases import QueryCase
from workshop.bench.rig.testbed import PARTITIONS, Testbed, open_testbed, where

BENCH = "costs"
PARTS = ("consume", "decode", "user", "engine", "store", "encode", "produce", "commit", "rest")
CLIENTS = "librdkafka"
_RATE, _ALIVE_SECONDS, _EVERY_SECONDS, _SETTLE_SECONDS = 150, 0.5, 0.05, 1.5
_FLOOR_RECORDS = 200_000
_CLIENT_THREADS = "rdk:"
_RULES: Sequence[tuple[str, tuple[str, ...]]] = (
    ("user", ("nexmark_queries.py",)),
    ("decode", ("deserialize", "read_some (", "read_plain (", "_canonical (")),
    ("encode", ("serialize",)),
    ("produce", ("Producer_produce", "rd_kafka_produce", "record_collector.py")),
    ("consume", ("record_batch.py", "Consumer_consume", "rd_kafka_consume", "Message_")),
    ("store", ("/stores/", "lmdb")),
    ("commit", ("transactional.py", "committer.py", "/commit/", "call_timeout.py")),
    ("engine", ("/engine/",)),
)
"""A sample belongs to the first part one of whose texts is in one of its frames, beginning with the innermost frame."""
_WAITS = ("cond_wait", "cond_timedwait", "cnd_", "acquire_lock_timed", "SimpleQueue_get", "sleep", "poll (libc")


@click.command(help="Processor time per record of one deployed instance by what it is spent on, beside its floors; needs py-spy.")
@click.option("--query", "names", multiple=True, type=click.Choice(list(QUERIES)), default=("q1", "q2", "q13", "rekeyed", "hopping"))
@click.option("--events", type=click.IntRange(50), default=2_000_000, show_default=True, help="As of the command nexmark.")
@click.option("--py-spy", "spy", default="py-spy", show_default=True, help="Path of py-spy.")
@where
def main(names: tuple[str, ...], events: int, spy: str, bootstrap: str | None, directory: Path | None) -> None:
    """Print a line for each query, and one for its floors."""
    if shutil.which(spy) is None:
        raise KStreamsError(f"there is no {spy}", hint="install py-spy, or pass its path: --py-spy")
    json_output.emit_machine()
    with open_testbed(bootstrap, directory) as testbed:
        testbed.session.spark  # noqa: B018 (Spark starts before the first measured run)
        for name in names:
            case = case_of(testbed, Settings(instances=1, clients=DEFAULTS), name, events * QUERIES[name].scale, Values())
            output = testbed.fresh_topic(f"costs-{name}-out")
            sampler = StackSampler(testbed, spy, testbed.scratch / f"costs-{name}.txt")
            topology = case.query.topology(case.prefix, output, case.values)
            run = run_topology(
                testbed, topology, case.inputs, case.settings, f"costs-{name}", during=sampler, settle_seconds=_SETTLE_SECONDS
            )
            _emit(name, sampler.microseconds(run.began, run.ended, run.records), run.records)
            _emit(f"{name} floor", _floors(testbed, case, output, run.records), run.records)
            testbed.admin.delete_topics([output])


def _emit(case: str, parts: dict[str, float], records: int) -> None:
    fields = {part: round(parts.get(part, 0.0), 2) for part in (*PARTS, CLIENTS)}
    json_output.emit(BENCH, case, round(sum(parts.values()), 2), "us/record", **fields, records=records)


def part_of(stack: str) -> str | None:
    """Return the part of the work that a sampled stack belongs to, None for a wait; frames are separated by `;`, the innermost last.

    Example:
        >>> part_of("run (kstreams_repl/host/instance/polling/poll_loop.py:90);fused (kstreams_repl/engine/runtime/<loop 8=n>:12)")
        'engine'
    """
    frames = stack.split(";")
    if any(text in frame for frame in frames[-4:] for text in _WAITS):
        return None
    for frame in reversed(frames):
        for part, texts in _RULES:
            if any(text in frame for text in texts):
                return part
    return "rest"


class StackSampler:
    """Samples the stacks of the worker that works, and the processor time of its threads, while its `with` block runs."""

    def __init__(self, testbed: Testbed, spy: str, file: Path) -> None:
        self._testbed = testbed
        self._command = [spy, "record", "--native", "--threads", "--rate", str(_RATE), "--format", "raw", "--duration", "3600"]
        self._file = file
        self._used: list[tuple[float, dict[tuple[int, str], float]]] = []
        self._end = threading.Event()
        self._thread = threading.Thread(target=self._run, name="bench-stacks", daemon=True)

    def __enter__(self) -> StackSampler:
        self._thread.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self._end.set()
        self._thread.join()

    def _run(self) -> None:
        worker: psutil.Process | None = None
        while worker is None and not self._end.wait(_EVERY_SECONDS):
            with suppress(psutil.Error):
                alive = self._testbed.parts()["workers"]
                worker = next((each for each in alive if _CLIENT_THREADS in " ".join(name for _, name in _threads(each))), None)
        if worker is None:
            return
        command = [*self._command, "--pid", str(worker.pid), "-o", str(self._file)]
        with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as spy:
            while not self._end.wait(_EVERY_SECONDS):
                self._used.append((time.time(), _threads(worker)))
            spy.send_signal(signal.SIGINT)

    def microseconds(self, began: float, ended: float, records: int) -> dict[str, float]:
        """Return the processor time per record by part.

        Raises:
            KStreamsError: there are no samples.
        """
        if not self._used or not self._file.exists():
            raise KStreamsError("the worker was not sampled", hint="may py-spy look at other processes here? (ptrace)")
        first = next(used for at, used in reversed(self._used) if at <= began or used is self._used[0][1])
        last = next(used for at, used in self._used if at >= ended or used is self._used[-1][1])
        spent = {thread: seconds - first.get(thread, 0.0) for thread, seconds in last.items()}
        clients = sum(seconds for (_, name), seconds in spent.items() if name.startswith(_CLIENT_THREADS))
        samples: dict[str, Counter[str]] = {}
        for line in self._file.read_text(encoding="utf-8").splitlines():
            stack, _, count = line.rpartition(" ")
            thread, _, frames = stack.partition(";")
            if (part := part_of(frames)) is not None:
                samples.setdefault(thread, Counter())[part] += int(count)
        parts = max(samples.values(), key=Counter.total)
        python = sum(spent.values()) - clients
        return {part: python * count / parts.total() * 1e6 / records for part, count in parts.items()} | {CLIENTS: clients * 1e6 / records}


def _threads(process: psutil.Process) -> dict[tuple[int, str], float]:
    """Return the processor seconds of a process's threads by id and name."""
    found = {}
    for thread in process.threads():
        with suppress(OSError):
            name = Path(f"/proc/{process.pid}/task/{thread.id}/comm").read_text(encoding="utf-8").strip()
            found[thread.id, name] = thread.user_time + thread.system_time
    return found


def _floors(testbed: Testbed, case: QueryCase, output: str, records: int) -> dict[str, float]:
    """Return what reading the input once and writing the output once cost in loops that do nothing else, per record of the input.

    Repartition topics, changelogs and stores are not in it.
    """

    def timed(work: Callable[[], object], count: int) -> tuple[float, float]:
        """Return the microseconds per record of this thread, and of the others."""
        thread, process = time.thread_time(), time.process_time()
        work()
        spent = time.thread_time() - thread
        return spent * 1e6 / max(count, 1), (time.process_time() - process - spent) * 1e6 / max(count, 1)

    outputs = sum(testbed.admin.end_offsets([TopicPartition(output, number) for number in range(PARTITIONS)]).values()) / records
    values: list[bytes | None] = []
    consume, reading = timed(lambda: values.extend(_read(testbed, next(iter(case.inputs)))), _FLOOR_RECORDS)
    serde, chunks = serdes.json, [values[start : start + READ_AHEAD] for start in range(0, len(values), READ_AHEAD)]
    read_many = serde.deserialize_many or list
    decode, _ = timed(lambda: [len(read_many(chunk)) for chunk in chunks], len(values))
    written, encode = list(_read(testbed, output)), 0.0
    with suppress(KStreamsError):  # counts are no JSON
        made = [serde.deserialize(value) for value in written]
        encode, _ = timed(lambda: [len(serde.serialize(one) or b"") for one in made], len(written))
    produce, sending = timed(lambda: _write(testbed, f"{output}-floor", written), len(written))
    found = {"consume": consume, "decode": decode, "encode": encode * outputs, "produce": produce * outputs}
    return found | {CLIENTS: reading + sending * outputs}


def _read(testbed: Testbed, topic: str) -> Iterator[bytes | None]:
    """Yield the values of a topic's first records."""
    consumer = make_consumer(testbed.settings, group_id="costs", role="main")
    assign(consumer, {TopicPartition(topic, number): 0 for number in range(PARTITIONS)})
    count, until = 0, time.monotonic() + 10
    while count < _FLOOR_RECORDS and time.monotonic() < until:
        messages = consumer.consume(1_000, 0.2)
        if not messages and count:
            break
        for _, batch in columns(messages, _ignored, topic=topic):
            count += len(batch)
            yield from batch.values
    consumer.close()


def _ignored(message: Any, error: Any) -> None:
    raise KStreamsError(f"reading failed: {error}", hint="the broker's log says more")


def _write(testbed: Testbed, topic: str, values: Sequence[bytes | None]) -> None:
    testbed.fresh_topic(topic)
    producer = TransactionalProducer(testbed.settings, topic, timeout_ms=30_000)
    try:
        producer.initialise()
        producer.begin()
        for value in values:
            producer.client.produce(topic, value, b"12345678", -1, None, None, 1)
        producer.flush()
        producer.commit()
    finally:
        producer.close()
        testbed.admin.delete_topics([topic])
