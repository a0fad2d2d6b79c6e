"""The broker's class path: a pinned list of jars, fetched once and verified before each use.

`jars.lock` lists each jar with coordinates, size and sha256. Jars missing from the cache are fetched by `jgo` one at a time (without
transitive dependencies) into a separate directory, verified there and then moved into the cache; an incomplete download, a tampered mirror
or two processes fetching at the same time therefore never put a wrong jar on a class path.
"""

from __future__ import annotations

import hashlib
import os
import tempfile
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor, as_completed
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cache
from importlib.resources import files
from pathlib import Path

from kstreams_repl.system.disk_errors import free_bytes, is_full, room
from kstreams_repl.system.errors import EmbeddedBrokerError

KAFKA_VERSION = "4.2.2"
MIRROR_VARIABLE = "KSTREAMS_MAVEN_MIRROR"
CACHE_VARIABLE = "KSTREAMS_CACHE"

Progress = Callable[[str, int, int], None]
"""Called with (file name, bytes done in total, bytes in total) while jars are fetched; not called when none is missing."""


@dataclass(frozen=True, slots=True)
class LockedJar:
    """A line of ``jars.lock``."""

    group: str
    artifact: str
    version: str
    size: int
    sha256: str
    classifier: str = ""
    packaging: str = "jar"
    licence: str = field(default="", compare=False)

    @property
    def file_name(self) -> str:
        return f"{self.artifact}-{self.version}{self.classifier and '-' + self.classifier}.{self.packaging}"

    def matches(self, path: Path) -> bool:
        """Return whether the file exists with this jar's size and sha256."""
        try:
            if path.stat().st_size != self.size:
                return False
            with path.open("rb") as stream:
                return hashlib.file_digest(stream, "sha256").hexdigest() == self.sha256
        except FileNotFoundError:
            return False


def parse_lock(text: str) -> tuple[LockedJar, ...]:
    """Parse lines of the form ``group:artifact:version size sha256 [licence]``; blank lines and ``#`` lines are skipped."""
    jars = []
    for line in text.splitlines():
        if line.strip() and not line.startswith("#"):
            coordinates, size, sha256, *licence = line.split()
            group, artifact, version = coordinates.split(":")
            jars.append(LockedJar(group, artifact, version, int(size), sha256, licence=" ".join(licence)))
    return tuple(jars)


APICURIO = LockedJar(
    "io.apicurio", "apicurio-registry-app", "2.6.13.Final", 142198683,
    "3cda1b34aa020fb4ac4dd6a66018d757e81e437f97e20a1f92d366b70091c6ba", "all", "tar.gz", "Apache-2.0",
)  # fmt: skip
"""The embedded registry, with its jars."""


@cache
def locked_jars() -> tuple[LockedJar, ...]:
    """Return the broker's pinned jars in class path order."""
    return parse_lock(files(__package__).joinpath("jars.lock").read_text(encoding="utf-8"))


def cache_directory() -> Path:
    """Return the jar cache: ``$KSTREAMS_CACHE/jars``, else ``kstreams_repl/jars`` in ``$XDG_CACHE_HOME`` or ``~/.cache``."""
    own = os.environ.get(CACHE_VARIABLE)
    if own:
        return Path(own).expanduser() / "jars"
    root = os.environ.get("XDG_CACHE_HOME") or "~/.cache"
    return Path(root).expanduser() / "kstreams_repl" / "jars"


def missing_jars(directory: Path | None = None, *, jars: Iterable[LockedJar] | None = None) -> tuple[LockedJar, ...]:
    """Return the jars (by default the broker's) that are not in the cache, or whose content differs from the lock file."""
    where = directory or cache_directory()
    return tuple(jar for jar in (locked_jars() if jars is None else jars) if not jar.matches(where / jar.file_name))


