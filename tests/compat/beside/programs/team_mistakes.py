"""Mistakes in teams: the kind of each error, and the words that programs look for in its text."""

import json
from typing import Any

from _samples import talker
from flows import (
    AgentExecutorRequest,
    AgentExecutorResponse,
    AgentRequestInfoResponse,
    ConcurrentBuilder,
    Executor,
    GroupChatBuilder,
    HandoffBuilder,
    MagenticBuilder,
    SequentialBuilder,
    WorkflowContext,
    handler,
)

KEPT: Any = {"require_per_service_call_history_persistence": True}


class Plain(Executor):
    @handler
    async def answer(self, request: AgentExecutorRequest, ctx: WorkflowContext[AgentExecutorResponse]) -> None:
        """Answers nothing."""


def agent(name: str, *replies: str) -> Any:
    return talker(name, *(replies or ("said",)), **KEPT)


def first(state: Any) -> str:
    return str(next(iter(state.participants)))


def handoff(*names: str) -> Any:
    return HandoffBuilder(participants=[agent(name) for name in names])


def lead_nowhere() -> Any:
    answer = {"terminate": False, "reason": "", "next_speaker": None, "final_message": None}
    leader = agent("leader", json.dumps(answer))
    return GroupChatBuilder(participants=[agent("a")], orchestrator_agent=leader).build().run("Talk")


async def main() -> list[Any]:
    a, b, plain = agent("a"), agent("b"), Plain(id="plain")
    pair: Any = {"participants": [a, b]}
    chat: Any = {"selection_func": first}
    cases: list[tuple[str, Any]] = [
        ("participants cannot be empty", lambda: SequentialBuilder(participants=[])),
        ("participants cannot be empty", lambda: SequentialBuilder(participants=None)),
        ("participants cannot be empty", lambda: ConcurrentBuilder(participants=[])),
        ("participants cannot be empty", lambda: GroupChatBuilder(participants=[], **chat)),
        ("participants cannot be empty", lambda: MagenticBuilder(participants=[], manager_agent=a)),
        ("Duplicate agent participant detected", lambda: SequentialBuilder(participants=[a, a])),
        ("Duplicate executor participant detected: id 'plain'", lambda: ConcurrentBuilder(participants=[plain, plain])),
        ("Duplicate participant name 'a' detected", lambda: GroupChatBuilder(participants=[a, agent("a")], **chat)),
        ("Participants must be SupportsAgentRun or Executor", lambda: SequentialBuilder(participants=[3]).build()),
        ("SupportsAgentRun or Executor instances", lambda: ConcurrentBuilder(participants=[3])),
        ("Unknown output participant 'c'", lambda: SequentialBuilder(**pair, output_from=["c"]).build()),
        ("output_from='all_other' is invalid", lambda: SequentialBuilder(**pair, output_from="all_other").build()),
        ("No orchestrator has been configured. Pass", lambda: GroupChatBuilder(**pair).build()),
        ("Exactly one of orchestrator_agent", lambda: GroupChatBuilder(**pair, **chat, orchestrator_agent=b)),
        ("Orchestrator factory must return Agent", lambda: GroupChatBuilder(**pair, orchestrator=lambda: 3).build()),
        ("Duplicate executor ID 'a' detected", lambda: GroupChatBuilder(**pair, orchestrator_agent=a).build()),
        ("No participants provided. Call .participants() first", lambda: HandoffBuilder(participants=[]).build()),
        ("Call participants(...) before with_start_agent(...)", lambda: HandoffBuilder().with_start_agent(a)),
        ("Call participants(...) before add_handoff(...)", lambda: HandoffBuilder().add_handoff(a, [b])),
        ("Participants must be Agent instances. Got", lambda: HandoffBuilder(participants=[plain])),
        ("Start agent 'c' is not in the participants list", lambda: handoff("a", "b").with_start_agent("c")),
        ("No manager configured. Pass", lambda: MagenticBuilder(**pair).build()),
        ("or manager_agent_factory must be provided", lambda: MagenticBuilder(**pair, manager_agent=a, manager=b)),
        ("unknown participant 'c'", lambda: GroupChatBuilder(**pair, selection_func=lambda _: "c").build().run("x")),
        ("next_speaker must be provided if not terminating", lead_nowhere),
    ]
    results: list[Any] = []
    for words, case in cases:
        try:
            value = case()
            if hasattr(value, "__await__"):
                await value
            results.append([words, "no error"])
        except (ValueError, TypeError, RuntimeError) as error:
            results.append([words, words in str(error), isinstance(error, TypeError)])
    team = GroupChatBuilder(**pair, orchestrator=lambda: agent("leader")).build()
    return [*results, sorted(team.executors), AgentRequestInfoResponse.from_strings([]).messages]
