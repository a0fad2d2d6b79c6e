"""docs/reference/api-coverage.md: every public class, method and configuration key of Kafka Streams, and what stands for it here.

``python -m tests.api_coverage --jars`` reads the jars of the newest version that the oracle runs, and of the one before it, and writes two
lists in tests/data; it needs a JDK. Without ``--jars``, only the page is written, from these lists and our exports.

- kafka_streams_api.txt: classes and their members, read from the class files, with the jars' checksums; what the version before did not
  have has a plus. Left out are members of every object, and constants that only hold a configuration key or its documentation.
- kafka_streams_config_keys.txt: configuration keys, as its `StreamsConfig.configDef()` has them;
- kafka_streams_api_here.txt: what stands for them where that does not follow from the name, written by hand. A line is one of
  ``Class = path`` (members with the same name in snake_case are found by themselves, and those that are an argument),
  ``Class.member = path``, with ``(argument=)`` behind it where an argument does it, ``Class ~ what does it`` where that is no name (a
  function, a tuple),
  ``Class - why not``, ``Class.member - why not``; ``Class.*`` is for members that no other line names.

Paths are relative to `kstreams_repl`. tests/unit/test_api_coverage.py checks that every path leads somewhere, that the page is current and
that the lists are of the jars that the oracle runs.
"""

from __future__ import annotations

import functools
import importlib
import inspect
import re
import subprocess
import sys
import tempfile
import zipfile
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from kstreams_repl.engine import kafka_streams_keys
from kstreams_repl.engine.config import KEYS
from kstreams_repl.host.kafka.embedded.jars import LockedJar, ensure_jars
from workshop.bench.peers.kafka_streams import find_jdk
from workshop.conformance.oracle import LOCK, VERSIONS, run_java

ROOT = Path(__file__).resolve().parents[1]
DATA = ROOT / "tests" / "data"
PAGE = ROOT / "docs" / "reference" / "api-coverage.md"
API, CONFIG_KEYS = DATA / "kafka_streams_api.txt", DATA / "kafka_streams_config_keys.txt"
NOT_PUBLIC = re.compile(r"/internals?/|/generated/|\$\d|-info$")
OF_EVERY_OBJECT = ("toString", "equals", "hashCode", "values", "valueOf")
PRINTS_CONFIG_KEYS = """
public class ConfigKeys {
    public static void main(String[] arguments) {
        org.apache.kafka.streams.StreamsConfig.configDef().names().forEach(System.out::println);
    }
}
"""
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


def all_config_keys() -> list[str]:
    return [line.removeprefix("+") for line in listed(CONFIG_KEYS)]


def listed(path: Path) -> list[str]:
    """The lines of a list, without its heading."""
    return [line for line in path.read_text(encoding="utf-8").splitlines() if not line.startswith("#")]


def api() -> dict[str, list[str]]:
    """Members by class; one with parameters is a new method of a name that the version before has."""
    lines = (line.replace("+", "").partition(":") for line in listed(API))
    return {name: members.split() for name, _, members in lines}


def new_names() -> set[str]:
    """Classes, members and keys that the version before does not have; a new class stands for its members."""
    found = {line[1:] for line in listed(CONFIG_KEYS) if line.startswith("+")}
    for line in listed(API):
        name, _, members = line.partition(":")
        found |= {name[1:]} if name.startswith("+") else {f"{name}.{member[1:]}" for member in members.split() if member.startswith("+")}
    return found


def streams_jars(version: str) -> tuple[LockedJar, ...]:
    """The jars whose classes are listed."""
    return tuple(jar for jar in LOCK if jar.version == version and jar.artifact in ("kafka-streams", "kafka-streams-test-utils"))


def declared(version: str) -> dict[str, dict[str, set[str]]]:
    """The public classes of the jars, by name; of each its public members with their parameters, as `javap` reads them."""
    jdk = find_jdk()
    assert jdk is not None, "needs a JDK"
    path = ":".join(map(str, ensure_jars(jars=[jar for jar in LOCK if jar.version == version])))
    found: dict[str, dict[str, set[str]]] = {}
    for jar in ensure_jars(jars=streams_jars(version)):
        with zipfile.ZipFile(jar) as opened:
            classes = [name.removesuffix(".class") for name in opened.namelist() if name.endswith(".class")]
        classes = sorted(name for name in classes if not NOT_PUBLIC.search(name))
        done = subprocess.run([jdk / "bin" / "javap", "-public", "-cp", path, *classes], capture_output=True, text=True, check=True)
        for text in re.split("(?m)^Compiled from .*\n", done.stdout)[1:]:
            head, *lines = map(without_generics, text.splitlines())
            if head.startswith("public "):
                name = re.search(r"(?:class|interface) ([\w.$]+)", head)[1]  # type: ignore[index]
                found[name] = members_of(name, lines)
    known = Counter(name.rpartition(".")[2] for name in found)
    short = {name: name.rpartition(".")[2] for name in found}
    return {f"api.{short[name]}" if ".api." in name and known[short[name]] > 1 else short[name]: found[name] for name in found}


