"""Every public workflow name of the framework, in both versions, works here or stands on the migration page."""

from __future__ import annotations

import asyncio
import json
import os
import re
import sys
from pathlib import Path

import pytest
from tests.compat.test_beside_agent_framework import VERSIONS

import perdure

PAGE = Path(__file__).parents[2] / "docs/how-to/migrate/migrate-from-agent-framework.md"

LIST_NAMES = """
import json, pathlib, re
import agent_framework
source = pathlib.Path(agent_framework.__file__).read_text()
tables = re.findall(r'"\\._workflows\\.\\w+": \\((.*?)\\)', source, re.S)
names = sorted(name for table in tables for name in re.findall(r'"(\\w+)"', table))
kinds = {name: getattr(agent_framework, name) for name in names}
print(json.dumps({name: [each for each in dir(kind) if each[0] != "_"] if isinstance(kind, type) else []
                  for name, kind in kinds.items()}))
"""

ELSEWHERE = {"AgentExecutor", "WorkflowAgent", "FunctionalWorkflow", "FunctionalWorkflowAgent", "RunContext"}
"""Classes whose members other tests compare, by what programs do with them."""

OF_INSTANCES = {"selection_func", "condition"}
"""Properties there, attributes of objects here: tests/compat/beside/programs/graph_definitions.py."""


async def list_names(version: str) -> dict[str, list[str]]:
    """By exported name: its public members, if it is a class."""
    environment = {name: value for name, value in os.environ.items() if not name.startswith("PYTHON")}
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-c", LIST_NAMES),
        env=environment | {"PYTHONPATH": str(Path(sys.prefix) / f"agent-framework-{version}")},
        stdout=asyncio.subprocess.PIPE,
    )
    output, _ = await process.communicate()
    names: dict[str, list[str]] = json.loads(output)
    return names


def names_of_the_page() -> set[str]:
    text = re.sub(r"```.*?```", "", PAGE.read_text(), flags=re.DOTALL)
    return {name for code in re.findall(r"`([^`]+)`", text) for name in re.findall(r"\w+", code)}


@pytest.mark.parametrize("version", VERSIONS)
async def test_a_workflow_name_is_here_or_on_the_migration_page(version: str) -> None:
    names = await list_names(version)
    assert len(names) > 50
    missing = {name for name in names if name not in perdure.__all__}
    assert missing - names_of_the_page() == set()


@pytest.mark.parametrize("version", VERSIONS)
async def test_a_member_of_a_class_is_here_or_on_the_migration_page(version: str) -> None:
    names = await list_names(version)
    missing = [
        f"{name}.{member}"
        for name, members in names.items()
        if name in perdure.__all__ and name not in ELSEWHERE and isinstance(getattr(perdure, name), type)
        for member in members
        if not hasattr(getattr(perdure, name), member) and member not in OF_INSTANCES
    ]
    on_page = names_of_the_page()
    assert [member for member in missing if member.partition(".")[2] not in on_page] == []
