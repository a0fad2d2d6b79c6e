"""Running a query so that an interrupt ends it: DuckDB looks for Ctrl-C in some of its calls, and in others not before they are done."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import TypeVar

import duckdb

T = TypeVar("T")


def interruptible(database: duckdb.DuckDBPyConnection, call: Callable[[], T]) -> T:
    """The call's result, made on a thread; an interrupt of the waiting ends the query and is raised when it has ended."""
    found: list[T] = []
    failed: list[BaseException] = []
    done = threading.Event()  # an interrupted `join` takes a thread that runs for one that has ended (CPython 3.11)

    def work() -> None:
        try:
            found.append(call())
        except BaseException as error:  # handed to whoever waits
            failed.append(error)
        finally:
            done.set()

    thread = threading.Thread(target=work, name="kstreams-sql", daemon=True)
    thread.start()
    try:
        done.wait()
    except KeyboardInterrupt:
        while not done.is_set():  # it may not have begun to run the query when it is told to stop
            database.interrupt()
            done.wait(0.05)
        raise
    finally:
        if done.is_set():
            thread.join()
    if failed:
        raise failed[0]
    return found[0]
