"""The process from which Spark's Python daemons are forked: it imports the workers' modules once, and while Spark's JVM starts.

Spark starts a daemon for each pool of workers, that is for each running application, and each would import the same modules: a second of
processor time, and 45 MB that it shares with no other. So a local Spark has a *fork server*, which the driver starts together with the JVM.
The process that the JVM starts as a daemon only *stands in*: it passes its environment and its standard streams to the server, whose next
fork is the daemon, and waits for its end.

1. The server listens before it imports: a request waits for it. 2. A process that would import other modules (another search path, say) is
not served. 3. A daemon tells its stand-in its process id before it touches a stream: a stand-in without an answer is the daemon itself.
4. The server ends with the JVM, which alone holds the other end of its standard input; a daemon ends by its own streams, as always.
"""

from __future__ import annotations

import json
import os
import select
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from typing import IO, NoReturn

from kstreams_repl.system.process_info import EXECUTOR_VARIABLE
from kstreams_repl.system.types import JsonMapping, JsonObject

DAEMON_MODULE = "kstreams_repl.host.spark.startup.daemon"
"""The module of the daemons, which calls `serve` if it is started without arguments."""
PATH_VARIABLE = "KSTREAMS_FORK_SERVER"
"""The environment variable with the path of the server's socket, in a directory of this user."""

_OF_SPARK = ("KSTREAMS_", "PYSPARK_", "PYTHON", "SPARK_", "_PYSPARK", "_SPARK")
_OF_SPARK_AND_SHELL = frozenset({"OMP_NUM_THREADS", "OLDPWD", "PWD", "SHLVL", "_"})
"""Environment variables that Spark and the shell of its start script set; what of Python's matters is compared itself."""
_HEADER_BYTES, _STREAMS, _SECONDS = 8, (0, 1, 2), 30.0


@contextmanager
def forking(environment: Mapping[str, str], log: IO[bytes]) -> Iterator[tuple[int, ...]]:
    """Start a server if the environment names its socket; it runs until the descriptors that this yields are closed everywhere."""
    if PATH_VARIABLE not in environment:
        yield ()
        return
    reading, held = os.pipe()
    try:
        own = {**environment, "PYTHONHASHSEED": "0", "PYTHONUNBUFFERED": "YES", "OMP_NUM_THREADS": "1"}  # as Spark sets them
        command = [environment["PYSPARK_PYTHON"], "-m", DAEMON_MODULE]
        server = subprocess.Popen(command, env=own, stdin=reading, stdout=subprocess.DEVNULL, stderr=log, start_new_session=True)
        threading.Thread(target=server.wait, name="await-fork-server", daemon=True).start()
        yield (held,)
    finally:
        os.close(reading)
        os.close(held)


def _start() -> JsonObject:
    """Return how this process was started, by which a server recognises the processes that would import the same modules."""
    spark = os.environ.get("SPARK_HOME", "/nowhere") + os.sep
    return {
        "python": [sys.executable, *sys.flags, hash("seed")],
        "path": list(dict.fromkeys(place for place in sys.path if not place.startswith(spark))),
        "directory": os.getcwd(),
        "environment": {
            name: value
            for name, value in os.environ.items()
            if not name.startswith(_OF_SPARK) and name not in _OF_SPARK_AND_SHELL
        },
    }


# ---- the stand-in


def stand_in() -> None:
    """Wait for the end of a daemon that the server has forked in place of this process, which ends then; return if there is none."""
    os.environ[EXECUTOR_VARIABLE] = str(os.getppid())
    path = os.environ.get(PATH_VARIABLE)
    if path is None:
        return
    connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        connection.settimeout(_SECONDS)
        connection.connect(path)
        content = json.dumps({"start": _start(), "arguments": sys.argv, "path": sys.path, "environment": dict(os.environ)}).encode()
        socket.send_fds(connection, [len(content).to_bytes(_HEADER_BYTES, "big")], _STREAMS)
        connection.sendall(content)
        daemon = int.from_bytes(_read(connection, _HEADER_BYTES), "big")
        connection.settimeout(None)
    except OSError:  # no server, or one that has ended or does not serve this process
        connection.close()
        return
    _await_end(connection, daemon)


def _await_end(connection: socket.socket, daemon: int) -> NoReturn:
    """Wait for the daemon's end, and pass Spark's request to end on to it."""
    signal.signal(signal.SIGTERM, lambda *_: os.kill(daemon, signal.SIGTERM))
    with suppress(ConnectionError):
        connection.recv(1)  # it sends no more: this returns at its end
    os._exit(0)


# ---- the server


def serve(import_modules: Callable[[], None]) -> None:
    """Import the modules, and fork daemons until the standard input is closed; returns in each of them."""
    own = _start()  # before the imports, which set environment variables
    path = os.environ[PATH_VARIABLE]
    with suppress(FileNotFoundError):
        os.unlink(path)  # of an earlier server
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    listener.bind(path)
    listener.listen()
    import_modules()
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    poller = select.poll()
    poller.register(0, 0)  # only its end
    poller.register(listener, select.POLLIN)
    while True:
        if any(descriptor == 0 for descriptor, _ in poller.poll()):
            os._exit(0)
        connection, _ = listener.accept()
        with connection, suppress(OSError, ValueError):
            if _fork(connection, own):
                listener.close()
                return


def _fork(connection: socket.socket, own: JsonMapping) -> bool:
    """Fork a daemon for the stand-in at the other end; return whether this process is the fork."""
    connection.settimeout(_SECONDS)
    header, streams, _, _ = socket.recv_fds(connection, _HEADER_BYTES, len(_STREAMS))
    try:
        request = json.loads(_read(connection, int.from_bytes(header, "big")))
        if request["start"] != own or os.fork():
            return False
        try:
            _take_over(connection, streams, request)
        except BaseException:
            os._exit(1)  # it must not serve
        return True
    finally:
        for stream in streams:
            os.close(stream)


def _take_over(connection: socket.socket, streams: list[int], request: JsonMapping) -> None:
    """Make a fork of the server the daemon of a stand-in."""
    connection.sendall(os.getpid().to_bytes(_HEADER_BYTES, "big"))
    for own, given in zip(_STREAMS, streams, strict=True):
        os.dup2(given, own)
    sys.argv[:], sys.path[:] = request["arguments"], request["path"]
    os.environ.update(request["environment"])
    held = os.dup(connection.fileno())  # the end of this process closes it, which the stand-in sees, unless a worker has it too
    os.register_at_fork(after_in_child=lambda: os.close(held))


def _read(connection: socket.socket, count: int) -> bytes:
    content = b""
    while len(content) < count:
        part = connection.recv(count - len(content))
        if not part:
            raise ConnectionError("the other end has closed the connection")
        content += part
    return content
