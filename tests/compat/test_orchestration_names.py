"""The names of Agent Framework's orchestrations, in both versions: each works, or the page gives a reason."""

from __future__ import annotations

import ast
import inspect
import sys
from pathlib import Path
from typing import Any

import pytest

from perdure import orchestrations

VERSIONS = ("1.13", "1.23")
PAGE = Path(__file__).parents[2] / "docs/how-to/migrate/migrate-from-agent-framework.md"
OTHER_CLASSES = {"HandoffAgentExecutor", "MagenticOrchestrator"}
"""A builder makes their objects: their constructors differ, as the page says."""


def package(version: str) -> Path:
    return Path(sys.prefix) / f"agent-framework-{version}" / "agent_framework_orchestrations"


def exported_names(version: str) -> set[str]:
    """The names that its `__init__` imports from its own modules."""
    tree = ast.parse((package(version) / "__init__.py").read_text())
    imports = [node for node in tree.body if isinstance(node, ast.ImportFrom) and node.level == 1]
    return {alias.asname or alias.name for node in imports for alias in node.names}


def classes(version: str) -> dict[str, ast.ClassDef]:
    trees = [ast.parse(path.read_text()) for path in package(version).glob("_[a-z]*.py")]
    nodes = [node for tree in trees for node in tree.body if isinstance(node, ast.ClassDef)]
    return {node.name: node for node in nodes if node.name in exported_names(version)}


def methods(node: ast.ClassDef) -> dict[str, ast.FunctionDef | ast.AsyncFunctionDef]:
    functions = [child for child in node.body if isinstance(child, (ast.FunctionDef, ast.AsyncFunctionDef))]
    return {child.name: child for child in functions if child.name == "__init__" or not child.name.startswith("_")}


def parameters_of(function: Any) -> set[str]:
    """The names of its parameters, with those of a TypedDict of options."""
    parameters = inspect.signature(function).parameters
    names = set(parameters)
    for parameter in parameters.values():
        if parameter.kind is parameter.VAR_KEYWORD and str(parameter.annotation).startswith("Unpack["):
            options = function.__globals__[parameter.annotation.removeprefix("Unpack[").removesuffix("]")]
            names |= set(options.__annotations__)
    return names


@pytest.mark.parametrize("version", VERSIONS)
def test_each_exported_name_works_or_has_a_reason_on_the_page(version: str) -> None:
    names = exported_names(version)
    missing = {name for name in names if not hasattr(orchestrations, name)}
    assert len(names) > 35 and len(missing) < 8
    assert {name for name in missing if f"`{name}`" not in PAGE.read_text()} == set()


@pytest.mark.parametrize("version", VERSIONS)
def test_each_public_method_and_parameter_of_a_class_exists(version: str) -> None:
    missing = []
    for class_name, node in classes(version).items():
        if class_name in OTHER_CLASSES or not hasattr(orchestrations, class_name):
            continue
        own = getattr(orchestrations, class_name)
        for name, method in methods(node).items():
            function = getattr(own, name, None)
            if function is None:
                missing.append(f"{class_name}.{name}")
            elif name not in ("on_checkpoint_save", "on_checkpoint_restore"):
                wanted = {argument.arg for argument in (*method.args.args, *method.args.kwonlyargs)} - {"self", "cls"}
                there = parameters_of(function) if callable(function) else wanted
                missing += [f"{class_name}.{name}({parameter})" for parameter in sorted(wanted - there)]
    assert missing == []
