"""`parse` beside other threads that parse."""

import ast

import pytest

from kstreams_repl.system import syntax


def test_a_tree_that_another_thread_has_disturbed_is_built_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """CPython 3.11.7: a collector that runs Python code lets another thread build a tree meanwhile. It was taken for an interrupt."""
    disturbed, real = [1, 2], ast.parse

    def once(text: str, mode: str = "exec") -> ast.AST:
        if disturbed:
            disturbed.pop()
            raise SystemError("AST constructor recursion depth mismatch (before=147, after=165)")
        return real(text, mode=mode)

    monkeypatch.setattr(syntax.ast, "parse", once)
    assert ast.unparse(syntax.parse("1+1", "eval")) == "1 + 1" and not disturbed


def test_an_error_that_stays_and_wrong_syntax_are_raised(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(SyntaxError):
        syntax.parse("1 +")

    def always(text: str, mode: str = "exec") -> None:
        raise SystemError("bad argument to internal function")

    monkeypatch.setattr(syntax.ast, "parse", always)
    with pytest.raises(SystemError, match="bad argument"):
        syntax.parse("1")
