"""Damages files: flips bits, cuts, zeroes, deletes, swaps."""

from __future__ import annotations

import os
import random
import shutil
from collections.abc import Sequence
from pathlib import Path

KINDS = ("flip", "truncate", "zero", "delete", "swap")
_BLOCK = 4096


def damage(file: Path, kind: str, dice: random.Random, others: Sequence[Path] = ()) -> str:
    """Do it; what was done, in words.

    Args:
        others: files that `swap` may exchange it with; none: two blocks inside.
    """
    size = file.stat().st_size
    told = f"{kind} {file.parent.name}/{file.name} ({size:,} bytes)"
    if kind == "delete":
        file.unlink()
    elif kind == "truncate":
        os.truncate(file, dice.randrange(size) if size else 0)
    elif kind == "flip":
        data = bytearray(file.read_bytes())
        for _ in range(min(len(data), dice.choice((1, 1, 8, 64)))):
            data[dice.randrange(len(data))] ^= 1 << dice.randrange(8)
        file.write_bytes(data)
    elif kind == "zero":
        data = bytearray(file.read_bytes())
        start, length = dice.randrange(max(1, size)), dice.choice((1, 100, _BLOCK, 4 * _BLOCK))
        if dice.random() < 0.5:
            start = start // _BLOCK * _BLOCK
        data[start : start + length] = bytes(len(data[start : start + length]))
        file.write_bytes(data)
    elif others and dice.random() < 0.5:
        other = dice.choice(others)
        told += f" with {other.parent.name}"
        aside = file.with_name(file.name + ".swap")
        shutil.move(file, aside)
        shutil.move(other, file)
        shutil.move(aside, other)
    else:
        data = bytearray(file.read_bytes())
        first, second = (dice.randrange(max(1, -(-size // _BLOCK))) * _BLOCK for _ in range(2))
        one, two = data[first : first + _BLOCK], data[second : second + _BLOCK]
        if len(one) == len(two):
            data[first : first + _BLOCK], data[second : second + _BLOCK] = two, one
        file.write_bytes(data)
    return told
