"""`./kstreams conformance FILE...`: run case files and print counts per file and in total."""

from __future__ import annotations

from pathlib import Path

import click

from workshop.conformance.runner import Outcome, read_cases, run_case


@click.command(help="Run conformance case files through the DSL and the test driver; failures are printed with a diff.")
@click.argument("files", nargs=-1, required=True, type=click.Path(exists=True, dir_okay=False, path_type=Path))
@click.option("-k", "--only", default="", help="Only cases whose id contains this text.")
@click.option("-q", "--quiet", is_flag=True, help="Counts only, no diffs.")
def main(files: tuple[Path, ...], only: str, quiet: bool) -> None:
    """Run case files; print `N passed, N failed` (`, N waived`) after each file, then the total."""
    total: list[Outcome] = []
    for path in files:
        outcomes = [run_case(case) for case in read_cases(path) if only in case["id"]]
        for outcome in outcomes:
            if outcome.difference is not None and not quiet:
                label = "FAILED" if outcome.waived is None else f"waived ({outcome.waived})"
                click.echo(f"{label} {outcome.case_id}\n{outcome.difference}\n")
        click.echo(f"{path.name}: {counts(outcomes)}")
        total += outcomes
    click.echo(counts(total))
    if any(outcome.difference is not None and outcome.waived is None for outcome in total):
        raise SystemExit(1)


def counts(outcomes: list[Outcome]) -> str:
    """Return `N passed, N failed`, with `, N waived` if there are any."""
    waived = sum(outcome.waived is not None for outcome in outcomes)
    failed = sum(outcome.difference is not None for outcome in outcomes) - waived
    return f"{len(outcomes) - failed - waived} passed, {failed} failed" + (f", {waived} waived" if waived else "")
