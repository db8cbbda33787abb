"""Names under which our own types are stored: short, unique, and independent of where the code lives."""

from __future__ import annotations

import importlib
import re
import sys
from pathlib import Path
from typing import Any

import pytest
from tests.crash.teams import TEAMS

from perdure import (
    AgentWorkflow,
    AgentWorkflowInstance,
    InMemoryCheckpointStorage,
    RunContext,
    StorageSessionStore,
    WorkflowBuilder,
    WorkflowExecutor,
    WorkflowResult,
    workflow,
)
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


async def take_through(result: WorkflowResult, workflow: AgentWorkflowInstance) -> None:
    """Approve the first request and deny the others, until the execution ends."""
    answer = workflow.approve
    while result.pending:
        result, answer = await answer(result.pending[0].request_id), workflow.deny


async def test_an_agent_workflow_stores_only_pinned_names(tmp_path: Path) -> None:
    """With all that an execution stores: tasks, approvals, an inner workflow, passes of a loop, skipped nodes."""
    storage = InMemoryCheckpointStorage()
    inner = AgentWorkflow.create().with_name("inner").add_agent("check", ScriptedAgent("checker", ["Fine."])).build()
    builder = AgentWorkflow.create().with_name("story").with_checkpointing().with_workflow_store(storage)
    builder.with_session_store(StorageSessionStore(storage)).with_conversation("shared").with_max_iterations(2)
    builder.add_agent("draft", ScriptedAgent("writer", ["A draft.", "Another."]), lambda node: node.requires_approval())
    builder.add_workflow("inner", inner, lambda node: node.requires_approval())
    builder.add_agent("edit", ScriptedAgent("editor", ["Done."]))
    builder.from_("draft").to("inner").from_("inner").to("edit").from_("inner").to("draft").when_not_exists("missing")
    workflow = builder.build()
    await take_through(await workflow.run("tides", "e"), workflow)
    names: set[str] = set()
    for thread in await storage.list_threads():
        names |= await stored_names(storage, thread.thread_id, tmp_path)
        (tmp_path / "thread.jsonl").unlink()
    assert names >= {"perdure:ApprovalDecision", "perdure:InnerInput", "perdure:SessionEntry", "perdure:SessionRef"}
    assert names - {"perdure.conversations"} <= PINNED, "the other is the name of a workflow"


@workflow
async def asking(topic: str, ctx: RunContext) -> str:
    answer: str = await ctx.request_info({"topic": topic}, str, request_id="q")
    return answer


async def test_a_function_stores_only_pinned_names(tmp_path: Path) -> None:
    storage = InMemoryCheckpointStorage()
    await asking.build(storage).run("tides", thread_id="t", client_kwargs={"region": "eu"})
    assert await stored_names(storage, "t", tmp_path) <= PINNED


async def test_a_sub_workflow_stores_only_pinned_names(tmp_path: Path) -> None:
    storage = InMemoryCheckpointStorage()
    inner = WorkflowExecutor(asking.build(), id="inner", propagate_request=True)
    outer = WorkflowBuilder(name="outer", start_executor=inner, checkpoint_storage=storage).build()
    result = await outer.run("tides", thread_id="t")
    await outer.run(responses={event.request_id: "yes" for event in result.get_request_info_events()}, thread_id="t")
    names = await stored_names(storage, "t", tmp_path)
    assert "perdure:WorkflowExecutor" in names and names <= PINNED


def test_a_pinned_name_is_that_of_a_class() -> None:
    """Of a data type, or of an executor, which the graph's signature names."""
    for module in ("perdure.agents.pydantic.model", "perdure.server.threads.as_json"):  # all others are loaded by now
        importlib.import_module(module)
    assert [name for name in sorted(PINNED) if not re.fullmatch(r"perdure:[A-Z]\w+", name)] == []
    classes = {
        stable_name(value)
        for name, loaded in list(sys.modules.items())
        if name.startswith("perdure.")
        for value in vars(loaded).values()
        if isinstance(value, type)
    }
    assert sorted(PINNED - classes) == []
