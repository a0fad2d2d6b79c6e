"""Wait for a deployment: until it has ended, or until a condition holds."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import TYPE_CHECKING

from kstreams_repl.errors import ApplicationFailedError
from kstreams_repl.spark.deployment_state import Status

if TYPE_CHECKING:
    from kstreams_repl.spark.deployment import Deployment


def wait_for(
    deployment: Deployment, lock: threading.RLock, seconds: float | None, until: Callable[[Deployment], bool] | None
) -> bool:
    """Implement `Deployment.wait`.

    Args:
        lock: held while the deployment changes from one generation to the next.
    """
    deadline = None if seconds is None else time.monotonic() + seconds
    while True:
        if until is not None and until(deployment):
            return True
        if not _runs(deployment):
            with lock:  # it may be between two generations
                if _runs(deployment):
                    continue
            if until is None:
                return True
            error = deployment.error
            if error is not None:
                raise ApplicationFailedError(
                    f"{deployment.application_id} failed: {error.message}", hint=error.hint, **error.fields
                ) from error
            return False
        if deadline is not None and time.monotonic() >= deadline:
            return False
        time.sleep(0.01)


def _runs(deployment: Deployment) -> bool:
    return deployment.status is Status.RUNNING
