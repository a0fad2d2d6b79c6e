"""The commit under exactly_once_v2, numbered as in docs/design/010-host.md: outputs, changelogs and input offsets in one
Kafka transaction.

Invariant: the local stores commit after the transaction, and never for a transaction in doubt; a crash in between leaves
them one commit behind, and they catch up from their own position. After any exception the producer must be closed and the
tasks re-initialised.
"""

from __future__ import annotations

from collections.abc import Sequence

from kstreams_repl.engine.commit.failpoints import failpoint
from kstreams_repl.engine.commit.protocol import CommittingProducer, CommittingTask, OffsetAndMetadata, SealedOutput
from kstreams_repl.system.types import TopicPartition


def commit_exactly_once(
    tasks: Sequence[CommittingTask], commit_id: int, *, producer: CommittingProducer, output: SealedOutput, group: object
) -> None:
    """Commit all given tasks at once. Step 1 (process) is done; the caller does step 6 (report).

    Raises:
        ProducerFencedError: a newer producer exists; nothing of this commit is visible.
        TransactionDoubtError: the group's offsets (by the commit id) show whether the transaction committed.
        TaskMigratedError: step 5 found another owner token.
    """
    offsets: dict[TopicPartition, OffsetAndMetadata] = {}
    # 2. Flush caches until nothing is left to forward; wait for all acknowledgements.
    for task in tasks:
        offsets.update(task.prepare(commit_id))
    output.seal()
    failpoint("F3")
    producer.flush(output.check)
    output.check()
    failpoint("F4")
    # 3. Input offsets, with partition times, the commit id and the changelogs' ends in their metadata.
    positions = output.take_positions()
    for task in tasks:
        offsets.update(task.with_changelog_ends(positions))
    producer.send_offsets(offsets, group)
    failpoint("F5")
    # 4. Commit.
    producer.commit(lambda: failpoint("F6"))
    failpoint("F7")
    # 5. The local stores: entries, positions, commit id and owner token in one store transaction each.
    for task in tasks:
        task.finish(commit_id, positions)
    failpoint("F8")
