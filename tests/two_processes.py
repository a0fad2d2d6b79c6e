"""How ``-n 2`` divides the tests: by folder what starts a broker, Spark or a browser, by file all else.

While there are cheap files left, only one process runs an expensive folder, so that two of those rarely compete for two cores; after that
both do, the longest folders first. tests/cluster comes before the others in its process: it needs a Spark context of its own.
"""

from __future__ import annotations

from xdist.scheduler import LoadScopeScheduling
from xdist.workermanage import WorkerController

CHEAP = ("tests/unit/", "tests/conformance/")
LONGEST_FIRST = ("cluster", "session", "faults", "spark", "browser", "kafka", "integration", "notebooks")


class ByFolder(LoadScopeScheduling):
    """A scope is a file of a cheap folder, or a whole expensive folder."""

    def _split_scope(self, nodeid: str) -> str:
        file = nodeid.partition("::")[0]
        return file if file.startswith(CHEAP) else file.split("/")[1]

    def _assign_work_unit(self, node: WorkerController) -> None:
        self.workqueue.move_to_end(self._next_for(node), last=False)
        super()._assign_work_unit(node)

    def _next_for(self, node: WorkerController) -> str:
        others = (work for other, work in self.assigned_work.items() if other is not node)
        busy = any(not scope.startswith(CHEAP) and not all(tests.values()) for work in others for scope, tests in work.items())

        def rank(scope: str) -> tuple[bool, int]:
            expensive = not scope.startswith(CHEAP)
            return expensive == busy, LONGEST_FIRST.index(scope) if scope in LONGEST_FIRST else len(LONGEST_FIRST)

        return min(self.workqueue, key=rank)
