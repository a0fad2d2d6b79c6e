"""`./kstreams bench NAME`: the benchmarks by name."""

from __future__ import annotations

import importlib

import click

BENCHES = {
    "alignment": "kstreams_repl.bench.alignment",
    "batch": "kstreams_repl.bench.batch",
    "async": "kstreams_repl.bench.calls",
    "control": "kstreams_repl.bench.control",
    "many-applications": "kstreams_repl.bench.many_applications",
    "engine": "kstreams_repl.bench.engine",
    "first-result": "kstreams_repl.bench.first_result",
    "latency": "kstreams_repl.bench.latency",
    "memory": "kstreams_repl.bench.memory",
    "nexmark": "kstreams_repl.bench.nexmark",
    "notebook": "kstreams_repl.bench.notebook",
    "python-peers": "kstreams_repl.bench.python_peers",
    "queries": "kstreams_repl.bench.queries",
    "report": "kstreams_repl.bench.report",
    "restore": "kstreams_repl.bench.restore",
    "sql": "kstreams_repl.bench.sql",
    "state-growth": "kstreams_repl.bench.state_growth",
    "tables": "kstreams_repl.bench.tables",
    "theodolite": "kstreams_repl.bench.theodolite",
    "throughput": "kstreams_repl.bench.throughput",
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
