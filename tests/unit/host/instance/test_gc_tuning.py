"""The collector of a worker ignores what existed before the first instance, and nothing that came later."""

from __future__ import annotations

import subprocess
import sys

SCRIPT = """
import gc, weakref
from kstreams_repl.host.instance.process.gc_tuning import free_closed, relax_collector

class Clients:
    def __init__(self):
        self.itself = self

relax_collector()
assert gc.get_freeze_count() > 0
clients = Clients()
gone = weakref.ref(clients)
relax_collector()  # the plan of an edit: the old instance exists still
del clients
free_closed()
assert gone() is None
"""


def test_an_instance_that_exists_at_the_plan_of_an_edit_is_freed_when_it_is_closed() -> None:
    """It kept some forty threads and fifteen sockets for each edit."""
    ended = subprocess.run([sys.executable, "-c", SCRIPT], capture_output=True, text=True, timeout=60)
    assert ended.returncode == 0, ended.stderr
