"""How ``-n`` divides the tests: by file.

While there are files left that start nothing, only one process runs those that start a broker, Spark or a browser, so that two of these
rarely compete for two cores; after that all do, each with a broker and a Spark of its own. tests/cluster stays together and comes before
the others in its process: it needs a Spark context of its own.
"""

from __future__ import annotations

from xdist.scheduler import LoadScopeScheduling
from xdist.workermanage import WorkerController

CHEAP = ("tests/unit/", "tests/conformance/")
LONGEST_FIRST = ("cluster", "session", "faults", "spark", "browser", "kafka", "integration", "notebooks")


class ByFile(LoadScopeScheduling):
    """A scope is a file, or tests/cluster."""

    def _split_scope(self, nodeid: str) -> str:
        file = nodeid.partition("::")[0]
        return "tests/cluster" if file.startswith("tests/cluster/") else file

    def _assign_work_unit(self, node: WorkerController) -> None:
        self.workqueue.move_to_end(self._next_for(node), last=False)
        super()._assign_work_unit(node)

    def _next_for(self, node: WorkerController) -> str:
        others = (work for other, work in self.assigned_work.items() if other is not node)
        busy = any(not scope.startswith(CHEAP) and not all(tests.values()) for work in others for scope, tests in work.items())

        def rank(scope: str) -> tuple[bool, int]:
            folder = scope.split("/")[1]
            return (folder in LONGEST_FIRST) == busy, LONGEST_FIRST.index(folder) if folder in LONGEST_FIRST else len(LONGEST_FIRST)

        return min(self.workqueue, key=rank)
