"""``./kstreams repl`` in a terminal: build, look at values, deploy, a tail that Ctrl-C stops, and nothing left at the end."""

from __future__ import annotations

import os
import pty
import re
import select
import signal
import subprocess
import sys
import time
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import kstreams_repl as ks
from kstreams_repl.host.kafka.clients import ClientSettings
from kstreams_repl.repl.session.session_directory import SessionDirectory

pytestmark = [pytest.mark.kafka, pytest.mark.timeout(300)]
ROOT = Path(__file__).resolve().parents[2]
PROMPT = r"In \[\d+\]: $"
BUILD = [
    "builder = ks.StreamsBuilder()",
    'orders = builder.stream("{topic}", key_serde="string", value_serde="json", name="orders")',
    'paid = orders.filter(lambda key, order: order["amount"] > 1, name="paid")',
    'counted = paid.group_by_key(key_serde="string", value_serde="json").count(store="counts")',
]


class Terminal:
    """IPython behind a pseudo-terminal, as a person at a keyboard has it."""

    def __init__(self, directory: Path, *arguments: str) -> None:
        self.master, slave = pty.openpty()
        environment = {**os.environ, "PYTHONPATH": str(ROOT), "IPYTHONDIR": str(directory), "TERM": "dumb", "COLUMNS": "200"}
        command = [sys.executable, "-m", "kstreams_repl.cli", "repl", *arguments]
        command += ["--simple-prompt", "--colors=NoColor", "--no-confirm-exit"]
        ends = {"stdin": slave, "stdout": slave, "stderr": slave}
        self.process = subprocess.Popen(
            command, cwd=directory, env=environment, start_new_session=True, preexec_fn=_own_terminal, **ends
        )
        os.close(slave)
        self.text = ""

    def expect(self, pattern: str, seconds: float = 60) -> str:
        """What came up to the pattern and with it."""
        deadline = time.monotonic() + seconds
        while not (found := re.search(pattern, self.text, re.MULTILINE)):
            assert time.monotonic() < deadline, f"no {pattern!r} in:\n{self.text}"
            if select.select([self.master], [], [], 0.2)[0]:
                try:
                    self.text += os.read(self.master, 65536).decode(errors="replace").replace("\r", "")
                except OSError:
                    self.process.wait(10)
                    assert re.search(pattern, self.text, re.MULTILINE), f"it ended before {pattern!r}:\n{self.text}"
        seen, self.text = self.text[: found.end()], self.text[found.end() :]
        return seen

    def run(self, line: str, seconds: float = 60) -> str:
        """Type a line; everything up to the next prompt."""
        self.type(line)
        return self.expect(PROMPT, seconds)

    def type(self, line: str) -> None:
        os.write(self.master, f"{line}\n".encode())

    def interrupt(self) -> None:
        """Ctrl-C, through the terminal."""
        os.write(self.master, b"\x03")

    def end(self) -> int:
        self.type("exit")
        status = self.process.wait(60)
        os.close(self.master)
        return status


def _own_terminal() -> None:
    import fcntl
    import termios

    fcntl.ioctl(0, termios.TIOCSCTTY, 0)


@pytest.fixture
def topic(broker: Any, tmp_path: Path) -> str:
    name = f"r{uuid.uuid4().hex[:8]}"
    with ks.Session(ClientSettings(broker.bootstrap_servers), directory=SessionDirectory(tmp_path / "first")) as session:
        session.topic_configs["retention.ms"] = "-1"
        session.produce(name, [(f"k{n}", {"amount": n}, 1000 + n) for n in range(5)], partitions=2)
    return name


@pytest.fixture
def terminal(broker: Any, tmp_path: Path) -> Iterator[Terminal]:
    terminal = Terminal(tmp_path, "--broker", broker.bootstrap_servers, "--directory", "temporary")
    yield terminal
    if terminal.process.poll() is None:
        os.killpg(terminal.process.pid, signal.SIGKILL)
        terminal.process.wait()
        os.close(terminal.master)


