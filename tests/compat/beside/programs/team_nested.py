"""Teams as agents and inside of other workflows, and events of their runs."""

from typing import Any

from _team import Scripted, described
from flows import (
    ConcurrentBuilder,
    Executor,
    GroupChatBuilder,
    MagenticBuilder,
    Message,
    SequentialBuilder,
    WorkflowBuilder,
    WorkflowContext,
    WorkflowExecutor,
    handler,
)
from team_checkpoints import Manager
from typing_extensions import Never


class Joined(Executor):
    @handler
    async def join(self, response: Any, ctx: WorkflowContext[Never, str]) -> None:
        await ctx.yield_output(f"{type(response).__name__}: {response.text}")


def team() -> list[Scripted]:
    return [Scripted("ann", "one", "two"), Scripted("bob", "eins", "zwei")]


def in_turn(state: Any) -> str:
    names = list(state.participants)
    return names[state.current_round % len(names)]


async def main() -> Any:
    results: dict[str, Any] = {}
    for name, workflow in {
        "sequential": SequentialBuilder(participants=team()).build(),
        "concurrent": ConcurrentBuilder(participants=team()).build(),
        "chat": GroupChatBuilder(participants=team(), selection_func=in_turn, max_rounds=2).build(),
        "intermediate": SequentialBuilder(
            participants=team(), intermediate_output_from="all_other", output_from=["bob"]
        ).build(),
    }.items():
        agent = workflow.as_agent(name="team")
        response = await agent.run("count")
        results[f"agent {name}"] = [agent.name, [f"{m.author_name}: {m.text}" for m in response.messages]]
        response = await agent.run([Message("user", ["count"]), Message("user", ["again"])])
        results[f"agent {name} again"] = [f"{m.author_name}: {m.text}" for m in response.messages]
    inner = SequentialBuilder(participants=team()).build().as_agent(name="inner")
    outer = SequentialBuilder(participants=[Scripted("first", "first"), inner]).build()
    results["agent in a team"] = described(await outer.run("count"))
    inner = ConcurrentBuilder(participants=team()).build().as_agent(name="inner")
    outer = SequentialBuilder(participants=[inner, last := Scripted("last", "last")]).build()
    results["panel in a team"] = described(await outer.run("count")), last.seen
    child = WorkflowExecutor(SequentialBuilder(participants=team()).build(), id="child")
    parent = WorkflowBuilder(start_executor=child).add_edge(child, joined := Joined(id="joined")).build()
    results["in a workflow"] = described(await parent.run("count"))
    assert joined.id == "joined"
    result = await MagenticBuilder(participants=team(), manager=Manager()).build().run("count")
    results["magentic events"] = [
        [event.type, type(event.data).__name__, getattr(event.data, "round_index", None)]
        for event in result
        if event.type in ("group_chat", "magentic_orchestrator")
    ]
    return results
