"""Reading Python source in tests."""

from __future__ import annotations

import ast


def parse(text: str, filename: str = "<text>") -> ast.Module:
    """`ast.parse`. CPython 3.11 counts its recursion wrongly where another thread parses meanwhile (gh-106905)."""
    try:
        return ast.parse(text, filename=filename)
    except SystemError:
        return ast.parse(text, filename=filename)