def without_generics(line: str) -> str:
    while line != (shorter := re.sub("<[^<>]*>", "", line)):
        line = shorter
    return line


def members_of(name: str, lines: Iterable[str]) -> dict[str, set[str]]:
    found: dict[str, set[str]] = {}
    for line in lines:
        match = re.search(r"([\w.$]+)(\(.*\))?(?: throws .*)?;$", line)
        if match is None or match[1] in (name, *OF_EVERY_OBJECT):
            continue
        if name.endswith(".StreamsConfig") and match[1].endswith(("_CONFIG", "_DOC")):
            continue
        parameters = [re.split("[.$]", each)[-1] for each in (match[2] or "()")[1:-1].split(", ")]
        found.setdefault(match[1], set()).add(f"({','.join(parameters)})")
    return found


def config_keys(version: str) -> list[str]:
    """The configuration keys of a version."""
    with tempfile.TemporaryDirectory() as scratch:
        source = Path(scratch) / "ConfigKeys.java"
        source.write_text(PRINTS_CONFIG_KEYS, encoding="utf-8")
        return sorted(run_java([source], version=version).decode().split())


def read_jars() -> None:
    """Write the two lists of the newest version."""
    before, version = VERSIONS[-2:]
    old, new = declared(before), declared(version)
    gone = {name: set(old[name]) - set(new.get(name, ())) for name in old}
    assert not any(gone.values()), f"a member is gone, which the list has no sign for: {gone}"
    written = f"written by `python -m tests.api_coverage --jars`; + is new since {before}."
    lines = [
        f"# Public classes of Kafka Streams {version} and their members, {written}",
        *(f"# {jar.file_name} {jar.sha256}" for jar in streams_jars(version)),
    ]
    for name, members in new.items():
        if name not in old:
            lines.append(f"+{name}: {' '.join(members)}")
            continue
        shown = []
        for member, parameters in members.items():
            if member not in old[name]:
                shown.append(f"+{member}")
            else:
                shown += [member, *(f"+{member}{each}" for each in sorted(parameters - old[name][member]))]
        lines.append(f"{name}: {' '.join(shown)}".strip())
    API.write_text("\n".join(lines) + "\n", encoding="utf-8")
    keys_before = set(config_keys(before))
    keys_now = [key if key in keys_before else f"+{key}" for key in config_keys(version)]
    CONFIG_KEYS.write_text("\n".join([f"# Configuration keys of Kafka Streams {version}, {written}", *keys_now]) + "\n", encoding="utf-8")


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
            name, overloaded = f"{cls}.{member}", f"{cls}.{member.partition('(')[0]}"
            if name in known or overloaded in known:
                yield entry(name, *known.get(name, known.get(overloaded, ("?", ""))))
            elif sign == "=" and (path := alike(what, member.partition("(")[0])) is not None:
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
        last, mine = re.split(r"[.$]", name.partition("(")[0])[-1], what.rpartition(".")[2]
        return Entry(name, SAME if mine in (last, snake(last)) else OTHER, what)
    return Entry(name, {"-": LEFT_OUT, "~": OTHER}.get(sign, "?"), what)


def keys() -> Iterator[Entry]:
    """All configuration keys."""
    for key in all_config_keys():
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
        f"Made by `python -m tests.api_coverage` from the class files of Kafka Streams {VERSIONS[-1]} and its test utilities, and from our",
        "exports; a test checks that each name below exists and that this page is current. Names are compared in snake_case:",
        "`groupByKey` is `group_by_key`; a getter or setter is the field or argument of its name (`getKey` is `key`, `withName` is",
        "`name=`), counted as *another name*.",
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
    lines += ["", f"## New in {VERSIONS[-1]}", "", f"What {VERSIONS[-2]} does not have; it is also counted and listed above and below.", ""]
    recent, several = new_names(), [*found, *settings]
    lines += by_answer([each for each in several if each.name in recent])
    lines += ["", "## Configuration keys", "", "The same key: " + names([each for each in settings if each.kind == SAME]) + "."]
    lines += ["", *by_answer([each for each in settings if each.kind != SAME])]
    return "\n".join(lines) + "\n"


def bare(name: str) -> str:
    return name.removeprefix("api.")


def shown(name: str) -> str:
    return name.replace("$", ".").replace(",", ", ")


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
    if "--jars" in sys.argv:
        read_jars()
    PAGE.write_text(page(), encoding="utf-8")
