"""Open either end of the control channel. The only place that decides between files and the journal."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path

from kstreams_repl.host.instance.application_plan import ApplicationPlan
from kstreams_repl.host.instance.control.channel import ClaimedSlot, ControlChannel, EpochTask, Signal
from kstreams_repl.host.instance.control.file_channel import FileChannel, FileClaim, FileInstanceControl, read_lease
from kstreams_repl.host.instance.control.journal_channel import JournalChannel, JournalClaim, JournalInstanceControl
from kstreams_repl.host.instance.control.journal_follower import follow, followed
from kstreams_repl.host.instance.control.journal_taps import JournalTapClient
from kstreams_repl.host.instance.control.node_taps import TapClient, TapFiles
from kstreams_repl.host.instance.control.retry_orders import FileOrders, JournalOrders, OrderBox
from kstreams_repl.host.instance.process.executor_directory import executor_process, take_directory
from kstreams_repl.host.instance.state.state_directory import state_root
from kstreams_repl.host.journal.journal import generation_in_force
from kstreams_repl.host.kafka.clients import ClientSettings


def open_channel(directory: Path, settings: ClientSettings, application_id: str, *, remote: bool = False) -> ControlChannel:
    """Return the driver's end of an application's channel.

    Args:
        directory: the application's control directory on this host.
        remote: instances run on other hosts.
    """
    return JournalChannel(directory, settings, application_id) if remote else FileChannel(directory)


def open_orders(directory: Path, settings: ClientSettings, application_id: str, *, remote: bool = False) -> OrderBox:
    """Return a client's end for orders about waiting records, of an application that this process need not drive.

    Args:
        directory: the application's control directory on this host.
        remote: instances run on other hosts.
    """
    return JournalOrders(settings, application_id) if remote else FileOrders(directory)


def open_taps(directory: Path, settings: ClientSettings, application_id: str, *, remote: bool = False) -> TapClient:
    """Return a client's end for taps on an application that this process need not drive.

    Args:
        directory: the application's control directory on this host.
        remote: instances run on other hosts.

    Raises:
        BrokerUnavailableError: instances run on other hosts, and the journal cannot be read now.
    """
    return JournalTapClient(settings, application_id) if remote else TapFiles(directory)


@contextmanager
def claim_slot(plan: ApplicationPlan, task: EpochTask) -> Iterator[ClaimedSlot | None]:
    """Claim a slot for one epoch; None when other workers have all of them.

    Raises:
        BrokerUnavailableError: on a cluster, the journal cannot be read or written now.
    """
    claimed = _claim_by_journal(plan, task) if plan.remote else _claim_by_file(plan, task)
    with claimed as found:
        yield found


@contextmanager
def _claim_by_file(plan: ApplicationPlan, task: EpochTask) -> Iterator[ClaimedSlot | None]:
    claim = FileClaim(Path(plan.control_directory), plan.generation, plan.instances, task)
    with claim as slot:
        if slot is None:
            yield None
            return
        in_force = partial(generation_in_force, plan.settings, plan.application_id)
        control = FileInstanceControl(plan.control_directory, plan.generation, slot, parent=os.getppid(), in_force=in_force)
        yield ClaimedSlot(control, "driver", plan.state_directory, claim.epoch_over)


@contextmanager
def _claim_by_journal(plan: ApplicationPlan, task: EpochTask) -> Iterator[ClaimedSlot | None]:
    root = state_root(plan.config)
    executor = take_directory(root, plan.application_id, executor_process())
    aligned = plan.instances > 1 and bool(plan.alignment)
    follower = follow(plan.settings, plan.application_id, plan.journal_start, reports=aligned)
    claim = JournalClaim(follower, plan.generation, plan.instances, task, executor=executor, executors=plan.places)
    with claim as slot:
        if slot is None:
            yield None
            return
        control = JournalInstanceControl(
            follower,
            plan.generation,
            slot,
            executor=executor,
            instances=plan.instances,
            claim=claim.held,
            resting=claim.held is None,
            parent=os.getppid(),
        )
        yield ClaimedSlot(control, executor, str(root))
        control.end_epoch()


def command_in_force(plan: ApplicationPlan) -> Signal:
    """Return the current command to a generation, for an instance that no epoch attends."""
    if plan.remote:
        follower = followed(plan.application_id)
        return Signal.STOP if follower is None else follower.signal(plan.generation)
    lease = read_lease(Path(plan.control_directory))
    if lease is None or lease.signal is Signal.STOP:
        return Signal.STOP
    return lease.signal if lease.generation == plan.generation else Signal.SUPERSEDED
