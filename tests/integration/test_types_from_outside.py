"""A user's type checker: mypy and pyright over a program next to the installed wheel, which has its types with it (`py.typed`)."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.environments import installed

ROOT = Path(__file__).resolve().parents[2]

pytestmark = [pytest.mark.slow, pytest.mark.integration, pytest.mark.timeout(600)]

PROGRAM = """
import kstreams_repl as ks
from kstreams_repl import serdes


def shout(value: str) -> str:
    return value.upper()


def deploy(session: ks.Session, builder: ks.StreamsBuilder) -> None:
    app = session.deploy(builder, "count", processing_guarantee="exactly_once_v2")
    if app.wait(60):
        app.stop()


builder = ks.StreamsBuilder()
words = builder.stream("words", key_serde="string", value_serde=serdes.string).map_values(shout)
counts = words.group_by(lambda key, word: word, key_serde="string", value_serde="string").count(store="counts")
counts.to_stream().to("totals", key_serde="string", value_serde="long")
with ks.testing.TopologyTestDriver(builder.build()) as driver:
    driver.create_input_topic("words", "string", "string").pipe_input("key", "be")
    output: ks.testing.TestOutputTopic = driver.create_output_topic("totals", "string", "long")
    print(output.read_key_values_to_map())
"""


@pytest.fixture(scope="module")
def python(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An environment with the wheel, without extras, and both type checkers."""
    folder = tmp_path_factory.mktemp("types")
    build = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(folder)]
    subprocess.run(build, cwd=ROOT, check=True, capture_output=True)
    return installed(folder / "venv", "mypy", "pyright", str(next(folder.glob("*.whl"))))


def checked(python: Path, checker: str, program: str, folder: Path) -> tuple[int, str]:
    """Exit status and report of a strict type checker."""
    (folder / "program.py").write_text(program)
    (folder / "pyrightconfig.json").write_text('{"typeCheckingMode": "strict"}')
    command = ["mypy", "--strict"] if checker == "mypy" else ["pyright", "--pythonpath", str(python)]
    done = subprocess.run([str(python), "-m", *command, "program.py"], cwd=folder, capture_output=True, text=True)
    return done.returncode, done.stdout + done.stderr


@pytest.mark.parametrize("checker", ["mypy", "pyright"])
def test_a_users_program_has_no_error_and_a_mistyped_keyword_is_one(python: Path, checker: str, tmp_path: Path) -> None:
    status, report = checked(python, checker, PROGRAM, tmp_path)
    assert status == 0, report
    status, report = checked(python, checker, PROGRAM.replace("count(store=", "count(stor="), tmp_path)
    assert status == 1 and re.search(r'error: .*"stor"', report), report
