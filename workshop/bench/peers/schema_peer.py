"""`SchemaPeer.java`: values with a schema read, changed and written by one thread of a JVM, in memory."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from workshop.bench.peers.kafka_streams import JavaPeer

_WARM_PASSES = 5
_MAX_SECONDS = 300


@dataclass(frozen=True, slots=True)
class SchemaRun:
    """Values per second of each run, and the CRC-32 of all values that the last one has written."""

    rates: tuple[float, ...]
    crc: int


class SchemaPeer(JavaPeer):
    """`SchemaPeer.java`."""

    title = "JVM"
    sources = ("SchemaPeer.java", "SchemaValues.java")

    def run(self, format: str, registry: str, values: Sequence[bytes], runs: int) -> SchemaRun:
        """Set the field `amount` of each value to 1.

        Raises:
            KStreamsError: the peer failed, or did not finish in time.
        """
        state = Path(tempfile.mkdtemp(prefix="kstreams-peer-state-", dir=self._scratch))
        try:
            file = state / "values"
            file.write_bytes(b"".join(len(value).to_bytes(4, "big") + value for value in values))
            options = {"values": format, "registry": registry, "file": file, "warm": _WARM_PASSES, "runs": runs}
            found, _ = self._run_java(options, _MAX_SECONDS, state)
            return SchemaRun(tuple(found["rates"]), found["crc"])
        finally:
            shutil.rmtree(state, ignore_errors=True)
