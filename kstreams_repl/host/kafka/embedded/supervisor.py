"""The embedded broker's watchdog: a small process between the owner and the JVM, run as a script with the standard library only.

It starts the JVM as its child and then waits for the first of these events:

1. end-of-file on the pipe whose only writer is the owner: the owner stopped the broker, or died (kill -9 included);
2. its parent is no longer the owner (a forked child of the owner may still hold the pipe's writing end);
3. SIGTERM; 4. the end of the JVM.

It then ends the JVM (SIGTERM, after a grace period SIGKILL) and, once the owner has ended too, removes a temporary directory. A *detached*
broker has no owner: only 3 and 4 apply. If the supervisor itself is killed, the kernel kills the JVM (PR_SET_PDEATHSIG, set in the child;
the signal is tied to the *thread* that forked, so the JVM is started from the main thread, which lives as long as this process).

The supervisor runs in its own session, so that Ctrl-C in a notebook does not reach the broker. The lock file is an inherited descriptor
that only the JVM keeps open.
"""

from __future__ import annotations

import ctypes
import json
import os
import select
import shutil
import signal
import subprocess
import sys
import threading
import time
from typing import Any

GRACE_SECONDS = 10.0
PARENT_CHECK_SECONDS = 0.5
REMOVE_SECONDS = 15.0


def _die_with_parent() -> None:
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(1, signal.SIGKILL, 0, 0, 0)


def _write_record(path: str, record: dict[str, object]) -> None:
    scratch = f"{path}.{os.getpid()}.new"
    with os.fdopen(os.open(scratch, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "w") as stream:
        json.dump(record, stream)
    os.replace(scratch, path)


def _start_jvm(plan: dict[str, Any]) -> subprocess.Popen[bytes]:
    with open(plan["output"], "wb") as output:
        jvm = subprocess.Popen(
            plan["command"],
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            cwd=plan["directory"],
            pass_fds=[plan["lock"]],
            preexec_fn=_die_with_parent,
        )
    os.close(plan["lock"])
    return jvm


def _end(jvm: subprocess.Popen[bytes], grace: float) -> None:
    if jvm.poll() is None:
        jvm.terminate()
        try:
            jvm.wait(grace)
        except subprocess.TimeoutExpired:
            jvm.kill()
            jvm.wait()


def _remove(directory: str) -> None:
    """Remove a temporary directory, retrying for some seconds: a session keeps its state there too, and when its process is killed, its
    Spark may still write into the directory until it has ended.
    """
    deadline = time.monotonic() + REMOVE_SECONDS
    while True:
        shutil.rmtree(directory, ignore_errors=True)
        if not os.path.exists(directory) or time.monotonic() > deadline:
            return
        time.sleep(0.1)


def supervise(plan: dict[str, Any]) -> None:
    """Run one broker until it and its owner have ended; ``plan`` is written by `broker.py`."""
    if plan["owner_pipe"] is None and os.fork():
        os._exit(0)  # detached: not a child of the owner, so the owner need not wait for it
    wake_read, wake_write = os.pipe()
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGHUP, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, lambda *_: os.write(wake_write, b"t"))
    try:
        jvm = _start_jvm(plan)
    except OSError as error:
        with open(plan["output"], "a") as output:
            output.write(f"{plan['command'][0]}: {error.strerror}\n")
        return
    _write_record(plan["record_path"], {**plan["record"], "supervisor_pid": os.getpid(), "jvm_pid": jvm.pid})
    if plan["ready"] is not None:
        os.close(plan["ready"])  # signals the owner that the record is written

    def await_end() -> None:
        jvm.wait()
        os.write(wake_write, b"e")

    threading.Thread(target=await_end, daemon=True).start()
    owner_pipe, owner = plan["owner_pipe"], plan["record"]["owner_pid"]
    waiting = [wake_read] if owner_pipe is None else [wake_read, owner_pipe]
    command = b""
    while True:
        ready, _, _ = select.select(waiting, [], [], PARENT_CHECK_SECONDS if owner_pipe is not None else None)
        if owner_pipe in ready:
            command = os.read(owner_pipe, 1)
            break
        if owner_pipe is not None and os.getppid() != owner:
            break
        if wake_read in ready:
            if os.read(wake_read, 1) == b"t" or owner_pipe is None:
                break
            # The JVM ended by itself: wait for the owner's end, which may require removing a temporary directory.
    _end(jvm, plan["grace"])
    if plan["remove"] and command != b"k":
        _remove(plan["directory"])


if __name__ == "__main__":
    supervise(json.loads(sys.argv[1]))
