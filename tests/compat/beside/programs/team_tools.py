"""Teams whose agents call tools: what others see of the calls, approvals, and arguments of the run."""

from typing import Any

from _team import Scripted, chat_agent, described, failure_of
from agent_framework import FunctionInvocationContext, tool
from flows import ConcurrentBuilder, GroupChatBuilder, HandoffBuilder, SequentialBuilder

CALLS: list[Any] = []


@tool(approval_mode="never_require")
def weather(city: str) -> str:
    """Returns the weather."""
    CALLS.append(city)
    return f"sun in {city}"


@tool(approval_mode="never_require")
def greet(city: str, ctx: FunctionInvocationContext) -> str:
    """Greets a city."""
    CALLS.append([city, ctx.kwargs.get("user")])
    return f"Hello {city}"


@tool(approval_mode="always_require")
def book(city: str) -> str:
    """Books a journey."""
    CALLS.append(f"booked {city}")
    return f"booked {city}"


def guide() -> Any:
    return chat_agent("guide", {"weather": {"city": "Bern"}}, "It is sunny.", tools=[weather])


def in_turn(state: Any) -> str:
    names = list(state.participants)
    return names[state.current_round % len(names)]


async def main() -> Any:
    CALLS.clear()
    results: dict[str, Any] = {}
    last = Scripted("last", "done")
    result = await SequentialBuilder(participants=[guide(), last]).build().run("Bern?")
    results["sequential"] = described(result)
    last = Scripted("last", "done")
    result = (
        await GroupChatBuilder(participants=[guide(), last], selection_func=in_turn, max_rounds=2).build().run("Bern?")
    )
    results["chat"] = described(result), last.seen
    result = await ConcurrentBuilder(participants=[guide(), Scripted("last", "done")]).build().run("Bern?")
    results["concurrent"] = described(result)

    greeter = chat_agent("greeter", {"greet": {"city": "Bern"}}, "Greeted.", tools=[greet])
    workflow = SequentialBuilder(participants=[greeter, Scripted("last", "done")]).build()
    await workflow.run("Bern?", function_invocation_kwargs={"user": "ada"})
    results["arguments"] = CALLS[-1]
    for name, arguments in {"by name": {"greeter": {"user": "bob"}}, "global": {"user": "eve"}}.items():
        greeter = chat_agent("greeter", {"greet": {"city": "Bern"}}, "Greeted.", tools=[greet])
        await SequentialBuilder(participants=[greeter]).build().run("Bern?", function_invocation_kwargs=arguments)
        results[f"arguments {name}"] = CALLS[-1]

    triage = chat_agent("triage", {"handoff_to_clerk": {}})
    clerk = chat_agent(
        "clerk",
        {"book": {"city": "Bern"}},
        "It is booked.",
        {"weather": {"city": "Rom"}},
        "Sun.",
        tools=[book, weather],
    )
    workflow = HandoffBuilder(participants=[triage, clerk]).with_start_agent(triage).build()
    result = await workflow.run("Book Bern.")
    [request] = result.get_request_info_events()
    results["approval"] = [request.source_executor_id, request.data.type, request.data.function_call.name]
    approval = request.data.to_function_approval_response(approved=True)
    result = await workflow.run(responses={request.request_id: approval})
    results["approved"] = (
        [[event.source_executor_id, type(event.data).__name__] for event in result.get_request_info_events()],
        CALLS[-1],
    )
    [request] = result.get_request_info_events()
    result = await workflow.run(responses={request.request_id: request.data.create_response("And the weather?")})
    results["weather"] = described(result)["requests"], CALLS[-1]

    both = chat_agent("both", {"weather": {"city": "Bern"}, "handoff_to_other": {}}, tools=[weather])
    other = chat_agent("other", "Here.")
    workflow = HandoffBuilder(participants=[both, other]).with_start_agent(both).build()
    results["both"] = described(await workflow.run("Bern?"))["requests"], len(both.client.requests)

    @tool(name="handoff_to_clerk")
    def own() -> str:
        """Has the name of a handoff."""
        return ""

    taken = chat_agent("taken", "x", tools=[own])
    results["taken"] = await failure_of(
        lambda: HandoffBuilder(participants=[taken, chat_agent("clerk", "x")]).with_start_agent(taken).build()
    )
    results["calls"] = CALLS
    required = chat_agent("required", "x", default_options={"tool_choice": {"mode": "auto"}, "temperature": 0.5})
    await HandoffBuilder(participants=[required, chat_agent("clerk", "x")]).with_start_agent(required).build().run("a")
    options = required.client.options[0]
    results["options"] = [options.get("temperature"), str(options.get("tool_choice"))]
    return results
