"""Versions of an application: topology, time and source text. The session file keeps them, the journal's hashes confirm them.

The topology of a version from before the kernel's restart is the pickled one that ran; no statement of the user's cells is executed for
it. Only where that cannot be loaded (another Python, its file is lost) the text runs.
"""

from __future__ import annotations

import hashlib
import linecache
import time
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import replace

from kstreams_repl.engine.config import StreamsConfig
from kstreams_repl.engine.serdes.by_topic import SETTING
from kstreams_repl.engine.topology.differences.fingerprint import canonical
from kstreams_repl.engine.topology.differences.node_diff import whole_code
from kstreams_repl.engine.topology.topology import Topology
from kstreams_repl.host.spark.fencing.generation_fencing import VersionText
from kstreams_repl.pictures.diff_text import DiffText
from kstreams_repl.pictures.frames import Frames
from kstreams_repl.pictures.table import Table
from kstreams_repl.pictures.wording import counted, moment
from kstreams_repl.repl.session.application.edits.topology_resolution import topology_of
from kstreams_repl.repl.session.session_file import (
    PYTHON,
    Closure,
    SavedVersion,
    SessionFiles,
    closure_of,
    confirm,
    runs_the_same,
    save_version,
)
from kstreams_repl.repl.session.source.code_changes import code_changes
from kstreams_repl.repl.session.source.source_slice import Program, program_of
from kstreams_repl.system.errors import KStreamsError, SessionFileError


class Version:
    """A topology that ran, or runs.

    Attributes:
        number: counts from 1.
        at: when it was deployed (seconds since 1970).
        source: the text that builds it; its first line holds its settings, the second names the file of the topology that ran.
        complete: whether the text alone can rebuild it, as an export does.
        migrated: stores whose rows were converted for it; the version before cannot read them.
        promoted: the fork that it was; "": it was none.
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
        code: Mapping[str, object] | None = None,
        promoted: str = "",
    ) -> None:
        self.number = number
        self.promoted = promoted
        self.at = at
        self.source = source
        self.complete = complete
        self.migrated = migrated
        self.code = code
        self._topology = topology

    @property
    def topology(self) -> Topology:
        """The topology. That of a version from before the kernel's restart is loaded on first access, as it ran."""
        if callable(self._topology):
            self._topology = self._topology()
        return self._topology

    def diff(self, before: Version) -> DiffText:
        """Return what changed in the functions' text from `before` to this version, as unified diffs.

        Added or removed nodes are shown whole.

        Raises:
            SessionFileError: a version is from before the kernel's restart, and cannot be loaded.

        Example:
            >>> app.versions[-1].diff(app.versions[-2])       # doctest: +SKIP
        """
        return code_changes(before.topology, self.topology, before=f"version {before.number}", after=f"version {self.number}")

    def __repr__(self) -> str:
        lines = counted(len(self.source.splitlines()), "line")
        promoted = f", promoted from fork {self.promoted!r}" if self.promoted else ""
        return f"Version({self.number}, {moment(self.at)}, {lines}{promoted}{'' if self.complete else ', for reading only'})"


class Versions(Frames, list[Version]):
    """The versions of an application, the present one last, displayed as a tree: with its forks, each below the version that it was made
    from.

    Args:
        forks: of the application that there are now: name, version, time (seconds since 1970).
    """

    def __init__(self, versions: Iterable[Version] = (), forks: Iterable[tuple[str, int, float]] = ()) -> None:
        super().__init__(versions)
        self._forks = sorted(forks, key=lambda fork: fork[2])

    def table(self) -> Table:
        """Return one row for each version and fork.

        Example:
            >>> app.versions.table().rows[0][0]
            'version 1'
        """
        rows: list[tuple[object, ...]] = []
        for version in self:
            what = f"promoted from fork {version.promoted}" if version.promoted else ""
            rows.append((f"version {version.number}", moment(version.at), what or ("" if version.complete else "for reading only")))
            rows += [(f"└ fork {name}", moment(at), "") for name, number, at in self._forks if number == version.number]
        return Table.of(("version", "since", ""), rows)

    def __repr__(self) -> str:
        return list.__repr__(self)

    def _repr_mimebundle_(self, include: object = None, exclude: object = None) -> dict[str, str]:
        return self.table()._repr_mimebundle_()


