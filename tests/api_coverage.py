"""docs/reference/api-coverage.md: every public class, method and configuration key of Kafka Streams 4.3.1, and what stands for it here.

``python -m tests.api_coverage`` writes the page from three lists in tests/data:

- kafka_streams_api.txt: classes and their members, distilled from the public signatures;
- kafka_streams_config_keys.txt: configuration keys, as its `StreamsConfig.configDef()` has them;
- kafka_streams_api_here.txt: what stands for them. A line is one of
  ``Class = path`` (members with the same name in snake_case are found by themselves, and those that are an argument),
  ``Class.member = path``, with ``(argument=)`` behind it where an argument does it, ``Class ~ what does it`` where that is no name (a
  function, a tuple),
  ``Class - why not``, ``Class.member - why not``; ``Class.*`` is for members that no other line names.

Paths are relative to `kstreams_repl`. tests/unit/test_api_coverage.py checks that every path leads somewhere and that the page is current.
"""

from __future__ import annotations

import functools
import importlib
import inspect
import re
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from kstreams_repl.engine import kafka_streams_keys
from kstreams_repl.engine.config import KEYS

ROOT = Path(__file__).resolve().parents[1]
DATA = ROOT / "tests" / "data"
PAGE = ROOT / "docs" / "reference" / "api-coverage.md"
SAME, OTHER, LEFT_OUT = "the same name", "another name", "left out"
INTERNAL = "internal in Kafka Streams"
MOST_NAMED = 12
"""More members of a class than so many, left out for one reason, are counted and not named."""


@dataclass(frozen=True, slots=True)
class Entry:
    """A class, member or key of Kafka Streams (`Class` or `Class.member`), and what it is here or why it is not."""

    name: str
    kind: str
    here: str


def snake(name: str) -> str:
    """`ofTimeDifference` → `of_time_difference`; constants stay."""
    return name if name.isupper() else re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", name).lower()


def api() -> dict[str, list[str]]:
    """Members by class."""
    lines = (DATA / "kafka_streams_api.txt").read_text(encoding="utf-8").splitlines()
    return {name: members.split() for name, _, members in (line.partition(":") for line in lines if not line.startswith("#"))}


def table() -> dict[str, tuple[str, str]]:
    """The third list: by name, ("=", path), ("~", what does it) or ("-", reason)."""
    found: dict[str, tuple[str, str]] = {}
    for line in (DATA / "kafka_streams_api_here.txt").read_text(encoding="utf-8").splitlines():
        if line and not line.startswith("#"):
            names, sign, what = re.fullmatch(r"(.+?) ([=~-]) (.+)", line).groups()  # type: ignore[union-attr]
            for name in names.split(", "):
                assert name not in found, f"{name} is listed twice"
                found[name] = (sign, what)
    return found


@functools.cache
def lookup(path: str) -> Any:
    """What a path stands for; an argument must be one of the function before it.

    Raises:
        LookupError: nothing is there.
    """
    path, _, argument = path.partition("(")
    parts = path.split(".")
    for cut in range(len(parts), -1, -1):
        try:
            found = importlib.import_module(".".join(["kstreams_repl", *parts[:cut]]))
        except ModuleNotFoundError:
            continue
        break
    for name in parts[cut:]:
        if not has(found, name):
            raise LookupError(f"kstreams_repl.{path}: {found!r} has no {name}")
        found = getattr(found, name, None)
    if argument and argument.rstrip("=)") not in inspect.signature(found).parameters:
        raise LookupError(f"{path} has no argument {argument.rstrip('=)')}")
    return found


def has(owner: Any, name: str) -> bool:
    """Whether a class or module has an attribute, method or field of that name."""
    fields = {field for each in getattr(owner, "__mro__", ()) for field in vars(each).get("__annotations__", {})}
    return hasattr(owner, name) or name in fields


def entries() -> Iterator[Entry]:
    """All classes and members, in the list's order."""
    known = table()
    for cls, members in api().items():
        sign, what = known.get(cls, ("?", ""))
        yield entry(cls, sign, what)
        for member in members:
            name = f"{cls}.{member}"
            if name in known:
                yield entry(name, *known[name])
            elif sign == "=" and (path := alike(what, member)) is not None:
                yield entry(name, "=", path)
            elif f"{cls}.*" in known:
                yield entry(name, *known[f"{cls}.*"])
            else:
                yield entry(name, sign if sign in "-~" else "?", what)


def alike(owner: str, member: str) -> str | None:
    """The member or argument of a class or function that goes by the name of Java's, or by that of its getter or setter."""
    if "(" in owner:
        return None
    names = [snake(member), *(snake(member.removeprefix(prefix)) for prefix in ("with", "get", "is") if member.startswith(prefix))]
    found = lookup(owner)
    for name in names:
        if inspect.isclass(found) and has(found, name):
            return f"{owner}.{name}"
    for name in names:
        if not getattr(found, "_is_protocol", False) and name in inspect.signature(found).parameters:
            return f"{owner}({name}=)"
    return None


def entry(name: str, sign: str, what: str) -> Entry:
    if sign == "=":
        last, mine = re.split(r"[.$]", name)[-1], what.rpartition(".")[2]
        return Entry(name, SAME if mine in (last, snake(last)) else OTHER, what)
    return Entry(name, {"-": LEFT_OUT, "~": OTHER}.get(sign, "?"), what)


