"""``python -m workshop.commands.release TAG REPOSITORY``: print the notes of a release, or refuse it.

A tag is released only if it is the version of pyproject.toml, if the project's address is the repository that publishes it, and if
CHANGELOG.md has a dated part for it. Uses the standard library alone: .github/workflows/release.yml runs it before it installs anything.
"""

from __future__ import annotations

import re
import sys
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]


class Refused(Exception):
    """Something that a release needs is missing."""


def release_notes(tag: str, repository: str, project: Mapping[str, Any], changelog: str) -> str:
    """Return the changes of the version that a tag names.

    Raises:
        Refused: the tag is not the project's version, the project has another address, or the version has no dated changes.
    """
    version = project["version"]
    if tag != f"v{version}":
        raise Refused(f"tag {tag} is not v{version}, the version of pyproject.toml")
    if repository not in project.get("urls", {}).values():
        raise Refused(f"pyproject.toml has no address {repository} in [project.urls]: an index shows no way to the source")
    part = re.search(rf"^## \[{re.escape(version)}\] - \d{{4}}-\d\d-\d\d\n(.*?)(?=^## |\Z)", changelog, re.MULTILINE | re.DOTALL)
    if part is None or not part[1].strip():
        raise Refused(f"CHANGELOG.md has no part '## [{version}] - YYYY-MM-DD' with changes")
    return part[1].strip() + "\n"


if __name__ == "__main__":
    declared = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    try:
        print(release_notes(sys.argv[1], sys.argv[2], declared, (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")), end="")
    except Refused as error:
        sys.exit(f"not released: {error}")
