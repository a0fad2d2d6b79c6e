"""Figures of the code for docs/design/019-house.md: ``python -m tests.house_figures [CHECKOUT]``.

Code lines are lines with a token other than a comment or docstring, of what the wheel of today contains.
"""

from __future__ import annotations

import ast
import io
import sys
import tokenize
from collections import Counter
from fnmatch import fnmatch
from pathlib import Path

OUTSIDE_THE_WHEEL = (
    "workshop/bench/*", "workshop/conformance/*", "workshop/commands/test.py", "workshop/commands/changed.py",
    "kstreams_repl/cli/docs*.py", "workshop/commands/package_pictures.py",
)  # fmt: skip
NO_CODE = {tokenize.COMMENT, tokenize.NL, tokenize.NEWLINE, tokenize.INDENT, tokenize.DEDENT, tokenize.ENDMARKER}


def code_lines(source: str, tree: ast.Module) -> int:
    strings = [node for node in ast.walk(tree) if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)]
    prose = {line for node in strings if isinstance(node.value.value, str) for line in range(node.lineno, (node.end_lineno or 0) + 1)}
    tokens = tokenize.generate_tokens(io.StringIO(source).readline)
    return len({line for token in tokens if token.type not in NO_CODE for line in range(token.start[0], token.end[0] + 1)} - prose)


def imported(tree: ast.Module, modules: set[str]) -> set[str]:
    """Return the modules of ours that a module imports, for types too."""
    names = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and node.module and not node.level:
            names |= {node.module, *(f"{node.module}.{alias.name}" for alias in node.names)}
        elif isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
    return names & modules


def in_cycles(imports: dict[str, set[str]]) -> int:
    """Return how many modules can be reached from themselves."""

    def reaches(start: str) -> bool:
        seen: set[str] = set()
        left = [*imports[start]]
        while left:
            if (name := left.pop()) not in seen:
                seen.add(name)
                left += imports[name]
        return start in seen

    return sum(map(reaches, imports))


def main(root: Path) -> None:
    lines: Counter[str] = Counter()
    classes: list[tuple[int, str]] = []
    trees: dict[str, ast.Module] = {}
    loose = 0
    for path in sorted([*(root / "kstreams_repl").rglob("*.py"), *(root / "kernel_ext").rglob("*.py")]):
        name = path.relative_to(root).as_posix()
        source = path.read_text(encoding="utf-8")
        tree = ast.parse(source)
        if path.name != "__init__.py":
            trees[name.removesuffix(".py").replace("/", ".")] = tree
        package = "/".join(name.split("/")[:2]) if name.count("/") > 1 else name.split("/")[0]
        lines["outside the wheel" if any(fnmatch(name, pattern) for pattern in OUTSIDE_THE_WHEEL) else package] += code_lines(source, tree)
        for node in ast.walk(tree):
            if isinstance(node, ast.ClassDef):
                classes.append(((node.end_lineno or 0) - node.lineno + 1, node.name))
                methods = [one for one in node.body if isinstance(one, ast.FunctionDef) and one.name[0] != "_" and one.args.kwarg]
                any_value = [one for one in methods if ast.unparse(one.args.kwarg.annotation or one.args.kwarg) == "Any"]  # type: ignore[union-attr]
                loose += len(any_value) if "/dsl/" in name and node.name[0] != "_" else 0
    imports = {name: imported(tree, set(trees)) - {name} for name, tree in trees.items()}
    folders = {name: name.rpartition(".")[0] for name in trees}
    arrows = {(folders[a], folders[b]) for a, found in imports.items() for b in found if folders[a] != folders[b]}
    for package, count in sorted(lines.items()):
        print(f"{count:7,} {package}")
    print(f"{sum(lines.values()) - lines['outside the wheel']:7,} code lines in the wheel")
    print(f"{len(trees):7,} modules in {len(set(folders.values()))} packages, {len(arrows)} arrows between packages")
    tops = {(a.split(".")[1], b.split(".")[1]) for a, b in arrows if a.count(".") and b.count(".")}
    between = {(a, b) for a, b in tops if a != b}
    print(f"{len({name for pair in tops for name in pair}):7,} of them at the top, {len(between)} arrows between these")
    print(f"{in_cycles(imports):7,} modules in import cycles")
    print(f"{loose:7,} public methods of dsl/ with **Any")
    print("largest classes (lines): " + ", ".join(f"{name} {count}" for count, name in sorted(classes, reverse=True)[:5]))


if __name__ == "__main__":
    main(Path(sys.argv[1]) if len(sys.argv) > 1 else Path(__file__).resolve().parents[1])