class VersionHistory:
    """The versions of one application, the present one last, and their files.

    Args:
        hashes: returns the journal's hash of each version's text. Versions of an earlier kernel are loaded only if it confirms them; None:
            the caller has confirmed them.
    """

    def __init__(
        self, files: SessionFiles, application: str, hashes: Callable[[], Mapping[int, str]] | None = None
    ) -> None:
        self._files = files
        self._application = application
        self._hashes = hashes
        self._saved: list[SavedVersion] = []
        self.versions: list[Version] = []

    def load(self, config: StreamsConfig) -> None:
        """Load what an earlier kernel stored; a topology of it only when it is needed, and the journal confirms it."""
        self._saved = list(self._files.read(self._application).versions)
        self.versions = [self._loaded(saved, config) for saved in self._saved]

    def continue_or_begin(self, config: StreamsConfig) -> None:
        """Load as `load`; start without versions if the file is not trusted, so that the next version replaces it."""
        try:
            self.load(config)
        except SessionFileError:
            self._saved, self.versions = [], []

    def keep(
        self, program: Program, topology: Topology, config: StreamsConfig, *, migrated: Collection[str] = (), promoted: str = ""
    ) -> VersionText:
        """Add a version as the present one and write the file. Keep the present one when nothing changes.

        Args:
            migrated: stores whose rows are converted for it.
            promoted: the fork that it was.
        """
        from kstreams_repl.host.spark.planning.plan_serialization import pack_topology

        description, code = str(topology.describe()), whole_code(topology)
        number = (self.versions[-1].number if self.versions else 0) + 1
        content = pack_topology(topology, program.lines)
        of_code = hashlib.sha256(canonical(tuple(sorted(code.items()))).encode()).hexdigest()
        closure = Closure(hashlib.sha256(content).hexdigest(), of_code, PYTHON)
        self._files.lines[closure.digest] = program.lines
        saved = save_version(number, int(time.time() * 1000), program, description, config, closure)
        saved = replace(saved, migrated=tuple(migrated), promoted=promoted)
        last = self._saved[-1] if self._saved else None
        if last is not None and runs_the_same(last, saved) and not (program.missing or migrated or promoted) and self._trusts(last):
            self.versions[-1] = Version(last.number, last.at_ms / 1000, last.text, True, topology, last.migrated, code)
            saved = last
        else:
            self._saved.append(saved)
            made = Version(number, saved.at_ms / 1000, saved.text, not saved.missing, topology, saved.migrated, code, promoted)
            self.versions.append(made)
            self._files.trusted.add((self._application, number, saved.program.hash))
            self._files.write_closure(self._application, content)
            self._files.write(self._application, self._saved)
        return VersionText(saved.number, saved.text, description)

    def forget_last(self) -> None:
        """Remove the last version, which never ran."""
        self._saved.pop()
        self.versions.pop()
        self._files.write(self._application, self._saved)

    def as_it_ran(self, version: Version, config: StreamsConfig) -> Topology:
        """Return the topology of a version with the code that ran.

        If functions or values of the notebook that it reads have changed since, it is loaded from its file.

        Raises:
            SessionFileError: it cannot be loaded.
        """
        topology, saved = version.topology, self.saved(version.number)
        if saved is None or version.code is None or version.code == whole_code(topology):
            return topology
        return make_topology(self._files, saved, self._application, config)

    def saved(self, number: int) -> SavedVersion | None:
        return next((saved for saved in self._saved if saved.number == number), None)

    def program(self, number: int | None = None) -> Program:
        """Return the source text of a version, and its lines if it was written or loaded here; None: of the present one."""
        saved = self.saved(number) if number is not None else self._saved[-1] if self._saved else None
        if saved is None:
            return Program("", ("its text",))
        closure = closure_of(saved)
        return replace(saved.topology_program, lines={} if closure is None else self._files.lines.get(closure.digest, {}))

    def present(self, number: int) -> None:
        """Drop the versions after `number`: they were written to the file and never reached the journal."""
        self._saved = [saved for saved in self._saved if saved.number <= number]
        self.versions = [version for version in self.versions if version.number <= number]

    def only(self, hashes: Mapping[int, str]) -> None:
        """Drop all versions but those of which the journal has a hash."""
        self._hashes = lambda: hashes
        self._saved = [saved for saved in self._saved if saved.number in hashes]
        self.versions = [version for version in self.versions if version.number in hashes]

    def _loaded(self, saved: SavedVersion, config: StreamsConfig) -> Version:
        return Version(
            saved.number,
            saved.at_ms / 1000,
            saved.text,
            not saved.missing,
            lambda: self._made(saved, config),
            saved.migrated,
            promoted=saved.promoted,
        )

    def _made(self, saved: SavedVersion, config: StreamsConfig) -> Topology:
        self._confirm(saved)
        return make_topology(self._files, saved, self._application, config)

    def _confirm(self, saved: SavedVersion) -> None:
        key = (self._application, saved.number, saved.program.hash)
        if self._hashes is not None and key not in self._files.trusted:
            confirm(saved, self._hashes(), self._application, str(self._files.path(self._application)))
            self._files.trusted.add(key)

    def _trusts(self, saved: SavedVersion) -> bool:
        try:
            self._confirm(saved)
        except KStreamsError:  # no journal, or another text's hash
            return False
        return True


