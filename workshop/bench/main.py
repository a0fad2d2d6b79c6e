"""`./kstreams bench NAME`: the benchmarks by name."""

from __future__ import annotations

import importlib

import click

BENCHES = {
    "alignment": "workshop.bench.alignment",
    "batch": "workshop.bench.batch",
    "async": "workshop.bench.calls",
    "control": "workshop.bench.control",
    "costs": "workshop.bench.costs",
    "many-applications": "workshop.bench.many_applications",
    "engine": "workshop.bench.engine",
    "first-result": "workshop.bench.first_result",
    "latency": "workshop.bench.latency",
    "memory": "workshop.bench.memory",
    "nexmark": "workshop.bench.nexmark",
    "notebook": "workshop.bench.notebook",
    "fork": "workshop.bench.fork",
    "past": "workshop.bench.past",
    "python-peers": "workshop.bench.python_peers",
    "queries": "workshop.bench.queries",
    "report": "workshop.bench.rig.report",
    "restore": "workshop.bench.restore",
    "scale": "workshop.bench.scale",
    "sql": "workshop.bench.sql",
    "state-growth": "workshop.bench.state_growth",
    "tables": "workshop.bench.tables",
    "theodolite": "workshop.bench.theodolite",
    "throughput": "workshop.bench.throughput",
}


class _Benches(click.Group):
    """A group that imports a sub-command only when it is requested."""

    def list_commands(self, context: click.Context) -> list[str]:
        return sorted(BENCHES)

    def get_command(self, context: click.Context, name: str) -> click.Command | None:
        return importlib.import_module(BENCHES[name]).main if name in BENCHES else None


@click.command(cls=_Benches, help="Measure: each benchmark prints one JSON line per measurement.")
def main() -> None:
    """Benchmarks by name; the group itself does nothing."""
