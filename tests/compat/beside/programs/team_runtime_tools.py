"""Tools of a run, cancelled requests, and agents that are asked to continue."""

from typing import Any

from _team import Scripted, chat_agent, described, plain
from agent_framework import tool
from flows import (
    AgentExecutor,
    Executor,
    HandoffBuilder,
    SequentialBuilder,
    WorkflowBuilder,
    WorkflowContext,
    handler,
    response_handler,
)
from typing_extensions import Never

VERSIONS = ("1.23",)


@tool(approval_mode="never_require")
def weather(city: str) -> str:
    """Returns the weather."""
    return f"sun in {city}"


@tool(approval_mode="always_require")
def book(city: str) -> str:
    """Books a journey."""
    return f"booked {city}"


class Asking(Executor):
    @handler
    async def ask(self, text: str, ctx: WorkflowContext[Never, str]) -> None:
        tools = ctx.get_runtime_tools()
        await ctx.yield_output(f"{None if tools is None else len(tools)} tools")
        await ctx.request_info(f"{text}?", str)
        await ctx.request_info(f"{text}!", str)

    @response_handler
    async def answered(self, question: str, answer: str, ctx: WorkflowContext[Never, str]) -> None:
        await ctx.yield_output(f"{question} {answer}")


async def main() -> Any:
    results: dict[str, Any] = {}
    guide = chat_agent("guide", {"weather": {"city": "Bern"}}, "It is sunny.")
    workflow = WorkflowBuilder(start_executor=guide).build()
    results["tools"] = described(await workflow.run("Bern?", tools=[weather])), guide.client.requests
    await workflow.run("Bern?")
    results["tools of one run"] = [
        [named.name for named in options.get("tools") or []] for options in guide.client.options
    ]
    workflow = WorkflowBuilder(start_executor=Asking(id="asking")).build()
    results["one tool"] = plain((await workflow.run("so", tools=weather)).get_outputs())
    result = await WorkflowBuilder(start_executor=Asking(id="asking")).build().run("so")
    results["no tools"] = plain(result.get_outputs())

    workflow = WorkflowBuilder(start_executor=Asking(id="asking")).build()
    first, second = (await workflow.run("so")).get_request_info_events()
    result = await workflow.cancel_pending_requests([first.request_id])
    results["cancelled"] = plain(result.get_outputs()), str(result.get_final_state())
    results["the other"] = described(await workflow.run(responses={second.request_id: "yes"}))
    results["unknown"] = described(await workflow.cancel_pending_requests(["no such request"]))

    agent = chat_agent("agent", {"book": {"city": "Bern"}}, "Then not.", tools=[book])
    workflow = WorkflowBuilder(start_executor=agent).build()
    [request] = (await workflow.run("Book Bern.")).get_request_info_events()
    result = await workflow.cancel_pending_requests([request.request_id])
    results["approval"] = result.get_outputs()[0].messages[-1].text, len(agent.client.requests)

    triage, clerk = chat_agent("triage", "What is it?"), chat_agent("clerk", "Here.")
    workflow = HandoffBuilder(participants=[triage, clerk]).with_start_agent(triage).build()
    [request] = (await workflow.run("Hello.")).get_request_info_events()
    results["handoff"] = described(await workflow.cancel_pending_requests([request.request_id]))

    agents = [Scripted("ann", "one"), Scripted("bob", "two")]
    workflow = SequentialBuilder(
        participants=agents, chain_only_agent_responses=True, ensure_trailing_user_turn=True
    ).build()
    results["continued"] = described(await workflow.run("count")), [agent.seen for agent in agents]
    agents = [Scripted("ann", "one"), Scripted("bob", "two")]
    first, second = (AgentExecutor(agent, ensure_trailing_user_turn=True) for agent in agents)
    workflow = WorkflowBuilder(start_executor=first).add_edge(first, second).build()
    results["executors"] = described(await workflow.run("count")), [agent.seen for agent in agents]
    return results
