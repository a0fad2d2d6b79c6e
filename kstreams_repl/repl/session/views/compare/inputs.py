"""The input records of a comparison, in the one order in which both sides process them.

The order is by timestamp among partitions, and by offset in each of them, as a task takes records that are all there; a tie goes to the
partition that comes first by name. A record's *tag* is its number in that order.
"""

from __future__ import annotations

import heapq
from bisect import bisect_left
from collections.abc import Mapping

from kstreams_repl.system.types import RecordBatch, RecordPosition, TopicPartition


class Inputs:
    """Records of external topics.

    Args:
        batches: by partition, its records in the order of their offsets.

    Attributes:
        tags: by partition, the tag of each record.
    """

    def __init__(self, batches: Mapping[TopicPartition, RecordBatch]) -> None:
        self.batches = {partition: batches[partition] for partition in sorted(batches) if len(batches[partition])}
        self.tags: dict[TopicPartition, list[int]] = {partition: [] for partition in self.batches}
        self._order: list[tuple[TopicPartition, int]] = []
        heap = [(batch.timestamps[0], number, 0) for number, batch in enumerate(self.batches.values())]
        partitions = list(self.batches)
        heapq.heapify(heap)
        while heap:
            _, number, row = heap[0]
            partition = partitions[number]
            self.tags[partition].append(len(self._order))
            self._order.append((partition, row))
            times = self.batches[partition].timestamps
            if row + 1 < len(times):
                heapq.heapreplace(heap, (times[row + 1], number, row + 1))
            else:
                heapq.heappop(heap)

    def __len__(self) -> int:
        return len(self._order)

    def position(self, tag: int) -> RecordPosition:
        """Return where a record is."""
        partition, row = self._order[tag]
        return RecordPosition(*partition, self.batches[partition].offsets[row])

    def record(self, tag: int) -> RecordBatch:
        """Return one record."""
        partition, row = self._order[tag]
        return self.batches[partition].part(slice(row, row + 1))

    def tag_of(self, position: RecordPosition) -> int | None:
        """Return the tag of a record; None: it is not among these."""
        partition = TopicPartition(position.topic, position.partition)
        batch = self.batches.get(partition)
        row = 0 if batch is None else bisect_left(batch.offsets, position.offset)
        if batch is None or row == len(batch) or batch.offsets[row] != position.offset:
            return None
        return self.tags[partition][row]

    def part(self, start: int, stop: int) -> dict[TopicPartition, tuple[list[int], RecordBatch]]:
        """Return the records with tags from `start` up to `stop`, by partition, with their tags."""
        found = {}
        for partition, tags in self.tags.items():
            first, last = bisect_left(tags, start), bisect_left(tags, stop)
            if first < last:
                found[partition] = tags[first:last], self.batches[partition].part(slice(first, last))
        return found
