"""Reading Python source in tests."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import TypeAlias

ROOT = Path(__file__).parents[1]
SOURCE = ROOT / "src" / "perdure"
FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)
Block: TypeAlias = ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef


def parse(text: str, filename: str = "<text>") -> ast.Module:
    """`ast.parse`. CPython 3.11 counts its recursion wrongly where another thread parses meanwhile (gh-106905)."""
    try:
        return ast.parse(text, filename=filename)
    except SystemError:
        return ast.parse(text, filename=filename)


def relative(path: Path) -> str:
    return path.relative_to(SOURCE).as_posix()


@cache
def tree_of(path: Path) -> ast.Module:
    text = path.read_text(encoding="utf-8")
    return parse(text, str(path))


@cache
def nodes_of(path: Path) -> tuple[ast.AST, ...]:
    """Every node of a file, in the order of `ast.walk`."""
    return tuple(ast.walk(tree_of(path)))


def blocks(path: Path) -> Iterator[tuple[str, Block]]:
    """Every function and class of a file with its dotted name."""

    def walk(node: ast.AST, prefix: str) -> Iterator[tuple[str, Block]]:
        for child in ast.iter_child_nodes(node):
            if isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
                yield f"{prefix}{child.name}", child
                yield from walk(child, f"{prefix}{child.name}.")
            else:
                yield from walk(child, prefix)

    yield from walk(tree_of(path), "")