def test_a_topology_is_built_drawn_and_shown_at_and_a_tail_ends_with_ctrl_c(terminal: Terminal, topic: str) -> None:
    greeting = terminal.expect(PROMPT)
    assert "session is connected" in greeting and "broker" in greeting
    for line in BUILD:
        assert "Error" not in terminal.run(line.format(topic=topic))
    drawn = terminal.run("builder")
    assert "Sub-topology: 0" in drawn and f"Source: orders (topics: [{topic}])" in drawn and "Processor: paid" in drawn
    shown = terminal.run("%topo_values paid -n 2")
    assert '{"amount": 3}' in shown.replace("'", '"') and '{"amount": 4}' in shown.replace("'", '"')
    asked = terminal.run(f"%topo_sql SELECT max(amount) AS most FROM {topic}")
    assert re.search(r"most\s+─+\s+4\b", asked), asked
    terminal.type(f"%topo_tail {topic} -n 2")
    terminal.expect("amount.*4")
    terminal.interrupt()
    terminal.expect(PROMPT, 10)
    wrong = terminal.run('session.read("nothing-of-the-kind")')
    assert "UnknownTopicError" in wrong and "Traceback" not in wrong
    assert terminal.end() == 0


@pytest.mark.slow
@pytest.mark.spark
def test_an_application_runs_from_the_terminal_and_ends_with_it(terminal: Terminal, topic: str) -> None:
    terminal.expect(PROMPT)
    for line in BUILD:
        terminal.run(line.format(topic=topic))
    terminal.run("%topo_deploy builder " + topic + "-app -c processing.guarantee=exactly_once_v2")
    assert "True" in terminal.run(f'session.applications["{topic}-app"].wait(120)', 150)
    counted = terminal.run(f'%topo_sql SELECT count(*) AS keys FROM "{topic}-app".counts')
    assert re.search(r"keys\s+─+\s+3\b", counted), counted
    terminal.type("%topo_tail paid")
    terminal.expect("live from")
    terminal.interrupt()
    terminal.expect(PROMPT, 20)
    assert "running" in terminal.run("%topo")
    assert f"{topic}-app: paused" in terminal.run(f"%topo_pause {topic}-app")
    assert f"{topic}-app: already paused" in terminal.run(f"%topo_pause {topic}-app")
    assert terminal.end() == 0


STATEMENTS = """%load_ext kstreams_repl
import kstreams_repl as ks
least = 1
def enough(order):
    return order["amount"] > least

builder = ks.StreamsBuilder()
orders = builder.stream("{topic}", key_serde="string", value_serde="json", name="orders")
paid = orders.filter(lambda key, order: enough(order), name="paid")
counted = paid.group_by_key(key_serde="string", value_serde="json").count(store="counts")
{last}
"""


def plain_ipython(folder: Path, last: str, topic: str, seconds: float) -> str:
    """What ``ipython --simple-prompt`` prints when these lines are typed into it, one prompt after the other."""
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "IPYTHONDIR": str(folder), "TERM": "dumb"}
    command = [sys.executable, "-m", "IPython", "--simple-prompt", "--no-banner", "--colors=NoColor", "--no-confirm-exit"]
    typed = STATEMENTS.format(topic=topic, last=last)
    done = subprocess.run(command, input=typed, capture_output=True, text=True, cwd=folder, env=environment, timeout=seconds, check=True)
    return done.stdout + done.stderr


@pytest.mark.slow
def test_every_statement_of_a_plain_terminal_is_in_the_text_of_what_it_built(tmp_path: Path) -> None:
    last = """from kstreams_repl.repl.session.source.source_slice import program_of
program = program_of(builder, builder.build(), globals())
print("same:", str(program.run().describe()) == str(builder.build().describe()), program.missing)
print(program.text)
"""
    said = plain_ipython(tmp_path, last, "orders", 60)
    assert "same: True ()" in said, said
    assert "least = 1" in said and "def enough(order):" in said


@pytest.mark.slow
@pytest.mark.spark
def test_a_plain_terminal_deploys_detached(broker: Any, topic: str, tmp_path: Path) -> None:
    name = f"plain-{uuid.uuid4().hex[:6]}"
    last = f"""session = ks.connect("{broker.bootstrap_servers}", directory="kept")
app = session.deploy(builder, "{name}", detached=True)
print("caught up:", app.wait(120), app.status)
app.stop()
session.close()
"""
    said = plain_ipython(tmp_path, last, topic, 240)
    assert "caught up: True" in said and "SessionFileError" not in said, said
