"""The commit under at_least_once, numbered as in docs/design/010-host.md: outputs first, then offsets, then the local stores.

The broker does not fence instances in this mode, so the owner token is checked before anything is sent. A crash repeats at most the
open commit.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from kstreams_repl.engine.commit.failpoints import failpoint
from kstreams_repl.engine.commit.protocol import CommittingTask, OffsetAndMetadata, SealedOutput
from kstreams_repl.system.types import TopicPartition


def commit_at_least_once(
    tasks: Sequence[CommittingTask],
    commit_id: int,
    *,
    flush: Callable[[], None],
    output: SealedOutput,
    commit_offsets: Callable[[Mapping[TopicPartition, OffsetAndMetadata]], None],
    changelog_ends: Callable[[Sequence[CommittingTask]], Mapping[TopicPartition, int]],
) -> None:
    """Commit all given tasks at once. Step 1 (process) is done; the caller does step 6 (report).

    Raises:
        TaskMigratedError: another owner has taken over the stores; nothing was sent.
        KStreamsError: a record or the offsets could not be written; the tasks must be re-initialised.
    """
    # 1b. Check the owner token.
    for task in tasks:
        task.check_owner()
    offsets: dict[TopicPartition, OffsetAndMetadata] = {}
    # 2. Flush caches until nothing is left to forward; wait for all acknowledgements.
    for task in tasks:
        offsets.update(task.prepare(commit_id))
    output.seal()
    failpoint("F3")
    flush()
    output.check()
    failpoint("F4")
    # 3. and 4. Input offsets.
    commit_offsets(offsets)
    failpoint("F7")
    # 5. The local stores: entries, positions, commit id and owner token in one store transaction each.
    positions = changelog_ends(tasks)
    for task in tasks:
        task.finish(commit_id, positions)
    failpoint("F8")
