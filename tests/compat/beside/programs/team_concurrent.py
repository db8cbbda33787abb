"""Teams at the same time: aggregators of all kinds, outputs, and errors of the builder."""

from typing import Any

from _team import Scripted, described, failure_of
from flows import (
    AgentExecutorRequest,
    AgentExecutorResponse,
    AgentResponse,
    ConcurrentBuilder,
    Executor,
    Message,
    WorkflowContext,
    handler,
)
from typing_extensions import Never


class Joining(Executor):
    @handler
    async def join(self, results: list[AgentExecutorResponse], ctx: WorkflowContext[Never, str]) -> None:
        await ctx.yield_output(" | ".join(sorted(result.agent_response.text for result in results)))


class Member(Executor):
    @handler
    async def answer(self, request: AgentExecutorRequest, ctx: WorkflowContext[AgentExecutorResponse]) -> None:
        message = Message("assistant", [f"{self.id} read {len(request.messages)}"])
        response = AgentResponse(messages=[message])
        conversation = [*request.messages, message]
        await ctx.send_message(AgentExecutorResponse(self.id, response, full_conversation=conversation))


async def join_async(results: list[AgentExecutorResponse]) -> str:
    return " and ".join(result.agent_response.text for result in results)


def join_sync(results: list[AgentExecutorResponse]) -> int:
    return len(results)


async def join_with_context(results: list[AgentExecutorResponse], ctx: WorkflowContext[Any, Any]) -> None:
    await ctx.yield_output([result.executor_id for result in results])


def join_sync_with_context(results: list[AgentExecutorResponse], ctx: WorkflowContext[Any, Any]) -> str:
    return f"{len(results)}"


def team() -> list[Scripted]:
    return [Scripted("ann", "yes", "again yes"), Scripted("bob", "no", "again no")]


async def main() -> Any:
    results: dict[str, Any] = {}
    agents = team()
    workflow = ConcurrentBuilder(participants=agents).build()
    results["agents"] = described(await workflow.run("well?")), [agent.seen for agent in agents]
    results["executors"] = sorted(workflow.executors), workflow.get_start_executor().id
    results["again"] = described(await workflow.run("really?")), [agent.seen for agent in agents]
    for function in (join_async, join_sync, join_with_context, join_sync_with_context):
        workflow = ConcurrentBuilder(participants=team()).with_aggregator(function).build()
        name = function.__name__
        results[name] = described(await workflow.run("well?")), sorted(workflow.executors)
    workflow = ConcurrentBuilder(participants=team()).with_aggregator(Joining(id="joining")).build()
    results["executor"] = described(await workflow.run("well?")), sorted(workflow.executors)
    workflow = ConcurrentBuilder(participants=[team()[0], Member(id="member")]).build()
    results["member"] = described(await workflow.run("well?"))
    results["request"] = described(await workflow.run(AgentExecutorRequest(messages=[Message("user", ["well?"])])))
    results["messages"] = described(await workflow.run([Message("user", ["well?"]), "so?"]))
    for name, options in {
        "all": {"output_from": "all"},
        "first": {"output_from": ["ann"]},
        "intermediate": {"intermediate_output_from": "all"},
        "other": {"output_from": ["ann"], "intermediate_output_from": "all_other"},
    }.items():
        result = await ConcurrentBuilder(participants=team(), **options).build().run("well?")
        results[f"outputs {name}"] = described(result)
    builder = ConcurrentBuilder(participants=team()).with_aggregator(join_sync)
    ann = team()[0]
    results["errors"] = [
        await failure_of(lambda: ConcurrentBuilder(participants=[])),
        await failure_of(lambda: ConcurrentBuilder(participants=[ann, ann])),
        await failure_of(lambda: ConcurrentBuilder(participants=[Member(id="x"), Member(id="x")])),
        await failure_of(lambda: ConcurrentBuilder(participants=[ann, object()])),
        await failure_of(lambda: builder.with_aggregator(join_sync)),
        await failure_of(lambda: ConcurrentBuilder(participants=team()).with_aggregator("join")),
    ]
    again = builder.build(), builder.build()
    results["built twice"] = [described(await workflow.run("well?")) for workflow in again]
    return results
