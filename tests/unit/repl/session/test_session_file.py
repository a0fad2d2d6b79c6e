"""The session file: 0600, read as what it is or not at all, executed only when the journal's hash confirms it."""

from __future__ import annotations

import errno
import json
import os
from pathlib import Path
from typing import Any

import pytest

from kstreams_repl import StreamsConfig, serdes
from kstreams_repl.repl.session.application.edits.versions import VersionHistory, make_topology
from kstreams_repl.repl.session.session_file import SavedVersion, SessionFiles, confirm, save_version
from kstreams_repl.repl.session.source.source_slice import Program
from kstreams_repl.system.errors import InvalidNameError, SessionFileError

TEXT = "import kstreams_repl\n__topology__ = kstreams_repl.StreamsBuilder()\n__topology__.stream('words')\n"


def made(files: SessionFiles) -> tuple[VersionHistory, StreamsConfig]:
    config = StreamsConfig({"application.id": "app", "commit.interval.ms": 50, "default.value.serde": serdes.string})
    history = VersionHistory(files, "app")
    program = Program(TEXT)
    history.keep(program, program.run(), config)
    return history, config


def test_versions_are_kept_and_loaded(tmp_path: Path) -> None:
    files = SessionFiles(tmp_path)
    made(files)
    path = files.path("app")
    assert path.stat().st_mode & 0o777 == 0o600 and path.parent.stat().st_mode & 0o777 == 0o700
    (saved,) = files.read("app").versions
    assert saved.settings == {"commit.interval.ms": 50, "default.value.serde": "string"}
    again = VersionHistory(files, "app")
    again.load(StreamsConfig({"application.id": "app"}))
    assert again.versions[0].topology.source_topics() == ("words",)


def test_the_same_text_is_the_same_version(tmp_path: Path) -> None:
    files = SessionFiles(tmp_path)
    history, config = made(files)
    history.keep(Program(TEXT), Program(TEXT).run(), config)
    assert [version.number for version in history.versions] == [1]
    other = Program(TEXT + "\n# changed\n")
    history.keep(other, other.run(), config)
    assert [version.number for version in history.versions] == [1, 2]


def test_versions_from_before_a_cleanup_stay_those_of_the_session_that_wrote_or_confirmed_them(tmp_path: Path) -> None:
    """After cleanup and deploy in one kernel, rollback was refused: the deleted journal could not confirm what the kernel itself wrote."""
    files, journal, config = SessionFiles(tmp_path), {}, StreamsConfig({"application.id": "app"})
    history = VersionHistory(files, "app", lambda: journal)
    for text in (TEXT, TEXT + "\n# changed\n"):
        history.keep(Program(text), Program(text).run(), config)
    journal.update({number: history.saved(number).program.hash for number in (1, 2)})  # type: ignore[union-attr]
    attached = SessionFiles(tmp_path)
    confirming = VersionHistory(attached, "app", lambda: journal)
    confirming.load(config)
    assert confirming.versions[0].topology.source_topics() == ("words",)
    journal.clear()
    for known in (files, attached):
        again = VersionHistory(known, "app", lambda: journal)
        again.load(config)
        assert again.versions[0].topology.source_topics() == ("words",)
    stranger = VersionHistory(SessionFiles(tmp_path), "app", lambda: journal)
    stranger.load(config)
    with pytest.raises(SessionFileError, match=r"version 1 of 'app' in .* is not in the journal"):
        stranger.versions[0].topology  # noqa: B018
    files.write("app", [SavedVersion(1, 0, TEXT + "\nopen('x', 'w')\n", "")])  # another text under the same number
    for strange in (files, attached):
        again = VersionHistory(strange, "app", lambda: journal)
        again.load(config)
        with pytest.raises(SessionFileError, match=r"version 1 of 'app' in .* is not in the journal"):
            again.versions[0].topology  # noqa: B018


def test_settings_that_are_no_text_are_told_and_secrets_never_kept(tmp_path: Path) -> None:
    handler = {"production.exception.handler": lambda context, error: None}
    config = StreamsConfig({"application.id": "app", **handler, "sasl.password": "hunter2"})
    saved = save_version(1, 0, Program(TEXT), "", config)
    assert saved.unsaved == ("production.exception.handler",) and "hunter2" not in saved.text


def test_the_password_of_an_address_is_in_no_text_that_the_journal_gets(tmp_path: Path) -> None:
    config = StreamsConfig({"application.id": "app", "repl.snapshot.dir": "sftp://me:hunter2@host/dir", "commit.interval.ms": 50})
    saved = save_version(1, 0, Program(TEXT), "", config)
    assert "hunter2" not in saved.text and saved.unsaved == ("repl.snapshot.dir",) and saved.settings == {"commit.interval.ms": 50}
    assert "hunter2" not in repr(config) and "sftp://me:***@host/dir" in repr(config)
    plain = StreamsConfig({"application.id": "app", "repl.snapshot.dir": "s3://bucket/dir"})
    assert save_version(1, 0, Program(TEXT), "", plain).settings == {"repl.snapshot.dir": "s3://bucket/dir"}