def keys() -> Iterator[Entry]:
    """All configuration keys."""
    for key in (DATA / "kafka_streams_config_keys.txt").read_text(encoding="utf-8").split():
        if key in KEYS or kafka_streams_keys.CLIENT.get(key) == key or key == "security.protocol":
            yield Entry(key, SAME, key)
        elif (other := {**kafka_streams_keys.RENAMED, **kafka_streams_keys.CLIENT}.get(key)) is not None:
            yield Entry(key, OTHER, other)
        elif key in kafka_streams_keys.WITHOUT_EFFECT:
            yield Entry(key, LEFT_OUT, f"taken without effect: {kafka_streams_keys.WITHOUT_EFFECT[key][1]}")
        else:
            yield Entry(key, LEFT_OUT, kafka_streams_keys.REFUSED[key])


def page() -> str:
    """The page's text."""
    found, settings = list(entries()), list(keys())
    classes, members = [each for each in found if "." not in bare(each.name)], [each for each in found if "." in bare(each.name)]
    lines = [
        "# Kafka Streams' API, and what stands for it here", "",
        "Made by `python -m tests.api_coverage` from the public signatures of Kafka Streams 4.3.1 and its test utilities; a test checks",
        "that each name below exists and that this page is current. Names are compared in snake_case (`groupByKey` is `group_by_key`);",
        "a getter or setter is the field or argument of its name (`getKey` is `key`, `withName` is `name=`), counted as *another name*.",
        "Paths begin at `kstreams_repl`.", "",
        "| | the same name | another name | left out | all |", "|---|---|---|---|---|",
    ]  # fmt: skip
    for what, group in (("classes", classes), ("methods and constants", members), ("configuration keys", settings)):
        count = Counter(each.kind for each in group)
        lines.append(f"| {what} | {count[SAME]} | {count[OTHER]} | {count[LEFT_OUT]} | {len(group)} |")
    own = {cls: [each for each in members if each.name.startswith(f"{cls.name}.")] for cls in classes}
    detailed = [cls for cls in classes if own[cls] and list(grouped(own[cls], cls))]
    alike = [cls for cls in classes if cls not in detailed and (cls.kind == SAME or any(each.kind == SAME for each in own[cls]))]
    lines += ["", "## Classes with the same members", "", ", ".join(both(cls) for cls in alike) + "."]
    unnamed = "Members that are not named have the same name here, or are internal in Kafka Streams."
    lines += ["", "## Classes with other members", "", unnamed, ""]
    texts = {cls: "; ".join([cell(cls), *grouped(own[cls], cls)]) for cls in detailed}
    for text in dict.fromkeys(texts.values()):
        lines.append(f"- {names(cls for cls in detailed if texts[cls] == text)}: {text}")
    rest = [cls for cls in classes if cls not in detailed and cls not in alike]
    renamed = [cls for cls in rest if cls.kind == OTHER and " " not in cls.here]
    lines += ["", "## Classes with one answer, all their members included", "", ", ".join(both(cls) for cls in renamed) + "."]
    lines += ["", *by_answer([cls for cls in rest if cls not in renamed])]
    lines += ["", "## Configuration keys", "", "The same key: " + names([each for each in settings if each.kind == SAME]) + "."]
    lines += ["", *by_answer([each for each in settings if each.kind != SAME])]
    return "\n".join(lines) + "\n"


def bare(name: str) -> str:
    return name.removeprefix("api.")


def shown(name: str) -> str:
    return name.replace("$", ".")


def cell(each: Entry) -> str:
    return f"left out: {target(each)}" if each.kind == LEFT_OUT and not each.here.startswith("taken without") else target(each)


def names(of: Iterable[Entry]) -> str:
    return ", ".join(f"`{shown(each.name)}`" for each in of)


def both(cls: Entry) -> str:
    """The class, and where it stands unless that is its own name."""
    return names([cls]) if cls.here == bare(cls.name) else f"{names([cls])} ({target(cls)})"


def by_answer(of: Iterable[Entry]) -> Iterator[str]:
    """An entry for each answer."""
    found = list(of)
    for answer in dict.fromkeys(cell(each) for each in found):
        yield f"- {names(each for each in found if cell(each) == answer)}: {answer}"


def target(each: Entry) -> str:
    return each.here if each.kind == LEFT_OUT or " " in each.here else f"`{each.here}`"


def grouped(own: list[Entry], cls: Entry) -> Iterator[str]:
    """Members of one class that have another name or none, those with the same answer in a row; not those with the answer of the class."""
    name = {each: each.name.removeprefix(f"{cls.name}.") for each in own}

    def row(members: Iterable[Entry]) -> str:
        return ", ".join(f"`{name[each]}`" for each in members)

    one_answer = all(each.here == cls.here for each in own if each.kind == OTHER) and not any(each.kind == SAME for each in own)
    others = [each for each in own if each.kind == OTHER and not one_answer and not is_accessor(each, cls)]
    for answer in dict.fromkeys(target(each) for each in others):
        yield f"{row(each for each in others if target(each) == answer)} → {answer}"
    left_out = [each for each in own if each.kind == LEFT_OUT and each.here != INTERNAL and (cls.kind, cls.here) != (LEFT_OUT, each.here)]
    for reason in dict.fromkeys(each.here for each in left_out):
        members = [each for each in left_out if each.here == reason]
        yield f"left out: {row(members) if len(members) <= MOST_NAMED else f'{len(members)} members'} ({reason})"


def is_accessor(member: Entry, cls: Entry) -> bool:
    """Whether what stands for a getter or setter is the field or argument of its name, of what stands for its class."""
    name = snake(re.sub("^(get|with|is)(?=[A-Z])", "", member.name.removeprefix(f"{cls.name}.")))
    return member.here in (f"{cls.here}.{name}", f"{cls.here}({name}=)", f"the field `{name}`")


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
