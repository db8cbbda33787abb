"""The object of a `module:attribute` in a project: its own modules come first, and errors name the place."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from perdure.server.config.schema import NotImportable
from perdure.server.registry import Project

TOP = "graph_of_test"


@pytest.fixture(autouse=True)
def as_before(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    before = set(sys.modules)
    monkeypatch.setattr(sys, "path", [*sys.path])
    yield
    for name in set(sys.modules) - before:
        del sys.modules[name]


def write(folder: Path, name: str, text: str) -> None:
    path = folder / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")


def refused(folder: Path, named: str) -> str:
    with pytest.raises(NotImportable) as caught:
        Project(folder).import_object(named)
    assert caught.value.code == "not_importable"
    return str(caught.value)


def test_folder_without_init_is_a_package_and_attributes_may_have_dots(tmp_path: Path) -> None:
    write(tmp_path, f"{TOP}/react.py", "class Made:\n    inner = 7\nmade = Made()\n")
    assert Project(tmp_path).import_object(f"{TOP}.react:made.inner") == 7


def test_module_that_is_imported_later_is_resolved(tmp_path: Path) -> None:
    write(tmp_path, f"{TOP}.py", "def app():\n    import late_of_test\n    return late_of_test.x\n")
    write(tmp_path, "late_of_test.py", "x = 3\n")
    assert Project(tmp_path).import_object(f"{TOP}:app")() == 3


@pytest.mark.parametrize("with_init", [True, False])
def test_package_of_the_project_comes_before_an_installed_package(tmp_path: Path, with_init: bool) -> None:
    write(tmp_path / "installed", f"{TOP}/__init__.py", "")
    write(tmp_path / "installed", f"{TOP}/react.py", "app = 'installed'\n")
    write(tmp_path / "project", f"{TOP}/react.py", "app = 'project'\n")
    if with_init:
        write(tmp_path / "project", f"{TOP}/__init__.py", "")
    sys.path.insert(0, str(tmp_path / "installed"))
    assert Project(tmp_path / "project").import_object(f"{TOP}.react:app") == "project"


def test_error_names_another_module_that_was_imported_before(tmp_path: Path) -> None:
    write(tmp_path / "other", f"{TOP}.py", "app = 1\n")
    write(tmp_path / "project", f"{TOP}.py", "app = 2\n")
    assert Project(tmp_path / "other").import_object(f"{TOP}:app") == 1
    message = refused(tmp_path / "project", f"{TOP}:app")
    assert f"another module '{TOP}' was imported before, from {tmp_path / 'other'}" in message


def test_errors_suggest_the_closest_name(tmp_path: Path) -> None:
    write(tmp_path, f"{TOP}/react.py", "app = 1\n")
    assert f"(did you mean '{TOP}.react'?)" in refused(tmp_path, f"{TOP}.reat:app")
    assert f"the module '{TOP}.react' has no 'ap' (did you mean 'app'?)" in refused(tmp_path, f"{TOP}.react:ap")
    assert "expected module:attribute" in refused(tmp_path, "app")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("x = 1\ny = x / 0\n", "ZeroDivisionError: division by zero (broken_of_test.py, line 2)."),
        (
            "import nowhere_at_all\n",
            "ModuleNotFoundError: No module named 'nowhere_at_all' (broken_of_test.py, line 1).",
        ),
        ("def f(:\n", "SyntaxError: invalid syntax (broken_of_test.py, line 1)."),
        ("import sys\nsys.exit(3)\n", "SystemExit: 3 (broken_of_test.py, line 2)."),
        ("import json\njson.loads('x')\n", "(broken_of_test.py, line 2)."),
    ],
)
def test_error_of_a_failed_import_has_the_line_of_the_users_code(tmp_path: Path, text: str, message: str) -> None:
    write(tmp_path, "broken_of_test.py", text)
    assert refused(tmp_path, "broken_of_test:app").endswith(message)