def ensure_jars(
    directory: Path | None = None,
    *,
    jars: Iterable[LockedJar] | None = None,
    mirror: str | None = None,
    progress: Progress | None = None,
) -> tuple[Path, ...]:
    """Return the class path (by default the broker's), complete and verified; fetch missing jars.

    The size and sha256 of every jar are checked on every call (38 MB, about 40 ms), so a jar damaged on disk is fetched again instead of
    being run. ``mirror`` (default: ``$KSTREAMS_MAVEN_MIRROR``) is the root of a Maven repository to use instead of Maven Central. Without
    ``progress`` a progress bar is shown in the terminal while jars are fetched.

    Raises:
        EmbeddedBrokerError: a jar could not be fetched, or the fetched file has another size or sha256.
    """
    where = directory or cache_directory()
    wanted = locked_jars() if jars is None else tuple(jars)
    missing = missing_jars(where, jars=wanted)
    if missing:
        total = sum(jar.size for jar in missing)
        try:
            where.mkdir(parents=True, exist_ok=True, mode=0o700)
            if progress is not None:
                _fetch(missing, where, mirror, total, progress)
            else:
                with _progress_bar(total) as bar:
                    _fetch(missing, where, mirror, total, bar)
        except (OSError, EmbeddedBrokerError) as error:
            if is_full(error):
                raise EmbeddedBrokerError(
                    f"not enough disk space for the broker's jars in {where}: {room(where, 2 * total)}",
                    hint=f"free some space on that disk, or set {CACHE_VARIABLE} to a directory on another one",
                    path=str(where),
                    free_bytes=free_bytes(where),
                    needed_bytes=2 * total,
                ) from error
            if isinstance(error, EmbeddedBrokerError):
                raise
            raise EmbeddedBrokerError(
                f"cannot use the jar cache {where}: {error.strerror or error}",
                hint=f"set {CACHE_VARIABLE} to a directory that you can write to",
                path=str(where),
            ) from error
    return tuple(where / jar.file_name for jar in wanted)


def _fetch(jars: Iterable[LockedJar], where: Path, mirror: str | None, total: int, progress: Progress) -> None:
    done = 0
    with tempfile.TemporaryDirectory(prefix=".fetch-", dir=where) as scratch, ThreadPoolExecutor(4) as pool:
        fetched = {pool.submit(_fetch_one, jar, Path(scratch), mirror): jar for jar in jars}
        for future in as_completed(fetched):
            jar = fetched[future]
            try:
                os.replace(future.result(), where / jar.file_name)
            except Exception:
                pool.shutdown(wait=False, cancel_futures=True)
                raise
            done += jar.size
            progress(jar.file_name, done, total)


def _fetch_one(jar: LockedJar, scratch: Path, mirror: str | None) -> Path:
    """Fetch and verify one jar in ``scratch``. jgo is imported only when a jar is missing."""
    try:
        from jgo.maven import MavenContext, PythonResolver
    except ModuleNotFoundError as error:
        raise EmbeddedBrokerError(
            f"{jar.file_name} is not in the cache, and the package that downloads it (jgo) is not installed",
            hint="pip install 'kstreams-repl[broker]', or connect to an existing cluster",
            path=str(cache_directory() / jar.file_name),
        ) from error
    mirror = mirror or os.environ.get(MIRROR_VARIABLE)
    context = MavenContext(
        resolver=PythonResolver(),
        repo_cache=scratch,
        remote_repos={"mirror": mirror.rstrip("/")} if mirror else None,
        timeout=30,
    )
    try:
        path = Path(context.project(jar.group, jar.artifact).at_version(jar.version).artifact(jar.classifier, jar.packaging).resolve())
    except Exception as error:
        raise EmbeddedBrokerError(
            f"{jar.file_name} could not be fetched: {error}",
            hint=f"the first start needs a Maven repository; set {MIRROR_VARIABLE} to a mirror, or {CACHE_VARIABLE} to a filled cache",
            path=str(cache_directory() / jar.file_name),
        ) from error
    if not jar.matches(path):
        raise EmbeddedBrokerError(
            f"the jar fetched as {jar.file_name} is not the one that jars.lock pins (size or sha256 differs); it was discarded",
            hint=f"check the mirror in {MIRROR_VARIABLE}" if mirror else "the download was damaged or tampered with; try again",
            path=jar.file_name,
        )
    return path


@contextmanager
def _progress_bar(total: int) -> Iterator[Progress]:
    from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TransferSpeedColumn

    columns = (TextColumn("fetching Kafka"), BarColumn(), DownloadColumn(), TransferSpeedColumn())
    with Progress(*columns, transient=True) as bar:
        task = bar.add_task("fetching", total=total)
        yield lambda name, done, of: bar.update(task, completed=done)
