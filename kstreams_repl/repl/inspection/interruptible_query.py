"""Run a query so that an interrupt ends it: some of DuckDB's calls check for Ctrl-C, others only when they are done."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import TypeVar

import duckdb

from kstreams_repl.system.interrupts import wait_interruptibly

T = TypeVar("T")


def interruptible(database: duckdb.DuckDBPyConnection, call: Callable[[], T]) -> T:
    """Return the result of a call made on a thread. An interrupt of the wait cancels the query and is raised when it has ended."""
    found: list[T] = []
    failed: list[BaseException] = []
    done = threading.Event()  # an interrupted `join` treats a running thread as ended (CPython 3.11)

    def work() -> None:
        try:
            found.append(call())
        except BaseException as error:  # passed to the waiting thread
            failed.append(error)
        finally:
            done.set()

    thread = threading.Thread(target=work, name="kstreams-sql", daemon=True)
    thread.start()
    try:
        wait_interruptibly(done)
    except KeyboardInterrupt:
        while not done.is_set():  # an interrupt has no effect before the query has started
            database.interrupt()
            done.wait(0.05)
        raise
    finally:
        if done.is_set():
            thread.join()
    if failed:
        raise failed[0]
    return found[0]
