"""Mutants of the project's own commit path: each takes one rule away, by changing the source of a module as it is imported.

`install` works in a process that has not imported the module yet (`python -m tests.faults.simulation --mutant NAME`). A mutant whose text
is no longer in the source fails loudly, so that the list cannot rot.
"""

from __future__ import annotations

import importlib.abc
import importlib.machinery
import importlib.util
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import Any


@dataclass(frozen=True)
class Mutant:
    """Args:
    module: whose source is changed.
    changes: (text, replacement), each of which must be there exactly once.
    step: which numbered step or rule of docs/design/010-host.md it takes away.
    shows_as: names of exceptions, beyond a failed assertion and the project's own errors, in which the missing rule shows; with a
        comment that says why. Any other means that the mutant is broken: it may have died of its own writing.
    """

    module: str
    changes: tuple[tuple[str, str], ...]
    step: str
    shows_as: tuple[str, ...] = ()


_EOS = "kstreams_repl.engine.commit.exactly_once"
_ALOS = "kstreams_repl.engine.commit.at_least_once"
_TAKE = "kstreams_repl.host.instance.initialization.task_initialization"
_OFFSETS = "kstreams_repl.host.instance.initialization.start_offsets"
_TASK = "kstreams_repl.host.instance.tasks.active_task"
_LMDB = "kstreams_repl.engine.stores.engine.lmdb"
_LOCAL = "kstreams_repl.host.instance.state.state_manager"
_RESTORE = "kstreams_repl.host.instance.state.changelog_reader"
_INSTANCE = "kstreams_repl.host.instance.instance"
_WARM = "kstreams_repl.host.instance.epochs.instance_cache"
_BRIDGE = "kstreams_repl.host.instance.epochs.epoch_handover"
_ADMIT = "kstreams_repl.host.instance.initialization.task_activation"
_UPDATER = "kstreams_repl.host.instance.state.state_updater"
_TXN = "kstreams_repl.host.kafka.transactional"

_FINISH = "    for task in tasks:\n        task.finish(commit_id, positions)\n"
_SEND_OFFSETS = "    producer.send_offsets(offsets, group)\n"
_COMMIT = 'self._once("committing the transaction", lambda: self.client.commit_transaction(self._seconds), in_flight)\n'

