from __future__ import annotations

import json
import random
from pathlib import Path

import pytest

from kstreams_repl.engine import partitioning
from kstreams_repl.engine.partitioning import (
    murmur2,
    partition_for_key,
    partitioner,
    partitions_for_keys,
)

GOLDEN = json.loads((Path(__file__).parents[3] / "data" / "golden.json").read_text(encoding="utf-8"))
HASHES = [(bytes.fromhex(case["key"]), case) for case in GOLDEN["hash"]]


@pytest.mark.parametrize(("key", "case"), HASHES, ids=[f"{n}-{case['key'][:12]}" for n, (_, case) in enumerate(HASHES)])
def test_hash_and_partitions_equal_javas(key: bytes, case: dict[str, int]) -> None:
    assert murmur2(key) == case["murmur2"]
    assert partition_for_key(key, 3) == case["p3"]
    assert partition_for_key(key, 12) == case["p12"]


def test_golden_keys_cover_every_tail_length_and_keys_over_one_word() -> None:
    assert {len(key) % 4 for key, _ in HASHES} == {0, 1, 2, 3}
    assert max(len(key) for key, _ in HASHES) >= 16


def test_long_keys_take_the_same_path_as_a_byte_wise_reference() -> None:
    rng = random.Random(7)
    for length in (250, 255, 256, 257, 1023, 4096):
        data = rng.randbytes(length)
        assert murmur2(data) == _reference(data)


def test_partitioner_agrees_with_the_plain_function_before_and_after_it_forgets(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(partitioning, "MEMO_LIMIT", 10)
    place = partitioner(7)
    keys = [str(n).encode() for n in range(50)]
    assert [place(key) for key in keys * 2] == [partition_for_key(key, 7) for key in keys * 2]


def test_one_partition_takes_everything() -> None:
    assert partitioner(1)(b"anything") == 0


def _reference(data: bytes) -> int:
    m, h = 0x5BD1E995, (0x9747B28C ^ len(data)) & 0xFFFFFFFF
    for i in range(0, len(data) & ~3, 4):
        k = int.from_bytes(data[i : i + 4], "little") * m & 0xFFFFFFFF
        k = (k ^ k >> 24) * m & 0xFFFFFFFF
        h = (h * m & 0xFFFFFFFF) ^ k
    if len(data) & 3:
        h = (h ^ int.from_bytes(data[len(data) & ~3 :], "little")) * m & 0xFFFFFFFF
    h = (h ^ h >> 13) * m & 0xFFFFFFFF
    h ^= h >> 15
    return h - (1 << 32) if h >> 31 else h


@pytest.mark.parametrize("partitions", [1, 2, 7, 1000])
def test_many_keys_have_the_partition_of_each(partitions: int) -> None:
    dice = random.Random(5)
    keys = [dice.randbytes(dice.choice((0, 1, 2, 3, 4, 5, 7, 8, 13, 64, 300))) for _ in range(2_000)]
    keys += [b"\xff" * length for length in (4, 4, 7, 8, 64) for _ in range(9)] + [dice.randbytes(length) for length in range(40)]
    assert partitions_for_keys(keys, partitions) == [partition_for_key(key, partitions) for key in keys]
    assert partitions_for_keys([], partitions) == []
    same = [dice.randbytes(13) for _ in range(500)]
    assert partitions_for_keys(same, partitions) == [partition_for_key(key, partitions) for key in same]
