"""Checksums of pages: what is known when, and what of it is noticed."""

from __future__ import annotations

import os
import random
import shutil
from pathlib import Path

import lmdb
import pytest

from kstreams_repl.engine.stores.engine import page_checksums
from kstreams_repl.engine.stores.engine.lmdb import LmdbEnvironment
from kstreams_repl.engine.stores.engine.lmdb_pages import Meta, NotPagesError, PageFile
from kstreams_repl.system.errors import TaskCorruptedError


def opened(path: Path) -> LmdbEnvironment:
    environment = LmdbEnvironment(path, map_bytes=1 << 30)
    environment.take_ownership("me")
    return environment


def as_after_a_kill(path: Path, to: Path) -> Path:
    shutil.rmtree(to, ignore_errors=True)
    shutil.copytree(path, to)
    return to


def unknown(path: Path) -> list[int]:
    """Pages in use that have no checksum."""
    pages, known = PageFile(str(path / "data.mdb")), page_checksums._read(str(path))
    newest, _ = pages.metas()
    free = pages.free_pages(newest)
    pages.close()
    if known is None or known[1] != newest.transaction:
        return list(range(newest.last_page + 1))
    return [number for number in range(newest.last_page + 1) if number not in free and not known[2][number]]


@pytest.mark.parametrize("seed", range(3))
def test_after_each_commit_every_page_in_use_is_known_and_right(tmp_path: Path, seed: int) -> None:
    dice, environment = random.Random(seed), opened(tmp_path / "e")
    engines = [environment.engine(f"s{number}") for number in range(3)]
    for commit in range(25):
        for _ in range(dice.choice((1, 10, 300))):
            value = None if dice.random() < 0.3 else dice.randbytes(dice.choice((8, 40, 9_000)))
            dice.choice(engines).put(b"%d" % dice.randrange(500), value)
        environment.commit({"log-0": commit}, commit)
        copy = as_after_a_kill(tmp_path / "e", tmp_path / "copy")
        assert unknown(copy) == []
        page_checksums.check(str(copy))
    environment.close()


def test_what_a_restore_wrote_is_known_some_commits_later(tmp_path: Path) -> None:
    environment = opened(tmp_path / "e")
    environment.restore("e", [b"%06d" % i for i in range(60_000)], [b"v" * 50] * 60_000)
    assert unknown(tmp_path / "e")
    for commit in range(10):
        environment.engine("e").put(b"k", b"%d" % commit)
        environment.commit({}, commit)
    assert unknown(tmp_path / "e") == []
    environment.close()


def test_what_a_restore_wrote_is_known_after_a_close(tmp_path: Path) -> None:
    environment = opened(tmp_path / "e")
    environment.restore("e", [b"%06d" % i for i in range(60_000)], [b"v" * 50] * 60_000)
    environment.close()
    assert unknown(tmp_path / "e") == []


def test_the_pages_of_a_commit_whose_seal_is_missing_are_passed_over(tmp_path: Path) -> None:
    environment = opened(tmp_path / "e")
    for commit in range(5):
        environment.engine("e").put(b"%d" % commit, b"v" * 6_000)
        environment.commit({}, commit)
    earlier = (tmp_path / "e" / "data.pages").read_bytes()
    environment.engine("e").put(b"last", b"v" * 6_000)
    environment.commit({}, 9)
    copy = as_after_a_kill(tmp_path / "e", tmp_path / "copy")
    environment.close()
    (copy / "data.pages").write_bytes(earlier)  # killed between the commit and its seal
    again = opened(copy)
    assert (again.commit_id, again.engine("e").get(b"last")) == (9, b"v" * 6_000)
    assert unknown(copy) == []  # and sealed now
    again.close()


def test_an_older_file_under_a_newer_seal_is_refused(tmp_path: Path) -> None:
    environment = opened(tmp_path / "e")
    copies = []
    for commit in range(4):
        environment.engine("e").put(b"k", b"%d" % commit)
        environment.commit({}, commit)
        copies.append((tmp_path / "e" / "data.mdb").read_bytes())
    copy = as_after_a_kill(tmp_path / "e", tmp_path / "copy")
    environment.close()
    (copy / "data.mdb").write_bytes(copies[0])
    with pytest.raises(TaskCorruptedError, match="its last commit is missing"):
        LmdbEnvironment(copy)


