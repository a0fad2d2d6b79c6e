"""A priority queue that returns equal elements in the order of `java.util.PriorityQueue`.

Kafka Streams picks the next record, and the next punctuation, from that class, and its order of ties is visible in results: neither
first in, first out, nor `heapq`'s order. Source: the documented sift-up and sift-down of a binary heap with strict comparisons.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Generic, TypeVar

T = TypeVar("T")


class JavaPriorityQueue(Generic[T]):
    """A min-heap by `key` whose ties leave in the JVM's order (five equal elements leave as 1, 5, 4, 3, 2)."""

    __slots__ = ("heap", "_key")

    def __init__(self, key: Callable[[T], Any]) -> None:
        self.heap: list[T] = []
        self._key = key

    def __len__(self) -> int:
        return len(self.heap)

    def peek(self) -> T | None:
        return self.heap[0] if self.heap else None

    def offer(self, item: T) -> None:
        heap, key = self.heap, self._key
        index = len(heap)
        heap.append(item)
        rank = key(item)
        while index > 0:
            parent = (index - 1) >> 1
            if rank >= key(heap[parent]):
                break
            heap[index] = heap[parent]
            index = parent
        heap[index] = item

    def poll(self) -> T:
        heap, key = self.heap, self._key
        first = heap[0]
        item = heap.pop()
        size = len(heap)
        if size:
            rank = key(item)
            index = 0
            while index < size >> 1:
                child = 2 * index + 1
                if child + 1 < size and key(heap[child]) > key(heap[child + 1]):
                    child += 1
                if rank <= key(heap[child]):
                    break
                heap[index] = heap[child]
                index = child
            heap[index] = item
        return first

    def remove_if(self, unwanted: Callable[[T], bool]) -> None:
        """Remove matching elements and rebuild the heap as Java's `heapify` does."""
        self.heap = [item for item in self.heap if not unwanted(item)]
        for index in range((len(self.heap) >> 1) - 1, -1, -1):
            self._sift_down(index)

    def _sift_down(self, index: int) -> None:
        heap, key = self.heap, self._key
        size, item = len(heap), heap[index]
        rank = key(item)
        while index < size >> 1:
            child = 2 * index + 1
            if child + 1 < size and key(heap[child]) > key(heap[child + 1]):
                child += 1
            if rank <= key(heap[child]):
                break
            heap[index] = heap[child]
            index = child
        heap[index] = item
