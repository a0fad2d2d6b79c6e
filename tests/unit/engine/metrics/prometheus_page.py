"""A strict reader of Prometheus' text format 0.0.4, for tests: it accepts what the format's definition allows and nothing else."""

from __future__ import annotations

import re
from dataclasses import dataclass, field

_NAME = re.compile(r"[a-zA-Z_:][a-zA-Z0-9_:]*")
_LABEL = re.compile(r"[a-zA-Z_][a-zA-Z0-9_]*")
_NUMBER = re.compile(r"[-+]?(\d+\.?\d*([eE][-+]?\d+)?|\.\d+|Inf)|NaN")
_ESCAPES = {"\\": "\\", "n": "\n", '"': '"'}

Sample = tuple[str, dict[str, str], float]


@dataclass
class Page:
    """The samples of a page, and the type of each family."""

    types: dict[str, str] = field(default_factory=dict)
    samples: list[Sample] = field(default_factory=list)


def read_page(text: str) -> Page:
    """Read a page; an assertion fails where it breaks the format."""
    page = Page()
    assert text.endswith("\n")
    helped: set[str] = set()
    done: set[str] = set()
    current = ""
    seen: set[tuple[str, tuple[tuple[str, str], ...]]] = set()
    for line in text[:-1].split("\n"):
        if line.startswith("# HELP "):
            name = line.split(" ")[2]
            assert _NAME.fullmatch(name) and name not in helped, line
            helped.add(name)
        elif line.startswith("# TYPE "):
            _, _, name, kind = line.split(" ")
            assert kind in ("counter", "gauge") and name not in page.types, line
            page.types[name] = kind
            done.add(current)
            current = name
        else:
            sample = _sample(line)
            assert sample[0] == current and current not in done, f"{line}: the lines of a family stand together, after its head"
            key = (sample[0], tuple(sorted(sample[1].items())))
            assert key not in seen, f"{line} comes twice"
            seen.add(key)
            page.samples.append(sample)
    assert helped == set(page.types)
    for name, kind in page.types.items():
        assert name.endswith("_total") == (kind == "counter"), f"{name} is a {kind}"
    return page


def _sample(line: str) -> Sample:
    found = _NAME.match(line)
    assert found, line
    at, labels = found.end(), {}
    assert line[at] == "{", line
    at += 1
    while line[at] != "}":
        name = _LABEL.match(line, at)
        assert name and line[name.end() : name.end() + 2] == '="', line
        at, value = name.end() + 2, ""
        while line[at] != '"':
            if line[at] == "\\":
                value += _ESCAPES[line[at + 1]]
                at += 1
            else:
                value += line[at]
            at += 1
        at += 1
        assert name.group() not in labels, line
        labels[name.group()] = value
        assert line[at] in ",}", line
        if line[at] == ",":
            at += 1
            assert line[at] != "}", line
    assert line[at + 1] == " ", line
    number = line[at + 2 :]
    assert _NUMBER.fullmatch(number), line
    return found.group(), labels, float(number)
