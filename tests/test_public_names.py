"""The public names: all of them resolve, are documented, and look the same to people and to type checkers."""

from __future__ import annotations

import ast
import inspect
import re
from pathlib import Path

import pytest
from tests.parsing import parse

import perdure
from perdure import errors

ROOT = Path(__file__).parents[1]
NAMES = sorted(perdure.__all__)


def names_shown_to_type_checkers() -> dict[str, str]:
    """What `perdure/__init__.py` imports under TYPE_CHECKING: name and module."""
    tree = parse(Path(perdure.__file__).read_text(encoding="utf-8"))
    [block] = [node for node in tree.body if isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING"]
    assert not block.orelse
    shown: dict[str, str] = {}
    for node in block.body:
        assert isinstance(node, ast.ImportFrom)
        assert node.module
        if node.names[0].name == "*":
            home = parse((Path(perdure.__file__).parents[1] / f"{node.module.replace('.', '/')}.py").read_text("utf-8"))
            own = [item.name for item in home.body if isinstance(item, ast.ClassDef | ast.FunctionDef)]
            shown |= {name: errors.__name__ for name in own if not name.startswith("_")}
            if node.module == "perdure.agent_workflow.public":
                shown |= names_of([item for item in home.body[2:] if isinstance(item, ast.ImportFrom)])
        else:
            shown |= names_of([node])
    return shown


def names_of(imports: list[ast.ImportFrom]) -> dict[str, str]:
    names: dict[str, str] = {}
    for node in imports:
        for alias in node.names:
            assert alias.name == alias.asname, f"write `{alias.name} as {alias.name}`: that makes it public"
            names[alias.name] = str(node.module)
    return names


def documentation() -> str:
    pages = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
    return "\n".join(page.read_text(encoding="utf-8") for page in pages)


@pytest.mark.parametrize("name", NAMES)
def test_a_public_name_resolves_and_has_a_docstring(name: str) -> None:
    value = getattr(perdure, name)
    if isinstance(value, type) and issubclass(value, BaseException):
        page = (ROOT / "docs" / "reference" / "errors.md").read_text(encoding="utf-8")
        assert re.search(rf"\b{name}\b", page), f"draw {name} in the tree of docs/reference/errors.md"
    elif inspect.isclass(value) or inspect.isroutine(value):
        assert value.__doc__, f"{name} needs a docstring: what does it promise?"


def test_people_and_type_checkers_see_the_same_names() -> None:
    assert names_shown_to_type_checkers() == perdure._HOME


def test_the_names_are_in_order_so_that_each_is_easily_found() -> None:
    assert list(perdure._HOME) == sorted(perdure._HOME)


def test_every_public_name_is_in_the_documentation() -> None:
    written = set(re.findall(r"\w+", documentation()))
    missing = [name for name in NAMES if name not in written]
    assert not missing, f"public, but in neither README.md nor docs/: {missing}"


def test_dir_shows_every_public_name() -> None:
    assert set(NAMES) <= set(dir(perdure))


def test_a_misspelt_name_is_an_error_that_helps() -> None:
    with pytest.raises(AttributeError, match=r"no attribute 'PerdureEror' \(did you mean 'PerdureError'\?\)"):
        perdure.PerdureEror  # type: ignore[attr-defined] # noqa: B018


def test_every_error_is_public() -> None:
    kinds = {name for name, value in vars(errors).items() if isinstance(value, type) and issubclass(value, Exception)}
    assert kinds <= set(NAMES)
