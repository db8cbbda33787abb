"""A run without a message: no agent is asked, and the thread continues with the next message."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from perdure import InMemoryCheckpointStorage, Workflow, WorkflowBuilder, WorkflowRunState
from perdure.orchestrations import GroupChatBuilder, SequentialBuilder
from perdure.testing import ScriptedAgent


def ann() -> ScriptedAgent:
    return ScriptedAgent("ann", ["Hello."])


def alone(storage: Any) -> Workflow:
    return WorkflowBuilder(name="alone", start_executor=ann(), checkpoint_storage=storage).build()


def sequential(storage: Any) -> Workflow:
    return SequentialBuilder(participants=[ann()], checkpoint_storage=storage).build()


def group_chat(storage: Any) -> Workflow:
    builder = GroupChatBuilder(participants=[ann()], selection_func=lambda state: "ann", max_rounds=1)
    return builder.with_checkpointing(storage).build()


@pytest.mark.parametrize("build", [alone, sequential, group_chat])
async def test_empty_run_asks_no_agent_and_the_thread_stays_usable(build: Callable[[Any], Workflow]) -> None:
    storage = InMemoryCheckpointStorage()
    nothing = await build(storage).run([], thread_id="t")
    [warning] = [event.data for event in nothing if event.type == "warning"]
    assert "got no message" in warning
    assert (nothing.get_outputs(), nothing.usage) == ([], {})
    something = await build(storage).run("Hi", thread_id="t")
    assert something.get_final_state() is WorkflowRunState.IDLE
    assert something.usage["output_token_count"] == 1
