"""`./kstreams conformance FILE...`: run case files, here or on the JVM, and print counts per file and in total."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from workshop.conformance.oracle import VERSIONS, differences, knows, results
from workshop.conformance.runner import Outcome, read_cases, run_case


@click.command(help="Run conformance case files through the DSL and the test driver; failures are printed with a diff.")
@click.argument("files", nargs=-1, required=True, type=click.Path(exists=True, dir_okay=False, path_type=Path))
@click.option("-k", "--only", default="", help="Only cases whose id contains this text.")
@click.option("-q", "--quiet", is_flag=True, help="Counts only, no diffs.")
@click.option("--jvm", type=click.Choice(VERSIONS), help="Run them on this version of Kafka Streams instead; needs a JDK (javac).")
def main(files: tuple[Path, ...], only: str, quiet: bool, jvm: str | None) -> None:
    """Run case files; print `N passed, N failed` (`, N waived`) after each file, then the total."""
    total: list[Outcome] = []
    for path in files:
        cases = [case for case in read_cases(path) if only in case["id"]]
        outcomes = [run_case(case) for case in cases] if jvm is None else on_jvm(cases, jvm)
        for outcome in outcomes:
            if outcome.difference is not None and not quiet:
                label = "FAILED" if outcome.waived is None else f"waived ({outcome.waived})"
                click.echo(f"{label} {outcome.case_id}\n{outcome.difference}\n")
        click.echo(f"{path.name}: {counts(outcomes)}")
        total += outcomes
    click.echo(counts(total))
    if any(outcome.difference is not None and outcome.waived is None for outcome in total):
        raise SystemExit(1)


def on_jvm(cases: list[dict[str, Any]], version: str) -> list[Outcome]:
    """Return how the results of a version of Kafka Streams differ from the recorded ones, of the cases whose results it has."""
    known = [case for case in cases if knows(case, version)]
    answers = zip(known, results(known, version=version), strict=True)
    return [Outcome(case["id"], "\n".join(differences(case, answer)) or None) for case, answer in answers]


def counts(outcomes: list[Outcome]) -> str:
    """Return `N passed, N failed`, with `, N waived` if there are any."""
    waived = sum(outcome.waived is not None for outcome in outcomes)
    failed = sum(outcome.difference is not None for outcome in outcomes) - waived
    return f"{len(outcomes) - failed - waived} passed, {failed} failed" + (f", {waived} waived" if waived else "")
