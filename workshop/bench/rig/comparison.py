"""Cases measured one after the other, each by alternating our runs with those of Kafka Streams on the JVM: same broker, same topics, same
commit interval, and the final outputs compared. Linger and compression are the same, or each system's defaults (`--clients`); given twice,
the runs with both alternate, too.

A line is printed after each run, with the median of the runs so far, so that an interrupted benchmark has reported what it measured.
"""

from __future__ import annotations

import statistics
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import click

from kstreams_repl.engine.config import EXACTLY_ONCE_V2
from kstreams_repl.host.kafka.clients import producer_defaults
from kstreams_repl.system.errors import KStreamsError
from workshop.bench.peers.kafka_streams import KAFKA_STREAMS, KafkaStreamsPeer, PeerRun, chosen_jdk, peer_option
from workshop.bench.rig import json_output
from workshop.bench.rig.deployed import DEFAULTS, TUNED, Clients, MeasuredRun, Settings
from workshop.bench.rig.outputs import Output
from workshop.bench.rig.testbed import Testbed, open_testbed, where


@dataclass(frozen=True, slots=True)
class Case(ABC):
    """What both systems run.

    Attributes:
        name: of its lines.
        records: of its input.
        application: names our application; the runs are numbered.
        peer_application: the same of the peer.
    """

    testbed: Testbed
    settings: Settings
    name: str
    records: int
    application: str
    peer_application: str

    @abstractmethod
    def run(self, name: str, output: str) -> MeasuredRun:
        """Run it on Spark, into this topic."""

    @abstractmethod
    def run_peer(self, peer: KafkaStreamsPeer, name: str, output: str) -> PeerRun:
        """Run it on the peer, into this topic."""

    @abstractmethod
    def read(self, output: str) -> Output:
        """Return what a run has written."""

    @abstractmethod
    def fields(self) -> dict[str, Any]:
        """Return further fields of the lines, as of the last run."""

    def run_fields(self, runs: Sequence[MeasuredRun] | Sequence[PeerRun]) -> dict[str, Any]:
        """Return further fields of the line of one system's runs."""
        return {}

    def ratio_fields(self, ours: Sequence[MeasuredRun], theirs: Sequence[PeerRun]) -> dict[str, Any]:
        """Return further fields of the line of the ratio."""
        return {}


def comparison_options(*, runs: int, instances: bool = True) -> Callable[[Any], Any]:
    """Return a decorator that adds the options of a comparison to a command.

    Args:
        runs: how many, if nothing is said.
        instances: False: without `--instances`.
    """
    number = click.option("--instances", type=click.IntRange(1), default=2, show_default=True, help="Instances; threads of the peer.")
    options = [
        *([number] if instances else []),
        click.option("--commit-ms", type=click.IntRange(0), default=100, show_default=True),
        click.option("--runs", type=click.IntRange(1), default=runs, show_default=True),
        click.option("--max-seconds", type=click.IntRange(1), default=300, show_default=True, help="Of one run."),
        click.option(
            "--clients",
            type=click.Choice([DEFAULTS, TUNED]),
            multiple=True,
            default=(TUNED,),
            show_default=True,
            help="Linger and compression of both systems' producers: 50 ms and lz4, or each system's defaults.",
        ),
        peer_option,
        where,
    ]

    def add(command: object) -> Any:
        for option in reversed(options):
            command = option(command)
        return command

    return add


@contextmanager
def both_systems(peer: str | None, bootstrap: str | None, directory: Path | None) -> Iterator[tuple[Testbed, KafkaStreamsPeer | None]]:
    """Print the machine; yield a testbed whose Spark runs and the requested peer, None if there is none."""
    json_output.emit_machine()
    with ExitStack() as stack:
        jdk = chosen_jdk(peer)
        testbed = stack.enter_context(open_testbed(bootstrap, directory))
        jvm = None if jdk is None else stack.enter_context(KafkaStreamsPeer(jdk, scratch=testbed.scratch))
        testbed.session.spark  # noqa: B018 (Spark starts before the first measured run)
        yield testbed, jvm


def compare(
    bench: str,
    cases: Callable[[Testbed], Iterable[Case]],
    *,
    runs: int,
    peer: str | None,
    bootstrap: str | None,
    directory: Path | None,
    clients: Sequence[Clients],
    repeat: str,
) -> None:
    """Measure cases and print their lines.

    Args:
        cases: makes them, and their topics, one after the other.
        clients: settings of the producers, which take turns.
        repeat: the option that chooses one case, for the hint.

    Raises:
        KStreamsError: outputs differ, or could not be compared.
    """
    faults: list[str] = []
    with both_systems(peer, bootstrap, directory) as (testbed, jvm):
        for case in cases(testbed):
            turns = [_Turns(bench, _variant(case, each), jvm) for each in clients]
            for number in range(1, runs + 1):
                for turn in turns:
                    turn.take(number, last=number == runs)
            for turn in turns if jvm is not None else ():
                if fault := turn.compare():
                    click.echo(f"{turn.case.name}: {fault}", err=True)
                    faults.append(f"{turn.case.name}: {fault}")
    if faults:
        raise KStreamsError(
            f"the output differs from Kafka Streams', or was not compared: {'; '.join(faults)}",
            hint=f"give an unfinished peer more time: --max-seconds; repeat one case: {repeat}",
        )


