"""Versions of an application: topology, time and source text. The session file keeps them, the journal's hashes confirm them."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Mapping
from dataclasses import replace
from typing import Any

from kstreams_repl.config import StreamsConfig
from kstreams_repl.display.diff_text import DiffText
from kstreams_repl.display.wording import counted, moment
from kstreams_repl.errors import SessionFileError, TopologyError
from kstreams_repl.serdes.by_topic import SETTING
from kstreams_repl.session.session_file import SavedVersion, SessionFiles, save_version
from kstreams_repl.session.source.code_changes import code_changes
from kstreams_repl.session.source.source_slice import Program
from kstreams_repl.spark.fencing.generation_fencing import VersionText
from kstreams_repl.topology.node_diff import whole_code
from kstreams_repl.topology.topology import Topology


class Version:
    """A topology that ran, or runs.

    Attributes:
        number: counts from 1.
        at: when it was deployed (seconds since 1970).
        source: the text that builds it; its first line holds its settings.
        complete: whether the text alone can rebuild it.
        migrated: stores whose rows were converted for it; the version before cannot read them.
        code: code of its nodes when it took effect (`topology.node_diff.whole_code`); None for one from before the kernel's restart.
    """

    def __init__(
        self,
        number: int,
        at: float,
        source: str,
        complete: bool,
        topology: Topology | Callable[[], Topology],
        migrated: tuple[str, ...] = (),
        code: Mapping[str, Any] | None = None,
    ) -> None:
        self.number = number
        self.at = at
        self.source = source
        self.complete = complete
        self.migrated = migrated
        self.code = code
        self._topology = topology

    @property
    def topology(self) -> Topology:
        """The topology. That of a version from before the kernel's restart is built from the source text on first access."""
        if callable(self._topology):
            self._topology = self._topology()
        return self._topology

    def diff(self, before: Version) -> DiffText:
        """Return what changed in the functions' text from `before` to this version, as unified diffs.

        Added or removed nodes are shown whole.

        Raises:
            SessionFileError: a version is from before the kernel's restart, and its text does not rebuild it.

        Example:
            >>> app.versions[-1].diff(app.versions[-2])       # doctest: +SKIP
        """
        return code_changes(before.topology, self.topology, before=f"version {before.number}", after=f"version {self.number}")

    def __repr__(self) -> str:
        lines = counted(len(self.source.splitlines()), "line")
        return f"Version({self.number}, {moment(self.at)}, {lines}{'' if self.complete else ', for reading only'})"


class VersionHistory:
    """The versions of one application, the present one last, and their file."""

    def __init__(self, files: SessionFiles, application: str) -> None:
        self._files = files
        self._application = application
        self._saved: list[SavedVersion] = []
        self.versions: list[Version] = []

    def load(self, config: StreamsConfig) -> None:
        """Load what an earlier kernel stored; `session_file.confirm` decides whether it may be executed."""
        self._saved = list(self._files.read(self._application).versions)
        self.versions = [self._loaded(saved, config) for saved in self._saved]

    def continue_or_begin(self, config: StreamsConfig) -> None:
        """Load as `load`; start without versions if the file is not trusted, so that the next version replaces it."""
        try:
            self.load(config)
        except SessionFileError:
            self._saved, self.versions = [], []

    def keep(
        self, program: Program, topology: Topology, config: StreamsConfig, *, migrated: Collection[str] = ()
    ) -> VersionText:
        """Add a version as the present one and write the file. Keep the present one when nothing changes.

        Args:
            migrated: stores whose rows are converted for it.
        """
        description, code = str(topology.describe()), whole_code(topology)
        number = (self.versions[-1].number if self.versions else 0) + 1
        saved = replace(save_version(number, int(time.time() * 1000), program, description, config), migrated=tuple(migrated))
        last = self._saved[-1] if self._saved else None
        same = last is not None and (last.text, last.unsaved) == (saved.text, saved.unsaved)
        if last is not None and same and not program.missing and not migrated:
            self.versions[-1] = Version(last.number, last.at_ms / 1000, last.text, True, topology, last.migrated, code)
            saved = last
        else:
            self._saved.append(saved)
            self.versions.append(Version(number, saved.at_ms / 1000, saved.text, not saved.missing, topology, saved.migrated, code))
            self._files.write(self._application, self._saved)
        return VersionText(saved.number, saved.text, description)

    def forget_last(self) -> None:
        """Remove the last version, which never ran."""
        self._saved.pop()
        self.versions.pop()
        self._files.write(self._application, self._saved)

    def as_it_ran(self, version: Version, config: StreamsConfig) -> Topology:
        """Return the topology of a version with the code that ran.

        If functions or values of the notebook that it reads have changed since, it is rebuilt from its text.

        Raises:
            TopologyError: they have changed, and its text is not complete.
            SessionFileError: its text does not rebuild it.
        """
        topology, saved = version.topology, self.saved(version.number)
        if version.code is None or version.code == whole_code(topology):
            return topology
        if saved is None or saved.missing:
            raise TopologyError(
                f"version {version.number} of {self._application} cannot be rebuilt: functions or values that it uses have changed, and "
                "its text is not complete",
                hint="define them as they were, then app.edit(builder)",
                application=self._application,
            )
        return make_topology(saved, self._application, config)

    def saved(self, number: int) -> SavedVersion | None:
        return next((saved for saved in self._saved if saved.number == number), None)

    def present(self, number: int) -> None:
        """Drop the versions after `number`: they were written to the file and never reached the journal."""
        self._saved = [saved for saved in self._saved if saved.number <= number]
        self.versions = [version for version in self.versions if version.number <= number]

    def only(self, numbers: Collection[int]) -> None:
        """Drop all versions but those with these numbers."""
        self._saved = [saved for saved in self._saved if saved.number in numbers]
        self.versions = [version for version in self.versions if version.number in numbers]

    def _loaded(self, saved: SavedVersion, config: StreamsConfig) -> Version:
        return Version(
            saved.number,
            saved.at_ms / 1000,
            saved.text,
            not saved.missing,
            lambda: make_topology(saved, self._application, config),
            saved.migrated,
        )


def make_topology(saved: SavedVersion, application: str, config: Any) -> Topology:
    """Execute a version's text. The caller has checked that the text may be executed.

    Raises:
        SessionFileError: names are missing from it, it raises, or it builds another topology than the one that ran.
    """
    hint = f"give the topology of your notebook: session.attach({application!r}, builder)"
    if saved.missing:
        raise SessionFileError(
            f"the text of version {saved.number} of {application!r} does not define {', '.join(saved.missing)}",
            hint=hint,
            application=application,
            missing=list(saved.missing),
        )
    try:
        settings = {**(config or {}), SETTING: saved.settings.get(SETTING)}  # the version's own serdes
        topology = saved.program.run(settings, name=f"{application} version {saved.number}")
    except Exception as error:
        raise SessionFileError(
            f"the text of version {saved.number} of {application!r} raised {type(error).__name__}: {error}",
            hint=hint,
            application=application,
        ) from error
    if str(topology.describe()) != saved.description:
        raise SessionFileError(
            f"the text of version {saved.number} of {application!r} builds another topology than the one that ran",
            hint=f"it depends on a module or file that has changed; {hint}",
            application=application,
        )
    return topology
