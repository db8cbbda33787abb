"""A group chat for the tests: three agents that speak in turn, or as selected."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from tests.unit.orchestrations.teams import kept_by, texts

from perdure import Workflow, WorkflowContext
from perdure.orchestrations.group_chat import (
    AgentOrchestrationOutput,
    BaseGroupChatOrchestrator,
    GroupChatState,
    OrchestrationState,
)
from perdure.orchestrations.group_chat_builder import GroupChatBuilder
from perdure.testing.scripted import ScriptedAgent

OVER = "The group chat has reached its termination condition."
LONG_ENOUGH = "The group chat has reached the maximum number of rounds."
LEADER = GroupChatBuilder.DEFAULT_ORCHESTRATOR_ID


def in_turn(state: GroupChatState) -> str:
    return list(state.participants)[state.current_round % len(state.participants)]


def trio(log: Path | None = None) -> list[Any]:
    return [ScriptedAgent(name, [f"{name} {n}." for n in range(1, 20)], log=log) for name in ("ann", "bob", "cy")]


def chat(storage: Any = None, log: Path | None = None, **options: Any) -> Workflow:
    options = {"participants": trio(log), "selection_func": in_turn, "max_rounds": 4, **options}
    if "participant_factories" in options:
        del options["participants"]
    return GroupChatBuilder(checkpoint_storage=storage, **options).build()


async def conversation(storage: Any) -> list[str]:
    kept = OrchestrationState.from_dict(await kept_by(storage, LEADER))
    return texts(kept.conversation)


class AsksTheShortest(BaseGroupChatOrchestrator):
    """Selects the participant with the shortest name once, then ends the chat."""

    def __init__(self, last_words: str) -> None:
        super().__init__("leader", name="chair", max_rounds=5)
        self.last_words = last_words

    async def decide(self, state: GroupChatState, ctx: WorkflowContext[Any, Any]) -> AgentOrchestrationOutput:
        if state.current_round:
            return AgentOrchestrationOutput(True, "once is enough", final_message=self.last_words)
        return AgentOrchestrationOutput(False, "the shortest", min(state.participants, key=len))
