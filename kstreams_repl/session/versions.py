"""The versions of an application: what ran, when, its source text; kept in the session file, confirmed by the journal's hashes."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Mapping
from dataclasses import replace
from typing import Any

from kstreams_repl.config import StreamsConfig
from kstreams_repl.errors import SessionFileError, TopologyError
from kstreams_repl.session.program import Program
from kstreams_repl.session.session_file import SavedVersion, SessionFiles, save_version
from kstreams_repl.spark.generations import VersionText
from kstreams_repl.topology.diff import whole_code
from kstreams_repl.topology.topology import Topology


class Version:
    """A topology that ran, or runs.

    Attributes:
        number: counts from 1.
        at: when it was deployed (seconds since 1970).
        source: the text that makes it; its first line are its settings.
        complete: whether the text alone can make it again.
        migrated: stores whose rows were converted for it; the version before cannot read them.
        code: what its nodes did when it was put in force (`topology.diff.whole_code`); None for one from before the kernel's restart.
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
        """The topology; of a version from before the kernel's restart it is made from the source text when it is first asked for."""
        if callable(self._topology):
            self._topology = self._topology()
        return self._topology

    def __repr__(self) -> str:
        at = time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(self.at))
        return f"Version({self.number}, {at}, {len(self.source.splitlines())} lines{'' if self.complete else ', for reading only'})"


class VersionHistory:
    """The versions of one application, the present one last, and their file."""

    def __init__(self, files: SessionFiles, application: str) -> None:
        self._files = files
        self._application = application
        self._saved: list[SavedVersion] = []
        self.versions: list[Version] = []

    def load(self, config: StreamsConfig) -> None:
        """Take over what an earlier kernel left; whether it may be run is another question (`session_file.confirm`)."""
        self._saved = list(self._files.read(self._application).versions)
        self.versions = [self._loaded(saved, config) for saved in self._saved]

    def continue_or_begin(self, config: StreamsConfig) -> None:
        """As `load`; a file that cannot be believed is replaced with the next version."""
        try:
            self.load(config)
        except SessionFileError:
            self._saved, self.versions = [], []

    def keep(
        self, program: Program, topology: Topology, config: StreamsConfig, *, migrated: Collection[str] = ()
    ) -> VersionText:
        """Put a version in, as the present one, and write the file. The present one stays when nothing changes.

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
        """Take the last version out again: it was never put to work."""
        self._saved.pop()
        self.versions.pop()
        self._files.write(self._application, self._saved)

    def as_it_ran(self, version: Version, config: StreamsConfig) -> Topology:
        """The topology of a version, as it was put in force. Functions and values of the notebook that it reads may be others by now:
        then it is made from its text.

        Raises:
            TopologyError: they are, and its text is not complete.
            SessionFileError: its text does not make it again.
        """
        topology, saved = version.topology, self.saved(version.number)
        if version.code is None or version.code == whole_code(topology):
            return topology
        if saved is None or saved.missing:
            raise TopologyError(
                f"functions or values that version {version.number} of {self._application} uses have changed since, and its text is not "
                "complete",
                hint="put them back as they were, and app.edit(builder)",
                application=self._application,
            )
        return make_topology(saved, self._application, config)

    def saved(self, number: int) -> SavedVersion | None:
        return next((saved for saved in self._saved if saved.number == number), None)

    def present(self, number: int) -> None:
        """Only versions up to this one are history: a later one was written down and never reached the journal."""
        self._saved = [saved for saved in self._saved if saved.number <= number]
        self.versions = [version for version in self.versions if version.number <= number]

    def only(self, numbers: Collection[int]) -> None:
        """Only versions of these numbers are history."""
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
    """Execute a version's text. The caller has seen to it that the text may be executed.

    Raises:
        SessionFileError: names are missing from it, it raises, or what it makes is not what ran.
    """
    hint = f"session.attach({application!r}, builder) with the topology of your notebook"
    if saved.missing:
        raise SessionFileError(
            f"the text of version {saved.number} of {application!r} lacks {', '.join(saved.missing)}",
            hint=hint,
            application=application,
            missing=list(saved.missing),
        )
    try:
        topology = saved.program.run(config, name=f"{application} version {saved.number}")
    except Exception as error:
        raise SessionFileError(
            f"the text of version {saved.number} of {application!r} raised {type(error).__name__}: {error}",
            hint=hint,
            application=application,
        ) from error
    if str(topology.describe()) != saved.description:
        raise SessionFileError(
            f"the text of version {saved.number} of {application!r} makes another topology than the one that ran",
            hint=f"it depends on something outside of itself (a module, a file); {hint}",
            application=application,
        )
    return topology
