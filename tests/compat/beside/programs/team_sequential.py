"""Teams in a row: outputs, conversations, executors among agents, and errors of the builder."""

from typing import Any

from _team import Scripted, described, failure_of
from flows import (
    AgentExecutorResponse,
    Executor,
    Message,
    SequentialBuilder,
    WorkflowBuilder,
    WorkflowContext,
    WorkflowExecutor,
    handler,
)
from typing_extensions import Never


class Summary(Executor):
    @handler
    async def summarize(self, response: AgentExecutorResponse, ctx: WorkflowContext[list[Message]]) -> None:
        count = len(response.full_conversation)
        await ctx.send_message([*response.full_conversation, Message("assistant", [f"{count} messages"])])


class Counting(Executor):
    @handler
    async def count(self, conversation: list[Message], ctx: WorkflowContext[Never, str]) -> None:
        await ctx.yield_output(f"{len(conversation)} messages")


class Last(Executor):
    @handler
    async def end(self, response: AgentExecutorResponse, ctx: WorkflowContext[Never, str]) -> None:
        await ctx.yield_output(f"end of {response.executor_id}: {len(response.full_conversation)}")


class Starting(Executor):
    @handler
    async def start(self, response: AgentExecutorResponse, ctx: WorkflowContext[str, str]) -> None:
        await ctx.yield_output(f"inside after {response.executor_id}")


def team() -> list[Scripted]:
    return [Scripted("writer", "a draft", "a second draft"), Scripted("editor", "a text", "a second text")]


async def main() -> Any:
    results: dict[str, Any] = {}
    agents = team()
    workflow = SequentialBuilder(participants=agents).build()
    results["agents"] = described(await workflow.run("write")), [agent.seen for agent in agents]
    results["executors"] = sorted(workflow.executors), workflow.get_start_executor().id
    results["again"] = described(await workflow.run("write again")), [agent.seen for agent in agents]

    agents = team()
    result = await SequentialBuilder(participants=agents, chain_only_agent_responses=True).build().run("write")
    results["chained"] = described(result), [agent.seen for agent in agents]

    for name, options in {
        "all": {"output_from": "all"},
        "first": {"output_from": ["writer"]},
        "intermediate": {"intermediate_output_from": "all_other"},
        "intermediate all": {"intermediate_output_from": "all"},
        "both": {"output_from": ["editor"], "intermediate_output_from": ["writer"]},
        "only intermediate": {"intermediate_output_from": ["writer"]},
    }.items():
        result = await SequentialBuilder(participants=team(), **options).build().run("write")
        results[f"outputs {name}"] = described(result)

    message_result = await SequentialBuilder(participants=team()).build().run(Message("user", ["write"]))
    results["message"] = described(message_result)
    listed = await SequentialBuilder(participants=team()).build().run([Message("user", ["write"]), "shortly"])
    results["messages"] = described(listed)

    agents = team()
    result = await SequentialBuilder(participants=[agents[0], Summary(id="summary"), agents[1]]).build().run("write")
    results["executor"] = described(result), agents[1].seen
    result = await SequentialBuilder(participants=[agents[0], Last(id="last")]).build().run("write")
    results["executor at the end"] = described(result)

    inner = WorkflowBuilder(start_executor=Starting(id="starting")).build()
    outer = SequentialBuilder(participants=[agents[0], WorkflowExecutor(inner, id="inner")]).build()
    results["sub-workflow"] = described(await outer.run("write"))
    outer = SequentialBuilder(
        participants=[agents[0], WorkflowExecutor(inner, id="inner", allow_direct_output=True)]
    ).build()
    results["direct sub-workflow"] = described(await outer.run("write"))

    first, second = Scripted("one", "1"), Scripted("one", "2")
    results["errors"] = [
        await failure_of(lambda: SequentialBuilder(participants=[])),
        await failure_of(lambda: SequentialBuilder(participants=[first, first])),
        await failure_of(lambda: SequentialBuilder(participants=[Last(id="x"), Last(id="x")])),
        await failure_of(lambda: SequentialBuilder(participants=[first, second]).build()),
        await failure_of(lambda: SequentialBuilder(participants=[first, object()]).build()),
        await failure_of(lambda: SequentialBuilder(participants=[first], output_from="some").build()),
        await failure_of(lambda: SequentialBuilder(participants=[first], output_from=["other"]).build()),
        await failure_of(lambda: SequentialBuilder(participants=[first], output_from=["one", "one"]).build()),
        await failure_of(lambda: SequentialBuilder(participants=[first], output_from=[]).build()),
    ]
    unnamed = SequentialBuilder(participants=[Scripted(None, "a"), Scripted(None, "b")]).build()
    results["unnamed"] = [output.text for output in (await unnamed.run("write")).get_outputs()]
    return results
