"""Names under which our own types are stored: short, unique, and independent of where the code lives."""

from __future__ import annotations

import importlib
import re
import sys
from pathlib import Path
from typing import Any

import pytest
from tests.crash.teams import TEAMS

from perdure import AgentWorkflow, InMemoryCheckpointStorage, RunContext, workflow
from perdure.names import stable_name
from perdure.testing import ScriptedAgent
from perdure.testing.crash import take_to_the_end

PINNED = set((Path(__file__).parent / "stored_names.txt").read_text(encoding="utf-8").split())
"""A changed name makes stored threads unreadable: a name that a release has stored stays here for ever."""
OURS = re.compile(rb'"(perdure[.:][\w.:]+)"')


async def stored_names(storage: Any, thread_id: str, folder: Path) -> set[str]:
    """Every name of ours in all that is stored of a thread."""
    await storage.export_thread(thread_id, folder / "thread.jsonl")
    return {name.decode() for name in OURS.findall((folder / "thread.jsonl").read_bytes())}


@pytest.mark.parametrize("team", TEAMS)
async def test_a_team_stores_only_pinned_names(team: str, tmp_path: Path) -> None:
    storage = InMemoryCheckpointStorage()
    chosen = TEAMS[team]
    await take_to_the_end(chosen.build(storage, None), storage, chosen.message, chosen.answers, thread_id="t")
    names = await stored_names(storage, "t", tmp_path)
    assert names and names <= PINNED


async def test_an_agent_workflow_stores_only_pinned_names(tmp_path: Path) -> None:
    storage = InMemoryCheckpointStorage()
    builder = AgentWorkflow.create().with_name("story").with_checkpointing().with_workflow_store(storage)
    builder.add_agent("draft", ScriptedAgent("writer", ["A draft."]))
    builder.add_agent("edit", ScriptedAgent("editor", ["Done."]))
    instance = builder.from_("draft").to("edit").build()
    result = await instance.run("tides")
    names = await stored_names(storage, result.execution_id, tmp_path)
    assert names and names <= PINNED


@workflow
async def asking(topic: str, ctx: RunContext) -> str:
    answer: str = await ctx.request_info({"topic": topic}, str, request_id="q")
    return answer


async def test_a_function_stores_only_pinned_names(tmp_path: Path) -> None:
    storage = InMemoryCheckpointStorage()
    await asking.build(storage).run("tides", thread_id="t", client_kwargs={"region": "eu"})
    assert await stored_names(storage, "t", tmp_path) <= PINNED


def test_a_pinned_name_is_that_of_a_class() -> None:
    """Of a data type, or of an executor, which the graph's signature names."""
    importlib.import_module("perdure.agents.pydantic.model")  # all others are loaded by now
    assert [name for name in sorted(PINNED) if not re.fullmatch(r"perdure:\w+", name)] == []
    classes = {
        stable_name(value)
        for name, module in list(sys.modules.items())
        if name.startswith("perdure.")
        for value in vars(module).values()
        if isinstance(value, type)
    }
    assert sorted(PINNED - classes) == []