MUTANTS: dict[str, Mutant] = {
    # ---- the commit
    "caches are not flushed": Mutant(
        "kstreams_repl.engine.runtime.task",
        (
            (
                "                    store.flush()\n                if not self.services.drain() and not self.cache.dirty:\n",
                "                    pass\n                if not self.services.drain():\n",
            ),
        ),
        "commit 2: flush the caches",
    ),
    "held changelog records are not sent": Mutant(_EOS, (("    output.seal()\n", ""),), "commit 2: every record sent"),
    "offsets are not sent": Mutant(
        _EOS, (("    producer.send_offsets(offsets, group)\n", ""),), "commit 3: input offsets in the transaction"
    ),
    "offsets of a commit go before its flush, outside": Mutant(
        _EOS,
        (
            (
                "    # 2. Flush caches until nothing is left to forward; wait for all acknowledgements.\n",
                "    for task in tasks:\n        offsets.update(task.prepare(commit_id))\n"
                "    producer.send_offsets(offsets, group)\n    producer.commit()\n    producer.begin()\n",
            ),
        ),
        "commit 2-3: offsets and outputs in one transaction",
    ),
    "the transaction is not committed": Mutant(
        _EOS,
        (
            ('    producer.commit(lambda: failpoint("F6"))\n', ""),
        ),
        "commit 4: commit",
    ),
    "a commit is split in two": Mutant(
        _EOS,
        (("    # 3. Input offsets,", "    producer.commit()\n    producer.begin()\n    # 3. Input offsets,"),),
        "commit 4: one transaction",
    ),
    "the stores commit before the transaction": Mutant(
        _EOS,
        (
            (
                _SEND_OFFSETS,
                _FINISH + _SEND_OFFSETS,
            ),
            (
                _FINISH + '    failpoint("F8")',
                '    failpoint("F8")',
            ),
        ),
        "commit 5: the stores come last",
    ),
    "the stores' positions are not committed": Mutant(
        _LMDB,
        (
            (
                "            self._write_meta(transaction, positions, commit_id)\n",
                "            self._write_meta(transaction, {}, commit_id)\n",
            ),
        ),
        "commit 5: the position is in the store's own commit",
    ),
    "the position is committed apart from the rows": Mutant(
        _LMDB,
        (
            (
                "        unfinished = {}\n",
                '        unfinished = {}\n        with self._writing("moving") as transaction:\n'
                "            self._write_meta(transaction, positions, commit_id)\n",
            ),
        ),
        "commit 5: the position is in the store's own commit",
    ),
    "a failed store commit is ignored": Mutant(
        _TASK,
        (
            (
                "        self.task.post_commit(self.commit_id, self._positions)\n",
                "        try:\n            self.task.post_commit(self.commit_id, self._positions)\n"
                "        except Exception:\n            pass\n",
            ),
        ),
        "commit 5b: a store that failed is restored",
    ),
    "doubt is taken for success": Mutant(
        _TXN,
        (
            (
                "        " + _COMMIT,
                "        try:\n            " + _COMMIT + "        except TransactionDoubtError:\n            pass\n",
            ),
        ),
        "commit 4: fence on doubt",
    ),
    "a fatal error that a client raises ends the instance": Mutant(
        "kstreams_repl.host.instance.epochs.instance_runner",
        (("isinstance(raised, KStreamsError) else end_of_client(raised)", "isinstance(raised, KStreamsError) else None"),),
        "commit 4: fence on doubt",
        shows_as=("KafkaException",),  # what the rule makes an error of the project's of
    ),
    "a producer that has come to its end is taken for a refused record": Mutant(
        "kstreams_repl.host.kafka.delivery_errors",
        (("return _end_of_producer(inside, topic) or _production_error(inside,", "return _production_error(inside,"),),
        "commit 4: fence on doubt",
    ),
    "a doubtful commit is repeated": Mutant(
        _TXN,
        (("        self._repeat(doing, call, 0.0, begun)\n", "        self._repeat(doing, call, self._seconds, begun)\n"),),
        "commit 4: fence on doubt",
    ),
    "at least once: offsets before the records": Mutant(
        _ALOS,
        (
            ("    flush()\n", ""),
            ("    commit_offsets(offsets)\n", "    commit_offsets(offsets)\n    flush()\n"),
        ),
        "at least once, 2: outputs before offsets",
    ),
    # ---- the take-over
    "ids that vanished are not fenced": Mutant(
        _TAKE, (("    every = list(slots)\n", "    every: list[int] = []\n"),), "take-over 2: every id of earlier generations"
    ),
    "the generation is not looked at before the id is taken": Mutant(
        _TAKE,
        (("        _check(in_force, plan)\n        admin = ", "        admin = "),),
        "take-over 1: the generation is still in force",
    ),
    "the generation is not looked at again": Mutant(
        _TAKE,
        (("        transactions.initialise()\n        _check(in_force, plan)\n", "        transactions.initialise()\n"),),
        "take-over 2: the generation again",
    ),
    "the own id is not taken over": Mutant(
        _TAKE, (("        transactions.initialise()\n        _check", "        _check"),), "take-over 2: init_transactions"
    ),
    "the owner's token is not looked at": Mutant(
        _LMDB,
        (
            (
                'if owner is not None and owner != (self._token or "").encode():\n                    raise',
                "if False:\n                    raise",
            ),
        ),
        "take-over 3: the owner token",
    ),
    "a former holder of the same host may live on": Mutant(
        _LOCAL, (("        if end_former:\n", "        if False:\n"),), "take-over 3, at least once: the old process is dead"
    ),
    "a store is trusted after a crash of the machine": Mutant(
        _LMDB, (('meta.get(b"boot") != boot_id()', "False"),), "take-over 3: a store must fit"
    ),
    "an old copy is trusted": Mutant(
        _LOCAL, (("    age = age_seconds(environment)\n", "    age = 0.0\n"),), "take-over 3: older than tombstones live"
    ),
    "an application that rested is rebuilt": Mutant(
        _LOCAL, ((" and not _is_last_commit(environment, committed()):", ":"),), "take-over 3: a copy at the last commit is current"
    ),
    "the wait for a lock has no end": Mutant(
        _LOCAL, (("lock_timeout=_LOCK_SECONDS", "lock_timeout=None"),), "take-over 3: a bounded wait"
    ),
    "offsets are read without waiting for open transactions": Mutant(
        "kstreams_repl.host.kafka.group_admin",
        (('"read_committed" if stable else', '"read_uncommitted" if stable else'),),
        "take-over 4: committed offsets, settled",
    ),
    "a missing offset is reset": Mutant(
        _OFFSETS,
        (
            ("        if last_commit is None:\n            last_commit = _in_store(environment, partition)\n", ""),
            ("elif environment.commit_id >= 0 and ", "elif False and "),
        ),
        "take-over 4: no reset over a store",
    ),
    "restore stops at the last stable offset": Mutant(
        _RESTORE,
        (
            (
                '        ends = admin.end_offsets(by_partition, isolation="read_uncommitted")\n',
                '        ends = admin.end_offsets(by_partition, isolation="read_committed")\n',
            ),
        ),
        "take-over 5: the target is the read_uncommitted end",
    ),
    "restore reads what was not committed": Mutant(
        _TAKE,
        (
            (
                '            isolation=plan.isolation,\n        )\n        undo',
                '            isolation="read_uncommitted",\n        )\n        undo',
            ),
        ),
        "take-over 5: read_committed",
    ),
    "nothing is restored": Mutant(_RESTORE, (("        if not logs:\n", "        if True:\n"),), "take-over 5: restore"),
    "a warm instance goes on unchecked": Mutant(
        _WARM,
        (("instance.plan.generation == plan.generation and _unchanged(kept)", "True"),),
        "warm resume: commit id and changelog ends",
    ),
    # ---- restore while tasks run
    "ready tasks wait for those that are restored": Mutant(
        _TAKE,
        (("        until = time.monotonic() + _MOMENT_SECONDS if in_background else None\n", "        until = None\n"),),
        "take-over 5: concurrently with the ready tasks",
    ),
    "commit ids go on from those of the ready tasks": Mutant(
        _TAKE,
        (
            (
                "        committed = [start.metadata.commit_id for start in starts.values()]\n",
                "        ready = {s.task_id for s in specs if str(s.task_id) not in reader.lacking}\n"
                "        committed = [starts[at].metadata.commit_id for s in specs if s.task_id in ready for at in s.partitions]\n",
            ),
        ),
        "take-over 6: commit ids go on from the highest of all",
    ),
    "the changelog of an admitted task is read on": Mutant(
        _RESTORE,
        (
            (
                "            if partition not in missing:  # fetched before the log was removed from the consumer\n"
                "                continue\n",
                "",
            ),
            ("            unassign(self._consumer, over)\n", "            pass\n"),
        ),
        "updater 2: a complete task is not touched",
        shows_as=("KeyError",),  # records come of a changelog whose stores the restore has given away
    ),
    "a task is complete when one of its stores is": Mutant(
        _RESTORE,
        (
            (
                "        complete = lacked - self.lacking\n",
                "        complete = {name for at in over for name in self._tasks_of[at]}\n",
            ),
        ),
        "updater: a task goes over when its stores have reached the targets",
        shows_as=("KeyError",),  # with its next store the task goes over a second time, and is not there any more
    ),
    "what the restore thread met is lost": Mutant(
        _UPDATER,
        (("            self._error = error\n", "            pass\n"),),
        "updater 3: the loop raises it",
    ),
    "a restore that rested stays so": Mutant(
        _INSTANCE, (("            self.updater.start()\n", "            pass\n"),), "a warm instance goes on restoring"
    ),
    "all input restarts when a task is admitted": Mutant(
        _ADMIT,
        (
            (
                "        assign_more(instance.clients.consumer, task.starts)\n",
                "        from kstreams_repl.host.kafka.group_offsets import assign\n"
                "        assign(instance.clients.consumer, {at: each.starts[at] for at, each in instance.input.by_partition.items()})\n",
            ),
        ),
        "admission: running tasks go on",
    ),
    "an admitted task waits for something to do": Mutant(
        _ADMIT, (("        task.touched = True\n", ""),), "admission: it takes part in the next commit"
    ),
    "stores that are restored stay open": Mutant(
        _INSTANCE,
        (
            (
                "        helpers = (self.snapshotter, self.standbys, self.updater)\n",
                "        helpers = (self.snapshotter, self.standbys)\n",
            ),
        ),
        "close: everything is closed",
    ),
    # ---- between epochs
    "the loop that goes on is not known to the next epoch": Mutant(
        "kstreams_repl.host.instance.epochs.instance_runner",
        (("        result = former.attend(until, idle_limit)\n", "        result = None\n"),),
        "bridge 1: one runner of a slot in a process",
    ),
    "a loop's end is not waited for": Mutant(
        _BRIDGE,
        (("        self._ending = True\n        self._thread.join()\n", "        self._ending = True\n"),),
        "bridge 1: a new one begins when the thread of the former has ended",
    ),
    "the loop that goes on elsewhere is not waited for": Mutant(
        _BRIDGE,
        (("                self._slot_lock.take(end_holder=self._end_holder)\n", ""),),
        "bridge 2: one runner of a slot on a host",
    ),
    "a loop that is wanted elsewhere goes on": Mutant(
        _BRIDGE, (("elif self._slot_lock.wanted(now):", "elif False:"),), "bridge 2: it leaves, at a commit, when it is wanted"
    ),
    "a loop that no epoch attends takes over again": Mutant(
        _BRIDGE,
        (("            self._over = self._unattended.is_set()\n", "            self._over = False\n"),),
        "bridge 3: only an attended one takes over",
    ),
}


