"""`tool` and `Agent` of the framework's words, taken from perdure, in agents and chat clients of the framework."""

from typing import Annotated, Any

import agent_framework as af
from _scripted import Client
from flows import Agent, AgentExecutor, BaseAgent, WorkflowBuilder, tool
from pydantic import BaseModel, Field


class Place(BaseModel):
    city: str


@tool(approval_mode="never_require")
def weather(city: Annotated[str, Field(description="where")], days: int = 1) -> str:
    """Get the weather."""
    return f"{city} {days}"


@tool(approval_mode="always_require")
def book(city: str) -> str:
    """Book."""
    return f"booked {city}"


@tool(
    name="visit", description="Go there.", schema=Place, max_invocations=1, kind="trip", additional_properties={"a": 1}
)
async def go(city: str) -> str:
    return city


@tool
def plain(number: int) -> int:
    return number + 1


class Counter:
    def __init__(self) -> None:
        self.total = 0

    @tool(approval_mode="never_require", result_parser=lambda value: f"<{value}>")
    def count(self, by: int) -> int:
        """Count."""
        self.total += by
        return self.total


class Nameless(BaseAgent):  # type: ignore[misc]  # an untyped base
    async def run(self, messages: Any = None, *, stream: bool = False, session: Any = None, **kwargs: Any) -> Any:
        return af.AgentResponse(messages=[af.Message("assistant", ["nameless"])])


def described(each: Any) -> list[Any]:
    names = ("name", "description", "approval_mode", "kind", "max_invocations", "additional_properties", "type")
    return [*(getattr(each, name) for name in names), each.parameters(), each.to_dict(), str(each)]


def calls(name: str, arguments: str) -> Any:
    content = af.Content.from_function_call(call_id="c1", name=name, arguments=arguments)
    return af.Agent(client=Client([content], ["done"]), name="agent", tools=[weather, book, plain, Counter().count])


def results(messages: Any) -> list[Any]:
    return [item.result for message in messages for item in message.contents if item.type == "function_result"]


async def asked(tools: Any) -> list[Any]:
    """A tool that needs approval, in a workflow: the requests, and the outputs after the approval."""
    workflow = WorkflowBuilder(start_executor=AgentExecutor(tools)).build()
    requests = (await workflow.run("go")).get_request_info_events()
    answers = {event.request_id: event.data.to_function_approval_response(True) for event in requests}
    outputs = (await workflow.run(responses=answers)).get_outputs()
    return [[event.data.function_call.name for event in requests], [output.text for output in outputs]]


async def main() -> Any:
    counter = Counter()
    contents = [await counter.count.invoke(arguments={"by": 2}), await go.invoke(arguments=Place(city="Rome"))]
    limited = ""
    try:
        await go.invoke(arguments={"city": "Rome"})
    except Exception as error:  # noqa: BLE001  # the comparison shows it
        limited = f"{type(error).__name__}: {error}"
    named = Agent(client=Client(["hello"]), name="greeter", tools=plain)
    return {
        "described": [described(each) for each in (weather, book, go, plain, counter.count)],
        "called": [weather("Rome"), plain(1), counter.count(3), counter.total, await go.func("Bonn")],
        "invoked": [[item.text for item in each] for each in contents],
        "counts": [go.invocation_count, weather.invocation_count, limited],
        "classes": [isinstance(each, af.FunctionTool) for each in (weather, plain, counter.count)],
        "results": [
            results((await calls(*each).run("go")).messages)
            for each in (("weather", '{"city": "Rome"}'), ("plain", '{"number": 1}'), ("count", '{"by": 1}'))
        ],
        "client": (await Client(["ok"]).get_response([af.Message("user", ["q"])], options={"tools": [weather]})).text,
        "approval": await asked(calls("book", '{"city": "Rome"}')),
        "agent": [(await named.run("hi")).text, isinstance(named, af.Agent), len(named.default_options["tools"])],
        "nameless": [
            Nameless().name,
            [each.text for each in (await WorkflowBuilder(start_executor=Nameless()).build().run("q")).get_outputs()],
        ],
    }
