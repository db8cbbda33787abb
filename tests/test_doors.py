"""What users import comes from a public door, and each door's names are pinned."""

from __future__ import annotations

import importlib
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
DOORS = {
    *("perdure", "perdure.agents", "perdure.orchestrations", "perdure.server", "perdure.client"),
    *("perdure.testing", "perdure.testing.conformance"),
    "perdure.checkpointers",  # AgentFlow's names of the storages
    "perdure.exceptions",  # errors under the module name of Agent Framework
    "perdure.store",  # the contract of a store
    "perdure.observing",  # events of this process, for metrics
    *("perdure.errors", "perdure.events", "perdure.codecs"),
}
IMPORT = re.compile(r"^\s*(?:from|import) (perdure(?:\.\w+)*)", re.MULTILINE)
PAGES = sorted([*(ROOT / "docs").rglob("*.md"), ROOT / "README.md"])
FOLDERS = ["examples", "src/perdure/cli/templates", "tests/compat", "tests/typing/cases"]
"""Programs as users write them."""
PROGRAMS = sorted(path for folder in FOLDERS for path in (ROOT / folder).rglob("*.py"))


def imported_doors(path: Path) -> set[str]:
    text = path.read_text(encoding="utf-8")
    if path.suffix == ".md":
        text = "\n".join(re.findall(r"^```(?:python|py)\n(.*?)^```", text, re.MULTILINE | re.DOTALL))
    return set(IMPORT.findall(text))


@pytest.mark.parametrize("path", [*PAGES, *PROGRAMS], ids=lambda path: path.relative_to(ROOT).as_posix())
def test_users_code_imports_from_public_doors(path: Path) -> None:
    assert sorted(imported_doors(path) - DOORS) == []


def is_own(cls: type, door: str) -> bool:
    return cls.__module__ == door or cls.__module__.startswith(f"{door}.")


@pytest.mark.parametrize("door", sorted(DOORS))
def test_a_door_has_the_names_that_are_pinned(door: str) -> None:
    pinned = (Path(__file__).parent / "doors" / f"{door}.txt").read_text(encoding="utf-8").split()
    module = importlib.import_module(door)
    names = getattr(module, "__all__", None)
    if names is None:  # a module of contracts: its classes
        names = [name for name, value in vars(module).items() if isinstance(value, type) and is_own(value, door)]
    assert sorted(name for name in names if not name.startswith("_")) == pinned
    assert all(hasattr(module, name) for name in pinned)
