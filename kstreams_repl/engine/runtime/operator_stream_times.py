"""The operators' own stream times, which are committed with a task's offsets.

A windowed operator compares a record with the largest timestamp it has received itself. Kafka Streams loses that at a restart and then
accepts records that the running application would drop as late. Here it is part of the processor metadata, so that a restarted task
drops the same records, on any instance. Names are hashed, because a broker accepts 4,096 characters of metadata per offset.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from kstreams_repl.engine.runtime.metadata_names import OPERATOR_TIME, hashed


def metadata_name(name: str, ordinal: int = 0) -> str:
    """Return the name in the metadata; `ordinal` distinguishes operators of one store (the streams of a cogroup)."""
    return OPERATOR_TIME + hashed(f"{name}#{ordinal}")


class Remembered:
    """The stream times of one task's operators."""

    def __init__(self) -> None:
        self._numbers: dict[str, tuple[Callable[[], int], Callable[[int], None]]] = {}

    def add(self, name: str, read: Callable[[], int], restore: Callable[[int], None]) -> None:
        """Register a number, see `NodeContext.remember`. Operators of the same name are distinguished by their build order."""
        ordinal = 0
        while (key := metadata_name(name, ordinal)) in self._numbers:
            ordinal += 1
        self._numbers[key] = (read, restore)

    def restore(self, metadata: dict[str, int]) -> None:
        """Restore the committed numbers and remove them from the metadata, including those of operators that no longer exist."""
        for key in [key for key in metadata if key.startswith(OPERATOR_TIME)]:
            number = metadata.pop(key)
            if key in self._numbers:
                self._numbers[key][1](number)

    def read(self) -> Mapping[str, int]:
        """Return the numbers to commit."""
        return {key: read() for key, (read, _) in self._numbers.items()}