def test_a_setting_that_comes_to_be_unsaved_makes_a_version(tmp_path: Path) -> None:
    history = VersionHistory(SessionFiles(tmp_path), "app")
    program = Program(TEXT)
    for settings in ({}, {"repl.snapshot.dir": "sftp://me:hunter2@host/dir"}):
        history.keep(program, program.run(), StreamsConfig({"application.id": "app", **settings}))
    assert [version.number for version in history.versions] == [1, 2]


@pytest.mark.parametrize("mode", [0o644, 0o660, 0o602])
def test_a_file_that_others_may_read_or_write_is_refused(tmp_path: Path, mode: int) -> None:
    files = SessionFiles(tmp_path)
    made(files)
    files.path("app").chmod(mode)
    with pytest.raises(SessionFileError, match=f"{mode:04o}"):
        files.read("app")


def test_a_link_is_not_followed(tmp_path: Path) -> None:
    files = SessionFiles(tmp_path)
    made(files)
    target = tmp_path / "elsewhere.json"
    files.path("app").rename(target)
    files.path("app").symlink_to(target)
    with pytest.raises(SessionFileError):
        files.read("app")


@pytest.mark.skipif(os.getuid() != 0, reason="only root can give a file away")
def test_a_file_of_somebody_else_is_refused(tmp_path: Path) -> None:
    files = SessionFiles(tmp_path)
    made(files)
    os.chown(files.path("app"), 12345, -1)
    with pytest.raises(SessionFileError, match="another user"):
        files.read("app")


HEAD = b'{"format": "kstreams-session", "version": 1, "application": '


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"\x80\x04\x95",
        b"[]",
        b'{"format": "other"}',
        HEAD + b'"other", "versions": []}',
        HEAD + b'"app", "versions": [{"number": "1"}]}',
        b"\xff" * 50,
    ],
)
def test_what_is_no_session_file_is_refused(tmp_path: Path, content: bytes) -> None:
    files = SessionFiles(tmp_path)
    made(files)
    files.path("app").write_bytes(content)
    with pytest.raises(SessionFileError):
        files.read("app")


def test_a_missing_file_says_what_to_do(tmp_path: Path) -> None:
    with pytest.raises(SessionFileError) as caught:
        SessionFiles(tmp_path).read("app")
    assert "session.attach('app', builder)" in (caught.value.hint or "")
    with pytest.raises(InvalidNameError):
        SessionFiles(tmp_path).path("../x")


def test_versions_that_the_journal_of_a_redeployed_application_does_not_know_are_no_history(tmp_path: Path) -> None:
    history, config = made(SessionFiles(tmp_path))
    other = Program(TEXT + "\n# after a cleanup\n")
    history.keep(other, other.run(), config)
    history.only({2: other.hash})
    assert [version.number for version in history.versions] == [2] and history.saved(1) is None


@pytest.mark.parametrize("field", ["text", "number"])
def test_a_changed_text_is_not_confirmed(tmp_path: Path, field: str) -> None:
    files = SessionFiles(tmp_path)
    made(files)
    (ran,) = files.read("app").versions
    said: dict[str, Any] = json.loads(files.path("app").read_text())
    said["versions"][0][field] = "import os\n" if field == "text" else 2
    files.path("app").write_text(json.dumps(said))
    (changed,) = files.read("app").versions
    confirm(ran, {1: ran.program.hash}, "app", "path")
    with pytest.raises(SessionFileError, match="hash|not in the journal"):
        confirm(changed, {1: ran.program.hash}, "app", "path")


def test_a_text_that_is_incomplete_raises_or_makes_something_else_is_told(tmp_path: Path) -> None:
    files = SessionFiles(tmp_path)
    with pytest.raises(SessionFileError, match="does not define limits"):
        make_topology(files, SavedVersion(1, 0, TEXT, "", ("limits",)), "app", None)
    with pytest.raises(SessionFileError, match="ZeroDivisionError"):
        make_topology(files, SavedVersion(1, 0, "1 / 0", ""), "app", None)
    with pytest.raises(SessionFileError, match="another topology"):
        make_topology(files, SavedVersion(1, 0, TEXT, "something else"), "app", None)


def test_a_file_that_cannot_be_written_is_told_and_the_one_of_before_stays(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A full disk was an OSError of a deploy's, and half a file lay beside the whole one."""
    files = SessionFiles(tmp_path)
    before = files.write("app", []).read_bytes()

    def full(file: int, mode: str) -> None:
        os.write(file, b"{")
        os.close(file)
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr("kstreams_repl.repl.session.session_file.os.fdopen", full)
    with pytest.raises(SessionFileError, match="cannot be written: No space left on device") as told:
        files.write("app", [])
    assert told.value.hint and told.value.path == str(files.path("app"))
    assert [(path.name, path.read_bytes()) for path in (tmp_path / "sessions").iterdir()] == [("app.json", before)]