class MutantRottenError(Exception):
    """The source no longer has the text that a mutant changes."""


class _Loader(importlib.machinery.SourceFileLoader):
    mutant: Mutant

    def get_code(self, fullname: str) -> Any:
        source = self.get_source(fullname)
        assert source is not None
        return self.source_to_code(mutated(source, self.mutant).encode(), self.path)


class _Finder(importlib.abc.MetaPathFinder):
    def __init__(self, mutant: Mutant) -> None:
        self._mutant = mutant

    def find_spec(self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None) -> ModuleSpec | None:
        if fullname != self._mutant.module:
            return None
        spec = importlib.machinery.PathFinder.find_spec(fullname, path)
        assert spec is not None and spec.origin is not None
        loader = _Loader(fullname, spec.origin)
        loader.mutant = self._mutant
        return importlib.util.spec_from_file_location(fullname, spec.origin, loader=loader)


def mutated(source: str, mutant: Mutant) -> str:
    """The changed source.

    Raises:
        MutantRottenError: a text is not there, or more than once.
    """
    for text, replacement in mutant.changes:
        if source.count(text) != 1:
            raise MutantRottenError(f"{mutant.module} has {source.count(text)} times: {text!r}")
        source = source.replace(text, replacement)
    return source


def install(name: str) -> None:
    """Let this process import the mutant."""
    mutant = MUTANTS[name]
    assert mutant.module not in sys.modules, f"{mutant.module} is imported already"
    sys.meta_path.insert(0, _Finder(mutant))
