"""How ``-n 2`` divides the tests: file by file, so that both processes end together.

While there are cheap files left, only one process runs files that start a broker, Spark or a browser, so that two of those rarely compete
for two cores; after that both do. A process stays in its folder, for which it has started what the files share; the folders with the
longest tests come first, and at the end both take files of the last one. tests/cluster is never divided and comes before the others in its
process: it needs a Spark context of its own.
"""

from __future__ import annotations

from xdist.scheduler import LoadScopeScheduling
from xdist.workermanage import WorkerController

CHEAP = ("unit", "conformance")
UNDIVIDED = ("cluster",)
LONGEST_FIRST = ("cluster", "integration", "notebooks", "browser", "session", "faults", "spark", "kafka")


def folder_of(scope: str) -> str:
    return scope.removeprefix("tests/").partition("/")[0]


class ByFile(LoadScopeScheduling):
    """A scope is a file, or a whole folder that is not divided."""

    def _split_scope(self, nodeid: str) -> str:
        file = nodeid.partition("::")[0]
        return folder if (folder := folder_of(file)) in UNDIVIDED else file

    def _assign_work_unit(self, node: WorkerController) -> None:
        self.workqueue.move_to_end(self._next_for(node), last=False)
        super()._assign_work_unit(node)

    def _next_for(self, node: WorkerController) -> str:
        own = self._last_folder(node)
        others = {folder for other in self.assigned_work if other is not node and (folder := self._last_folder(other, running=True))}

        def rank(scope: str) -> tuple[bool, bool, bool, int]:
            folder = folder_of(scope)
            turn = LONGEST_FIRST.index(folder) if folder in LONGEST_FIRST else len(LONGEST_FIRST)
            return (folder not in CHEAP) == bool(others), folder != own, folder in others, turn

        return min(self.workqueue, key=rank)

    def _last_folder(self, node: WorkerController, *, running: bool = False) -> str | None:
        """The expensive folder of which a process was given something last; with `running`, if that is not done."""
        given = [
            folder_of(scope)
            for scope, tests in self.assigned_work[node].items()
            if folder_of(scope) not in CHEAP and not (running and all(tests.values()))
        ]
        return given[-1] if given else None
