"""Single steps of the take-over, each in a world without chance: what a random run meets too rarely to prove that the step is needed."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any
from unittest.mock import patch

from confluent_kafka import KafkaError, KafkaException

from kstreams_repl.engine.commit.offset_metadata import COMMIT_ID, STREAM_TIME, decode, encode
from kstreams_repl.host.instance.epochs.instance_cache import InstanceCache
from kstreams_repl.host.instance.initialization.task_activation import activate_restored
from kstreams_repl.host.instance.instance import Instance
from kstreams_repl.host.instance.reports.epoch_result import EpochResult
from kstreams_repl.host.instance.state.changelog_reader import ChangelogReader
from kstreams_repl.host.instance.tasks.consistent_cut import CUT, TaskCommit, at_one_commit
from kstreams_repl.host.kafka.transactional import TransactionalProducer, TransactionDoubtError
from kstreams_repl.system.errors import BrokerUnavailableError, TaskCorruptedError, TaskMigratedError
from kstreams_repl.system.types import TaskId
from tests.faults.simulation.application import APPLICATION, prepared
from tests.faults.simulation.stage import COUNTING, SEEN_LOG, TOTALLING, stage


def _refused(work: Callable[[], Any], error: type[Exception]) -> None:
    try:
        work()
    except error:
        return
    raise AssertionError(f"no {error.__name__}")


def an_old_generation_takes_no_id_over() -> None:
    with stage() as made:
        _refused(lambda: made.open(in_force=lambda: False), TaskMigratedError)
        assert not made.broker.ids, "the id of its successor was taken over"


def a_generation_that_ends_while_the_id_is_taken_takes_no_store_over() -> None:
    with stage() as made:
        answers = iter([True])
        _refused(lambda: made.open(in_force=lambda: next(answers, False)), TaskMigratedError)
        assert not made.scenario.disk.files, "the stores of its successor were opened"


def an_older_holder_of_the_id_is_fenced() -> None:
    with stage() as made:
        made.as_actor(made.open)
        made.as_actor(lambda: made.open(2))
        holder = made.broker.ids.get(f"{APPLICATION}-0")
        assert holder is not None and holder.epoch == 1


def restore_waits_for_a_transaction_that_is_open_in_the_changelog() -> None:
    with stage() as made:

        def fill() -> None:
            made.broker.produce("somebody", 0, (SEEN_LOG, 0), [(b"k", (7).to_bytes(8, "big"), 1, None)])

        made.known(COUNTING)
        made.in_doubt(fill, seconds=1.0)
        instance = made.as_actor(made.open)
        [task] = [task for task in instance.tasks if task.id == TaskId(0, 0)]
        assert task.task.stores["seen"].get(b"k") == 7, "what committed during the restore is missing"


def offsets_of_an_open_transaction_are_waited_for() -> None:
    with stage() as made:
        made.write(0, 1, 2)
        made.in_doubt(lambda: made.broker.add_offsets("somebody", 0, APPLICATION, {("in", 0): (2, encode(5))}), seconds=1.0)
        instance = made.as_actor(made.open)
        assert {offset for task in instance.tasks for at, offset in task.starts.items() if at.topic == "in"} == {2}


def an_offset_that_expired_is_taken_from_the_store() -> None:
    with stage() as made:
        made.write(0, 1, 2)
        made.lived()
        made.broker.committed.clear()
        again = made.as_actor(lambda: made.open(2))
        assert {offset for task in again.tasks for at, offset in task.starts.items() if at.topic == "in"} == {3}


def offsets_of_an_idle_task_are_committed_again_daily() -> None:
    """The broker forgets them a week after their last commit, and a stateless task has no other place for them."""
    with stage() as made:
        made.write(0, 1, 2)
        idle = (APPLICATION, (f"{APPLICATION}-totals-repartition", 0))

        def live() -> None:
            instance = made.open()
            made.work(instance)
            made.world.sleep(1.0)
            for wait in (70.0, 30 * 3600.0, 30 * 3600.0):
                made.broker.committed.clear()
                for pause, known in ((1.0, False), (wait, True)):
                    made.world.sleep(pause)
                    made.work(instance)
                    made.world.sleep(1.0)
                    assert (idle in made.broker.committed) is known, f"after {pause} s"
                assert made.broker.committed[idle][0] == 4  # three records and the marker of their transaction
            instance.close()

        made.as_actor(live, seconds=100 * 3600.0)


def an_old_copy_does_not_bring_back_what_was_deleted_elsewhere() -> None:
    """The deletion is in the changelog no more; the copy lacks the rest only."""
    with stage() as made:
        made.write(0, 1, 2)
        made.lived()

        def elsewhere() -> None:
            made.broker.produce("somebody", 0, (SEEN_LOG, 0), [(b"other", (1).to_bytes(8, "big"), 1, None)])
            made.broker.add_offsets("somebody", 0, APPLICATION, {("in", 0): (3, encode(-1, {COMMIT_ID: 99}))})

        made.in_doubt(elsewhere, seconds=1.0)
        made.rest(30 * 3600.0)
        log = made.broker.logs[(SEEN_LOG, 0)]
        log.entries[:] = [entry._replace(marker=True) if entry.key == b"k" else entry for entry in log.entries]
        instance = made.as_actor(lambda: made.open(2))
        [seen] = [task.task.stores["seen"] for task in instance.tasks if task.id == COUNTING]
        assert (seen.get(b"other"), seen.get(b"k")) == (1, None)


def an_application_that_rested_for_days_goes_on_with_its_stores() -> None:
    with stage() as made:
        made.write(0, 1, 2)
        made.lived()
        made.broker.init("aborted", 60.0)
        made.broker.produce("aborted", 0, (SEEN_LOG, 0), [(b"k", (7).to_bytes(8, "big"), 1, None)])
        made.broker.end("aborted", 0, "aborted")
        made.rest(100 * 3600.0)
        for file in made.scenario.disk.files.values():
            file.trees[b"meta"][b"a:mine"] = b"yes"
        made.as_actor(lambda: made.open(2))
        kept = {path for path, file in made.scenario.disk.files.items() if b"a:mine" in file.trees[b"meta"]}
        assert kept == {made.path(task) for task in (COUNTING, TOTALLING)}, "they were rebuilt"


def a_store_without_any_offset_is_an_error() -> None:
    with stage() as made:
        made.write(0, 1, 2)
        made.lived()
        made.broker.committed.clear()
        for file in made.scenario.disk.files.values():
            file.trees[b"meta"] = {key: value for key, value in file.trees[b"meta"].items() if not key.startswith(b"p:input:")}
        made.as_actor(lambda: _refused(lambda: made.open(2), TaskCorruptedError))


def a_holder_that_is_stopped_inside_a_store_commit_is_ended() -> None:
    with stage() as made:
        instance = made.as_actor(made.open)
        [task] = [task for task in instance.tasks if task.id == TaskId(0, 0)]
        path = str(task.environment.path)
        made.world.calm = True

        def hold() -> None:
            made.scenario.disk.files[path].holder = made.world.current
            assert made.world.current is not None
            made.world.current.holds = made.scenario.disk.files[path]
            made.world.sleep(1e6)

        holder = made.world.spawn("holder", hold)
        made.world.run(lambda: made.scenario.disk.files[path].holder is holder, seconds=10)
        made.scenario.owners = dict.fromkeys(made.scenario.owners, holder)
        made.as_actor(lambda: made.open(2), seconds=60)
        assert not holder.alive


def a_commit_without_an_answer_is_never_sent_again() -> None:
    """The first request is still on its way: sent again and answered, it would end the *next* transaction."""
    with stage() as made:
        producer = TransactionalProducer(made.scenario.settings(), "id", timeout_ms=4_000)
        made.as_actor(producer.initialise)
        request, asked = made.scenario.network.request, []

        def once_late(what: str, effect: Callable[[], Any], seconds: float, **more: Any) -> Any:
            if what != "commit":
                return request(what, effect, seconds, **more)
            asked.append(what)
            if len(asked) == 1:
                raise KafkaException(KafkaError(KafkaError._TIMED_OUT, "no answer", False, True, False))
            return effect()

        made.scenario.network.request = once_late  # type: ignore[method-assign]

        def commit() -> None:
            producer.begin()
            producer.client.produce("out", b"1:1", b"k", 0)
            _refused(producer.commit, TransactionDoubtError)

        made.as_actor(commit)
        assert asked == ["commit"]


def a_task_that_lost_its_stores_commits_nothing_to_them() -> None:
    with stage() as made:
        first = made.as_actor(made.open)
        made.as_actor(lambda: made.open(2))
        [task] = [task for task in first.tasks if task.id == TaskId(0, 0)]
        before = made.scenario.disk.files[str(task.environment.path)].trees
        task.task.stores["seen"].put(b"k", 99)
        task.task.stores["seen"].flush()
        made.as_actor(lambda: _refused(lambda: task.environment.commit({}, 5), TaskMigratedError))
        assert made.scenario.disk.files[str(task.environment.path)].trees == before


def at_least_once_the_former_process_is_ended_before_offsets_are_read() -> None:
    with stage() as made:
        made.scenario.topics, made.scenario.specs, made.scenario.config = prepared(1, "at_least_once", -1)
        opened: list[Instance] = []

        def hold() -> None:
            opened.append(made.open())
            made.world.sleep(1e6)

        holder = made.world.spawn("holder", hold)
        made.world.run(lambda: bool(opened), seconds=20)
        made.as_actor(lambda: made.open(2))
        assert not holder.alive


def a_warm_instance_whose_offsets_moved_is_not_used() -> None:
    with stage() as made:
        made.write(0, 1, 2)

        def live() -> bool:
            instance = made.open()
            made.work(instance)
            kept = InstanceCache()
            kept.put(instance)
            untouched = kept.take(made.plan(), 0)
            assert untouched is instance
            kept.put(instance)
            made.broker.committed[(APPLICATION, ("in", 0))] = (2, encode(5))
            return kept.take(made.plan(), 0) is None

        assert made.as_actor(live)


def between_epochs_the_loop_goes_on_and_the_next_epoch_meets_the_same() -> None:
    with stage() as made:

        def live() -> tuple[EpochResult, int]:
            warm = InstanceCache()
            made.epoch(warm)
            made.write(0, 1, 2)
            made.world.sleep(1.0)
            visible = len(made.broker.visible("out")[0])
            told = made.epoch(warm)
            warm.close()
            return told, visible

        told, visible = made.as_actor(live)
        assert visible == 3, "nothing went through between the epochs"
        assert told.state == "running", told
        assert told.records["0_0"] == 3
        assert made.broker.ids[f"{APPLICATION}-0"].epoch == 0, "the slot was taken over again"


def a_worker_that_is_given_a_slot_waits_for_the_commit_of_the_loop_that_goes_on_elsewhere() -> None:
    with stage() as made:
        former, _ = made.worker()
        init, met = made.broker.init, []

        def noted(name: str, timeout: float) -> int:
            met.append([thread for thread in former.threads if thread.alive])
            return init(name, timeout)

        made.broker.init = noted  # type: ignore[method-assign]

        def live() -> None:
            made.write(0, 1, 2)
            made.world.sleep(0.03)  # they are processed, but not committed
            warm = InstanceCache()
            made.epoch(warm)
            warm.close()

        made.as_actor(live)
        assert made.broker.aborts == 0, "an open commit was taken back"
        assert met == [[]], "the slot was taken over beside the loop"


def a_loop_that_no_epoch_attends_takes_nothing_over() -> None:
    with stage() as made:
        former, warm = made.worker()
        name = f"{APPLICATION}-0"
        made.broker.init(name, 60.0)
        made.write(0, 1, 2)
        made.world.run(lambda: not any(thread.alive for thread in former.threads), seconds=60)
        assert made.broker.ids[name].epoch == 1, "it has fenced its successor"
        assert not warm.held(APPLICATION, 1)


def a_loop_of_the_generation_before_has_ended_when_its_process_opens_the_stores() -> None:
    with stage() as made:
        former, warm = made.worker()
        made.write(0, 1, 2)
        [thread] = former.threads
        seen: list[bool] = []

        def live() -> None:
            bridge = warm.handover(made.plan(2), 0)
            seen.extend([bridge is None, thread.alive])

        made.world.spawn("the same process", live, former)
        made.world.run(lambda: bool(seen), seconds=60)
        assert seen == [True, False]


def a_task_that_is_ready_works_while_another_one_is_restored() -> None:
    with stage() as made:
        made.hold(5.0)
        made.write(0, 1, 2)
        early: list[int] = []
        made.world.after(4.0, lambda: early.append(made.out()))
        made.one_epoch()
        assert early == [3], "it waited for the other one"
        assert len(made.broker.visible("totalled")[0]) > 0, "the other one was never admitted"
        assert made.broker.ids[f"{APPLICATION}-0"].epoch == 0


def commit_ids_go_on_from_that_of_a_task_that_is_still_restored() -> None:
    """Else the same id would stand for two commits, and nobody could tell from it which one was made."""
    with stage() as made:
        [place] = [(at.topic, at.partition) for at in made.scenario.specs[TOTALLING].partitions]
        made.broker.committed[(APPLICATION, place)] = (0, encode(-1, {COMMIT_ID: 50, STREAM_TIME: -1}))
        made.hold(5.0)
        made.write(0, 1, 2)
        made.one_epoch(3.0)
        _, metadata = made.broker.committed[(APPLICATION, ("in", 0))]
        assert decode(metadata).commit_id > 50


def what_an_admitted_task_writes_is_none_of_the_restores_business() -> None:
    """Its changelog held nothing but an aborted transaction, so that the restore has not touched its stores before."""
    with stage() as made:
        made.broker.init("aborted", 60.0)
        made.broker.produce("aborted", 0, (SEEN_LOG, 0), [(b"k", (7).to_bytes(8, "big"), 1, None)])
        made.broker.end("aborted", 0, "aborted")
        made.hold(5.0)
        made.world.after(2.0, lambda: made.write(0, 1, 2))
        told = made.one_epoch()
        assert told.state == "running", told.failure
        assert made.out() == 3
        assert made.broker.ids[f"{APPLICATION}-0"].epoch == 0, "the slot was taken over again"


def an_error_of_the_restore_thread_is_the_instances() -> None:
    with stage() as made:
        step, errors = ChangelogReader.step, [BrokerUnavailableError("away")]

        def once_failing(restore: ChangelogReader) -> set[str]:
            if errors:
                raise errors.pop()
            return step(restore)

        made.hold(1.0)
        made.write(0, 1, 2)
        with patch.object(ChangelogReader, "step", once_failing):
            made.one_epoch()
        assert not errors
        assert made.scenario.reports[(1, 0)]["state"] == "running", "the task is still waited for"


def a_restore_that_rested_goes_on() -> None:
    with stage() as made:
        made.write(0, 1, 2)
        made.lived()
        made.scenario.disk.files.pop(made.path(TOTALLING))
        made.hold(3.0)

        def live() -> int:
            kept = InstanceCache()
            instance = made.open(2, beside=True)
            made.world.sleep(1.0)
            assert activate_restored(instance) == 1, "the marker at the end of the other task's changelog"
            made.work(instance)
            kept.put(instance)
            made.world.sleep(1.0)
            assert kept.take(made.plan(2), 0) is instance
            until = made.world.now + 5.0
            while made.world.now < until:  # a thread that was let go of may cut one short
                made.world.sleep(1.0)
            admitted = activate_restored(instance)
            made.work(instance)
            instance.close()
            return admitted

        assert made.as_actor(live) == 1


def readers_learn_of_an_admitted_task_with_the_next_commit() -> None:
    """Nothing comes any more: what the instance notes beside its stores must name the task all the same, though its rows are those of its
    last commit.
    """
    with stage() as made:
        made.write(0, 1, 2)
        made.lived()
        made.hold(3.0, end="aborted")

        def live() -> None:
            instance = made.open(2, beside=True)
            made.world.sleep(1.0)
            assert activate_restored(instance) == 1
            made.work(instance)
            made.world.sleep(3.0)
            assert activate_restored(instance) == 1
            instance.committer.commit()
            instance.close()

        made.as_actor(live)
        commits = []
        for task in (COUNTING, TOTALLING):
            meta = made.scenario.disk.files[made.path(task)].trees[b"meta"]
            commit = int.from_bytes(meta[b"commit"], "big", signed=True)
            commits.append(TaskCommit(str(task), meta[b"owner"].decode(), commit, meta[b"a:" + CUT.encode()]))
        assert at_one_commit(commits, {str(COUNTING), str(TOTALLING)})


STEPS: dict[str, Callable[[], None]] = {
    step.__name__: step
    for step in (
        an_old_generation_takes_no_id_over,
        a_generation_that_ends_while_the_id_is_taken_takes_no_store_over,
        an_older_holder_of_the_id_is_fenced,
        restore_waits_for_a_transaction_that_is_open_in_the_changelog,
        offsets_of_an_open_transaction_are_waited_for,
        an_offset_that_expired_is_taken_from_the_store,
        offsets_of_an_idle_task_are_committed_again_daily,
        an_old_copy_does_not_bring_back_what_was_deleted_elsewhere,
        an_application_that_rested_for_days_goes_on_with_its_stores,
        a_store_without_any_offset_is_an_error,
        a_holder_that_is_stopped_inside_a_store_commit_is_ended,
        a_commit_without_an_answer_is_never_sent_again,
        a_task_that_lost_its_stores_commits_nothing_to_them,
        at_least_once_the_former_process_is_ended_before_offsets_are_read,
        a_warm_instance_whose_offsets_moved_is_not_used,
        between_epochs_the_loop_goes_on_and_the_next_epoch_meets_the_same,
        a_worker_that_is_given_a_slot_waits_for_the_commit_of_the_loop_that_goes_on_elsewhere,
        a_loop_that_no_epoch_attends_takes_nothing_over,
        a_loop_of_the_generation_before_has_ended_when_its_process_opens_the_stores,
        a_task_that_is_ready_works_while_another_one_is_restored,
        commit_ids_go_on_from_that_of_a_task_that_is_still_restored,
        what_an_admitted_task_writes_is_none_of_the_restores_business,
        an_error_of_the_restore_thread_is_the_instances,
        a_restore_that_rested_goes_on,
        readers_learn_of_an_admitted_task_with_the_next_commit,
    )
}