def test_a_file_without_checksums_is_opened_and_gets_some(tmp_path: Path) -> None:
    environment = opened(tmp_path / "e")
    environment.engine("e").put(b"k", b"v")
    environment.commit({}, 1)
    environment.close()
    (tmp_path / "e" / "data.pages").unlink()
    again = opened(tmp_path / "e")
    assert again.engine("e").get(b"k") == b"v"
    again.close()
    assert unknown(tmp_path / "e") == []


def test_checksums_that_cannot_be_written_stop_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object) -> int:
        raise OSError(28, "No space left on device")

    environment = opened(tmp_path / "e")
    monkeypatch.setattr("kstreams_repl.engine.stores.engine.page_checksums.os.pwrite", full)
    environment.engine("e").put(b"k", b"v")
    environment.commit({}, 1)
    assert not (tmp_path / "e" / "data.pages").exists()
    environment.engine("e").put(b"k", b"w")
    environment.commit({}, 2)
    environment.close()
    again = opened(tmp_path / "e")
    assert again.engine("e").get(b"k") == b"w"
    again.close()


def test_a_tree_of_free_pages_that_leads_nowhere_is_refused(tmp_path: Path) -> None:
    environment = opened(tmp_path / "e")
    for commit in range(3):
        environment.engine("e").put(b"k", b"%d" % commit)
        environment.commit({}, commit)
    environment.close()
    pages = PageFile(str(tmp_path / "e" / "data.mdb"))
    newest, _ = pages.metas()
    for root in (newest.last_page + 1, 0, 1):
        with pytest.raises(NotPagesError):
            pages.free_pages(type(newest)(newest.page, newest.transaction, newest.last_page, root))
    pages.close()


def test_a_file_that_grows_while_a_reader_looks_at_it_is_not_cut_short(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    environment, read_metas, commits = opened(tmp_path / "e"), PageFile.metas, iter(range(1, 4))

    def metas_after_a_commit(pages: PageFile) -> tuple[Meta, Meta]:
        if (commit := next(commits, None)) is not None:
            environment.engine("e").put(b"k%d" % commit, bytes(100_000))
            environment.commit({}, commit)
        return read_metas(pages)

    environment.engine("e").put(b"k", b"v")
    environment.commit({}, 0)
    monkeypatch.setattr(PageFile, "metas", metas_after_a_commit)
    page_checksums.check_head(str(tmp_path / "e"))
    environment.close()


def test_pages_given_back_within_their_transaction_may_be_missing_at_the_end_and_no_others(tmp_path: Path) -> None:
    """LMDB never writes them; a file without them was taken for a damaged one, and its store restored from the start."""
    data, dice = tmp_path / "data.mdb", random.Random(0)
    with lmdb.open(str(tmp_path), map_size=1 << 28, sync=False) as environment:
        while True:
            with environment.begin(write=True) as transaction:
                for _ in range(40):
                    transaction.put(b"%d" % dice.randrange(200), bytes(1_000))
                    transaction.delete(b"%d" % dice.randrange(200))
                transaction.put(b"large", bytes(200_000))
                transaction.delete(b"large")
            pages = PageFile(str(data))
            newest, there = pages.metas()[0], len(pages.view) // pages.page_size
            used = set(range(there)) - pages.free_pages(newest)
            pages.close()
            if there <= newest.last_page:
                break
    page_checksums.check_head(str(tmp_path))
    page_checksums.check(str(tmp_path))
    os.truncate(data, max(used) * pages.page_size)
    with pytest.raises(TaskCorruptedError):
        page_checksums.check_head(str(tmp_path))


def test_free_pages_followed_from_commit_to_commit_are_those_of_the_file(tmp_path: Path) -> None:
    dice, environment = random.Random(1), opened(tmp_path / "e")
    environment.restore("e", [b"%06d" % i for i in range(40_000)], [b"v" * 50] * 40_000)
    engine, pages = environment.engine("e"), PageFile(str(tmp_path / "e" / "data.mdb"))
    for commit, rows in enumerate([3_000, 3_000, 1, 20, 1, 3_000, 1, 1, 20, 3_000, 300, 1]):
        for _ in range(rows):
            engine.put(b"%06d" % dice.randrange(40_000), b"w" * 50)
        environment.commit({}, commit)
        pages.refresh()
        assert environment._seal._free == pages.free_pages(pages.metas()[0])
    assert len(environment._seal._free) > 500
    pages.close()
    environment.close()