@dataclass(slots=True)
class _Turns:
    """The runs of one case, ours and the peer's alternately, and the outputs of the last two."""

    bench: str
    case: Case
    peer: KafkaStreamsPeer | None
    ours: list[MeasuredRun] = field(default_factory=list)
    theirs: list[PeerRun] = field(default_factory=list)
    mine: Output | None = None
    other: Output | None = None

    def take(self, number: int, *, last: bool) -> None:
        """Run both systems once, print a line for each, and read the outputs of the last runs."""
        case, read = self.case, last and self.peer is not None
        output = case.testbed.fresh_topic(f"{case.application}-{number}-out")
        self.ours.append(case.run(f"{case.application}-{number}", output))
        _emit_ours(self.bench, case, self.ours)
        self.mine = case.read(output) if read else None
        case.testbed.admin.delete_topics([output])
        if self.peer is None:
            return
        output = case.testbed.fresh_topic(f"out-{case.peer_application}-{number}")
        self.theirs.append(case.run_peer(self.peer, f"{case.peer_application}-{number}", output))
        _emit_theirs(self.bench, case, self.theirs)
        self.other = case.read(output) if read and self.theirs[-1].complete else None
        case.testbed.admin.delete_topics([output])

    def compare(self) -> str | None:
        """Print the ratio; return why the outputs of the last two runs are not known to be equal, or None."""
        fault = fault_of(self.theirs, self.case.records, self.mine, self.other)
        ratio = statistics.median(run.rate for run in self.ours) / statistics.median(run.rate for run in self.theirs)
        fields = {"same_output": fault is None, "records": self.case.records, "clients": self.case.settings.clients}
        more = self.case.ratio_fields(self.ours, self.theirs)
        json_output.emit(self.bench, f"{self.case.name} ratio", round(ratio, 2), "x", **fields, **more)
        return fault


def _variant(case: Case, clients: Clients) -> Case:
    """Return the case with these settings of the producers; its lines name them if they are the defaults."""
    settings = replace(case.settings, clients=clients)
    if clients == TUNED:
        return replace(case, settings=settings)
    names = (case.name, case.application, case.peer_application)
    name, application, peer_application = (f"{given}{mark}{clients}" for given, mark in zip(names, " --", strict=True))
    return replace(case, settings=settings, name=name, application=application, peer_application=peer_application)


def fault_of(runs: Sequence[PeerRun], records: int, ours: Output | None, theirs: Output | None) -> str | None:
    """Return why the peer's output is not known to equal ours; None if it does.

    Args:
        ours, theirs: outputs of the last runs; None if not read, for example because the peer did not finish.
    """
    unfinished = sum(not run.complete for run in runs)
    if unfinished:
        return f"{unfinished} of {len(runs)} runs of the peer did not finish all {records:,} records"
    if ours is None or theirs is None:
        return "an output could not be read"
    differences = ours.differences(theirs)
    return f"{differences} differences in the final output ({ours} against {theirs})" if differences else None


def _emit_ours(bench: str, case: Case, runs: Sequence[MeasuredRun]) -> None:
    _emit(
        bench,
        case.name,
        runs,
        broker_cpu_seconds=json_output.median([run.broker_cpu_seconds for run in runs], digits=1),
        peak_rss_mb=max(run.rss_mb + run.broker_rss_mb for run in runs),
        broker_rss_mb=max(run.broker_rss_mb for run in runs),
        sending=_sending(case.settings),
        **case.fields(),
        **case.run_fields(runs),
    )


def _emit_theirs(bench: str, case: Case, runs: Sequence[PeerRun]) -> None:
    _emit(
        bench,
        f"{case.name} {KAFKA_STREAMS}",
        runs,
        peak_rss_mb=max(run.rss_mb for run in runs),
        complete=all(run.complete for run in runs),
        sending=runs[-1].sending,
        **(case.fields() | {"state_mb": runs[-1].state_mb or None}),
        **case.run_fields(runs),
    )


def _sending(settings: Settings) -> str:
    """Return the linger and compression of our producers in a run."""
    used = {**producer_defaults(transactional=settings.guarantee == EXACTLY_ONCE_V2), **settings.sending}
    return f"linger {used['linger.ms']} ms, {used['compression.type']}"


def _emit(bench: str, name: str, runs: Sequence[MeasuredRun] | Sequence[PeerRun], **fields: object) -> None:
    rates = [run.rate for run in runs]
    json_output.emit(
        bench,
        name,
        json_output.median(rates),
        "records/s",
        **json_output.spread(rates),
        seconds=json_output.median([run.seconds for run in runs], digits=2),
        cpu_seconds=json_output.median([run.cpu_seconds for run in runs], digits=1),
        per_core_second=json_output.median([run.records / max(run.cpu_seconds, 0.01) for run in runs]),
        **fields,
    )
