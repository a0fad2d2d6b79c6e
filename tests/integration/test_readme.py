"""The README runs: its Python blocks in order on a real broker and real Spark, its commands exist."""

from __future__ import annotations

import gzip
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
README = (ROOT / "README.md").read_text(encoding="utf-8")


def blocks(language: str) -> list[str]:
    return re.findall(rf"```{language}\n(.*?)```", README, flags=re.DOTALL)


@pytest.mark.spark
@pytest.mark.kafka
@pytest.mark.timeout(600)
def test_python_blocks_run_in_order_and_again_in_the_same_folder_with_the_same_counts(tmp_path: Path) -> None:
    script = "\n".join(blocks("python")).replace("session.sql(", "answer = session.sql(")
    script = script.replace("app.stop()", "print('ANSWER', answer.fetchall(), app.counts.records)\napp.stop()")
    script = f"for run in range(2):\n    exec(compile({script!r}, 'readme', 'exec'), {{'__name__': '__main__'}})"
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, [str(ROOT), os.environ.get("PYTHONPATH")]))}
    done = subprocess.run([sys.executable, "-c", script], cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=560)
    assert done.returncode == 0, done.stderr[-3000:]
    assert done.stdout.count("ANSWER [('be', 2), ('to', 2), ('is', 1)] 2\n") == 2, done.stdout
    assert not (tmp_path / ".kstreams").exists()


def test_commands_exist() -> None:
    from kstreams_repl.cli.registry import COMMANDS

    named = {match for block in blocks("sh") for match in re.findall(r"^\./kstreams (\w+)", block, flags=re.MULTILINE)}
    named |= set(re.findall(r"`\./kstreams (\w+)", README))
    assert named and named <= set(COMMANDS)


def test_links_lead_somewhere() -> None:
    for target in re.findall(r"\]\(([^)#]+)\)", README):
        assert (ROOT / target).exists(), target


def test_number_of_compared_topologies_is_right() -> None:
    cases = sum(path.read_text().count("\n") for path in (ROOT / "tests/conformance/cases").glob("*.jsonl"))
    for path in (ROOT / "tests/conformance/random").glob("*.jsonl.gz"):
        with gzip.open(path, "rt") as lines:
            cases += sum(1 for _ in lines)
    assert f"{cases:,} topologies" in README
