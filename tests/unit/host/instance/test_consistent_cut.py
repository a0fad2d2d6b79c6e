"""Whether views of several tasks are their instances at one commit each."""

from __future__ import annotations

from kstreams_repl.host.instance.tasks.consistent_cut import TaskCommit, at_one_commit, cut_of, instance_commits

A, B = "3/0/11/22/aa", "3/1/12/23/bb"


def task(name: str, commit: int, owner: str | None = A, noted: dict[str, int] | None = None, by: str = A) -> TaskCommit:
    return TaskCommit(name, owner, commit, None if noted is None else cut_of(by, noted))


ALL = ("0_0", "0_1", "0_2")


def test_what_nobody_asks_for_any_more_is_not_compared() -> None:
    """An edit took task 1_0 out: it lies there with its last owner."""
    gone = task("1_0", 8, A, {"0_0": 8, "1_0": 8})
    ours = task("0_0", 9, B, {"0_0": 9}, B)
    assert at_one_commit([ours, gone], ALL)
    assert not at_one_commit([ours, gone], [*ALL, "1_0"])


def test_a_task_that_never_committed_does_not_count() -> None:
    assert cut_of(A, {"0_0": 3, "0_1": -1}) == cut_of(A, {"0_0": 3})
    assert at_one_commit([task("0_0", 3, noted={"0_0": 3}), task("0_1", -1)], ALL)


def test_tasks_that_took_the_same_round_agree_and_those_it_did_not_touch() -> None:
    assert at_one_commit([task("0_0", 8, noted={"0_0": 8, "0_1": 8}), task("0_1", 8, noted={"0_0": 8, "0_1": 8})], ALL)
    assert at_one_commit([task("0_0", 9, noted={"0_0": 9, "0_1": 8}), task("0_1", 8, noted={"0_0": 8, "0_1": 8})], ALL)


def test_a_task_that_lacks_the_round_is_seen() -> None:
    assert not at_one_commit([task("0_0", 9, noted={"0_0": 9, "0_1": 9}), task("0_1", 8, noted={"0_0": 8, "0_1": 8})], ALL)


def test_every_instance_is_compared_by_itself() -> None:
    ours = [task("0_0", 9, noted={"0_0": 9})]
    theirs = [task("0_1", 4, B, {"0_1": 4, "0_2": 4}, B), task("0_2", 4, B, {"0_1": 4, "0_2": 4}, B)]
    assert at_one_commit([*ours, *theirs], ALL)
    assert not at_one_commit([*ours, theirs[0], task("0_2", 3, B, {"0_1": 3, "0_2": 3}, B)], ALL)
    assert instance_commits([*ours, *theirs]) == {"0": 9, "1": 4}


def test_what_a_new_owner_has_not_committed_to_is_as_the_last_one_left_it() -> None:
    old = {"0_0": 8, "0_1": 8}
    assert at_one_commit([task("0_0", 8, B, old), task("0_1", 7, B, old)], ALL)
    assert at_one_commit([task("0_0", 8, None, old), task("0_1", 7, None, old)], ALL)
    assert at_one_commit([task("0_0", 8), task("0_1", 7)], ALL), "stores from before notes were written"
