"""The asynchronous nodes of a simulated application: calls that take time, fail, and run into their time limit, by the world's clock and
the seed's generator. The event loop is the test driver's; it moves on whenever the poll loop waits for results.
"""

from __future__ import annotations

import asyncio
from random import Random
from typing import Any

from kstreams_repl.host.instance.instance import Instance
from kstreams_repl.system.types import TopicPartition
from kstreams_repl.test_driver.virtual_calls import VirtualCallRunner
from tests.faults.simulation.broker import Broker
from tests.faults.simulation.world import World

_random = Random(0)
_opened: list[SimulatedCallRunner] = []


def begin(seed: int) -> None:
    """Begin the calls of a seed."""
    _random.seed(seed)
    SimulatedResultLog.repeated.clear()


def end() -> None:
    """End the calls of processes that were killed."""
    while _opened:
        _opened.pop().close()


async def ask(record: Any, context: Any) -> None:
    """Count the key in a store, before a wait, and send the record on with the count."""
    asked = context.store("asked")
    count = (await asked.get(record.key) or 0) + 1
    asked.put(record.key, count)
    await asyncio.sleep(_random.choice((0.0, 0.0, 0.003, 0.02, 0.1, 0.9)))  # the last is longer than the time limit
    if _random.random() < 0.15:
        raise ConnectionError("refused")
    context.forward(record.with_value(record.value + b":%d" % count))


async def pay(value: bytes) -> bytes:
    """Return the value after a wait, unless the call fails."""
    await asyncio.sleep(_random.choice((0.0, 0.0, 0.003, 0.02, 0.1, 0.9)))
    if _random.random() < 0.15:
        raise ConnectionError("refused")
    return value


class SimulatedResultLog:
    """Durable results on the simulated broker, acknowledged after a while.

    Attributes:
        repeated: calls that an instance made although it had read their result at its take-over, or had made them itself.
    """

    repeated: list[str] = []

    def __init__(self, broker: Broker) -> None:
        self._broker = broker
        self._known: set[bytes] = set()

    def read(self, partition: TopicPartition) -> tuple[list[tuple[bytes, bytes, int]], int]:
        """The rows with their offsets, and the end."""
        log = self._broker.logs[tuple(partition)]
        rows = [
            (entry.key or b"", entry.value or b"", offset)
            for offset, entry in self._broker.read(tuple(partition), log.start, 1 << 30, "read_uncommitted")[0]
        ]
        self._known.update(key for key, _, _ in rows)
        return rows, log.end

    async def append(self, partition: TopicPartition, key: bytes, value: bytes) -> int:
        """Add a row."""
        if key in self._known:
            self.repeated.append(f"{partition}: the finished call {key!r} was made again")
        await asyncio.sleep(_random.choice((0.001, 0.005, 0.05)))
        self._known.add(key)
        return self._broker.produce(None, 0, tuple(partition), [(key, value, 0, [])])


class SimulatedCallRunner(VirtualCallRunner):
    """The call runner of a simulated instance."""

    def __init__(self, world: World, broker: Broker) -> None:
        super().__init__(lambda: int(world.now * 1000), log=SimulatedResultLog(broker))
        self._world = world
        _opened.append(self)

    def wait(self, seconds: float) -> None:
        """Wait, and run what is due by then."""
        self.run()
        self._world.pause(seconds, "waiting for calls")
        self.run()


def call_runner_of(world: World, broker: Broker) -> Any:
    """In place of `Instance.call_runner`."""

    def call_runner(self: Instance) -> Any:
        if self.calls is None:
            self.calls = SimulatedCallRunner(world, broker)  # type: ignore[assignment]
        return self.calls

    return call_runner