def program_that_runs(
    definition: object, topology: Topology, code: Mapping[str, object], config: StreamsConfig, variables: Mapping[str, object] | None
) -> Program | None:
    """Return the program of a definition, if it builds the topology with the code that is about to run, and is complete; else None."""
    if definition is None:
        return None
    try:
        built = topology_of(definition, config)
    except KStreamsError:
        return None
    if str(built.describe()) != str(topology.describe()) or whole_code(built) != code:
        return None
    program = program_of(definition, topology, variables)
    return None if program.missing else program


def make_topology(files: SessionFiles, saved: SavedVersion, application: str, config: Mapping[str, object] | None) -> Topology:
    """Return the topology of a version as it ran. The caller has checked that the journal confirms it, or that it is to be trusted.

    Raises:
        SessionFileError: neither its file can be loaded nor its text rebuilds it, or that gives another topology than the one that ran.
    """
    hint = f"give the topology of your notebook: session.attach({application!r}, builder)"
    what = f"version {saved.number} of {application!r}"
    topology, lost = _unpacked(files, saved, application)
    if topology is None and saved.missing:
        raise SessionFileError(
            f"{what} cannot be loaded: {lost}; and its text does not define {', '.join(saved.missing)}",
            hint=hint,
            application=application,
            missing=list(saved.missing),
        )
    if topology is None:
        settings = {**(config or {}), SETTING: saved.settings.get(SETTING)}  # the version's own serdes
        try:
            topology = saved.program.run(settings, name=f"{application} version {saved.number}")
        except Exception as error:
            raise SessionFileError(
                f"the text of {what} raised {type(error).__name__}: {error}", hint=hint, application=application
            ) from error
    if str(topology.describe()) != saved.description:
        raise SessionFileError(
            f"the text of {what} builds another topology than the one that ran",
            hint=f"it depends on a module or file that has changed; {hint}",
            application=application,
        )
    return topology


def _unpacked(files: SessionFiles, saved: SavedVersion, application: str) -> tuple[Topology | None, str]:
    """Return the stored topology, or None and why there is none.

    Raises:
        SessionFileError: its file is not the one that was written.
    """
    closure = closure_of(saved)
    if closure is None or closure.python != PYTHON:
        return None, "no topology was stored with it" if closure is None else f"it is of {closure.python}, this is {PYTHON}"
    content = files.read_closure(application, closure.digest)
    if content is None:
        return None, "the file of its topology is missing"
    from kstreams_repl.host.spark.planning.plan_serialization import unpack_topology

    try:
        topology, lines = unpack_topology(content)
    except Exception as error:  # a module that it imports is missing, or has changed
        return None, f"{type(error).__name__}: {error}"
    files.lines[closure.digest] = lines
    for file, texts in lines.items():
        if not linecache.getlines(file):  # a cell of another kernel
            shown = [""] * max(number + text.count("\n") for number, text in texts.items())
            for number, text in texts.items():
                shown[number - 1 : number + text.count("\n")] = text.split("\n")
            linecache.cache[file] = (0, None, [f"{line}\n" for line in shown], file)
    return topology, ""
