"""The commit under at_least_once, numbered as in docs/design/010-host.md: outputs first, then offsets, then the local stores.

The broker fences nobody here, so the owner's token is looked at before anything is sent. A crash anywhere repeats at most the
commit that was open.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from kstreams_repl.commit.failpoints import failpoint
from kstreams_repl.commit.protocol import CommittingTask, OffsetAndMetadata, SealedOutput
from kstreams_repl.types import TopicPartition


def commit_at_least_once(
    tasks: Sequence[CommittingTask],
    commit_id: int,
    *,
    flush: Callable[[], None],
    output: SealedOutput,
    commit_offsets: Callable[[Mapping[TopicPartition, OffsetAndMetadata]], None],
    changelog_ends: Callable[[Sequence[CommittingTask]], Mapping[TopicPartition, int]],
) -> None:
    """Commit all given tasks at once. Step 1 (process) is over; step 6 (report) is the caller's.

    Raises:
        TaskMigratedError: another owner has taken the stores over; nothing was sent.
        KStreamsError: a record or the offsets could not be written; the tasks must be taken over anew.
    """
    # 1b. Still the owner?
    for task in tasks:
        task.check_owner()
    offsets: dict[TopicPartition, OffsetAndMetadata] = {}
    # 2. Flush caches until quiet; every record acknowledged.
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
