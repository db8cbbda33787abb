"""Agent: models, tools, sessions and structured output, outside of a workflow."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from dataclasses import dataclass
from typing import Any, TypedDict

import msgspec
import pydantic
import pydantic_ai
import pytest
from pydantic_ai.models.function import FunctionModel
from pydantic_ai.models.test import TestModel
from tests.unit.agents.agent_models import Script, call, last_contents, prompts

from perdure import RetryPolicy
from perdure.agents import AgentSession, Content, Message, ToolContext, tool
from perdure.agents.pydantic.agent import Agent
from perdure.errors import AgentFailed, TimedOut, UsageLimitReached


def double(number: int) -> int:
    """Twice the number.

    Args:
        number: Any number.
    """
    return 2 * number


# ---------------------------------------------------------------- answers


async def test_agent_response_has_text_author_and_usage() -> None:
    script = Script(["Hello."])
    response = await Agent(script.model(), name="writer", instructions="Be short.").run("Hi")
    assert response.text == "Hello."
    assert [message.author_name for message in response.messages] == ["writer"]
    assert response.usage_details == {"input_token_count": 10, "output_token_count": 5, "total_token_count": 15}
    assert script.infos[0].instructions == "Be short."


async def test_session_continues_from_turn_to_turn() -> None:
    script = Script(["One.", "Two."])
    agent, session = Agent(script.model(), name="writer"), AgentSession()
    await agent.run("first", session=session)
    await agent.run("second", session=session)
    assert prompts(script.received[1]) == ["first", "second"]
    assert [message.text for message in session.messages] == ["first", "One.", "second", "Two."]


async def test_session_restored_from_json_continues() -> None:
    script = Script([call("double", {"number": 3}, "c1"), "Six.", "Still six."])
    agent, session = Agent(script.model(), name="writer", tools=[double]), AgentSession()
    await agent.run("Twice three?", session=session)
    again = AgentSession.from_dict(msgspec.json.decode(msgspec.json.encode(session.to_dict())))
    response = await agent.run("Sure?", session=again)
    assert response.text == "Still six."
    assert [type(message).__name__ for message in script.received[2]] == [
        "ModelRequest",
        "ModelResponse",
        "ModelRequest",
        "ModelResponse",
        "ModelRequest",
    ]


async def test_model_receives_texts_of_other_agents_but_not_their_calls() -> None:
    script = Script(["Agreed."])
    session = AgentSession()
    session.add(
        [
            Message("user", "Plan."),
            Message("assistant", [Content.from_function_call("x", "search", arguments="{}")], "planner"),
            Message("tool", [Content.from_function_result("x", result="found")]),
            Message("assistant", "Do it.", "planner"),
        ]
    )
    await Agent(script.model(), name="writer").run([], session=session)
    assert last_contents(script.received[0]) == ["Plan.", "planner: Do it."]


async def test_agent_that_spoke_last_is_asked_to_continue() -> None:
    script = Script(["One.", "Two."])
    agent, session = Agent(script.model(), name="writer"), AgentSession()
    await agent.run("first", session=session)
    assert (await agent.run(session=session)).text == "Two."
    assert prompts(script.received[1]) == ["first", "Please go on."]


# ---------------------------------------------------------------- tools


async def test_a_plain_function_is_a_tool_with_its_types_and_its_documentation() -> None:
    script = Script([call("double", {"number": 3}, "c1"), "It is 6."])
    response = await Agent(script.model(), name="writer", tools=[double]).run("Twice three?")
    (definition,) = script.infos[0].function_tools
    assert (definition.name, definition.description) == ("double", "Twice the number.")
    assert definition.parameters_json_schema["properties"]["number"]["description"] == "Any number."
    assert [message.role for message in response.messages] == ["assistant", "tool", "assistant"]
    assert response.messages[1].contents[0].result == 6
    assert response.usage_details == {"input_token_count": 20, "output_token_count": 10, "total_token_count": 30}


async def test_tool_receives_its_call_context_which_the_model_does_not_see() -> None:
    seen: list[ToolContext] = []

    @tool(name="look", description="Look it up.")
    async def look_up(word: str, context: ToolContext) -> str:
        seen.append(context)
        return word.upper()

    script = Script([call("look", {"word": "a"}, "c1"), "Done."])
    await Agent(script.model(), name="writer", tools=[look_up]).run("Go")
    (definition,) = script.infos[0].function_tools
    assert list(definition.parameters_json_schema["properties"]) == ["word"]
    assert (definition.name, definition.description) == ("look", "Look it up.")
    assert [(context.call_id, context.agent_name, context.thread_id) for context in seen] == [("c1", "writer", None)]


async def test_tool_can_return_types_that_pydantic_does_not_know() -> None:
    class Desk:
        def answer(self, name: str = "Ada") -> Answer:
            """Answer."""
            return Answer(name, [1])

    script = Script([call("answer", {}, "c1"), "Done."])
    response = await Agent(script.model(), name="writer", tools=[Desk().answer]).run("Go")
    assert last_contents(script.received[1]) == [{"name": "Ada", "numbers": [1]}]
    assert response.messages[1].contents[0].result == {"name": "Ada", "numbers": [1]}


async def test_tools_and_response_format_can_be_passed_for_one_run() -> None:
    script = Script([call("double", {"number": 2}, "c1"), call("final_result", {"name": "four"}, "c2"), "Plain."])
    agent = Agent(script.model(), name="writer")
    response = await agent.run("Go", tools=[double], response_format=Answer)
    assert response.value == Answer("four")
    assert [definition.name for definition in script.infos[0].function_tools] == ["double"]
    assert (await agent.run("Go")).text == "Plain."
    assert script.infos[-1].function_tools == []


async def test_tool_that_ends_the_turn_is_its_last_step() -> None:
    @tool(ends_turn=True)
    def hand_over(to: str) -> str:
        return f"over to {to}"

    script = Script([call("hand_over", {"to": "editor"}, "c1"), "Never said.", "Back again."])
    agent, session = Agent(script.model(), name="writer", tools=[hand_over]), AgentSession()
    response = await agent.run("Go", session=session)
    assert script.requests == 1
    assert [message.role for message in response.messages] == ["assistant", "tool"]
    assert response.messages[1].contents[0].result == "over to editor"
    await agent.run("And now?", session=session)
    assert last_contents(script.received[1]) == ["over to editor", "And now?"]


async def test_model_receives_the_error_of_a_tool() -> None:
    def broken() -> str:
        raise LookupError("no such page")

    script = Script([call("broken", {}, "c1"), "I could not."])
    response = await Agent(script.model(), name="writer", tools=[broken]).run("Go")
    assert response.text == "I could not."
    assert response.messages[1].contents[0].exception == "LookupError: no such page"
    assert last_contents(script.received[1]) == ["LookupError: no such page"]


async def test_model_receives_the_error_of_invalid_arguments_and_tries_again() -> None:
    script = Script(
        [
            call("double", '{"number": "many"}', "c1"),
            call("double", "{not json", "c2"),
            call("double", {"number": 4}, "c3"),
            "It is 8.",
        ]
    )
    response = await Agent(script.model(), name="writer", tools=[double]).run("Go")
    assert response.text == "It is 8."
    assert "valid integer" in str(last_contents(script.received[1]))
    results = [content for message in response.messages for content in message.of_type("function_result")]
    assert [content.exception is None for content in results] == [False, False, True]


async def test_model_receives_an_error_for_an_unknown_tool() -> None:
    script = Script([call("triple", {}, "c1"), "Then not."])
    response = await Agent(script.model(), name="writer", tools=[double]).run("Go")
    assert response.text == "Then not."
    assert "triple" in str(last_contents(script.received[1]))


async def test_a_model_that_keeps_calling_wrongly_fails_the_turn() -> None:
    script = Script([call("double", {}, f"c{place}") for place in range(9)])
    with pytest.raises(AgentFailed, match=r"Agent 'writer': its turn failed.*double.*Finished calls"):
        await Agent(script.model(), name="writer", tools=[double], tool_retries=2).run("Go")
    assert script.requests == 3


# ---------------------------------------------------------------- structured output


class Answer(msgspec.Struct):
    name: str
    numbers: list[int] = []


@dataclass
class Point:
    x: int
    y: int


class Person(pydantic.BaseModel):
    name: str


class Place(TypedDict):
    town: str


@pytest.mark.parametrize(
    ("kind", "value"),
    [
        pytest.param(Answer, Answer("a", [1, 2]), id="msgspec"),
        pytest.param(Point, Point(1, 2), id="dataclass"),
        pytest.param(Person, Person(name="Ada"), id="pydantic"),
        pytest.param(Place, {"town": "Ulm"}, id="TypedDict"),
    ],
)
async def test_structured_output_is_a_value_of_its_type_and_a_text_of_json(kind: Any, value: Any) -> None:
    arguments = msgspec.to_builtins(value) if not isinstance(value, Person) else value.model_dump()
    script = Script([call("final_result", arguments, "c1")])
    response = await Agent(script.model(), name="writer", output_type=kind).run("Go")
    assert response.value == value
    assert msgspec.json.decode(response.text) == arguments
    assert [message.role for message in response.messages] == ["assistant"]


async def test_an_output_that_does_not_fit_is_asked_for_again() -> None:
    script = Script([call("final_result", {"numbers": 3}, "c1"), call("final_result", {"name": "b"}, "c2")])
    response = await Agent(script.model(), name="writer", output_type=Answer).run("Go")
    assert response.value == Answer("b")
    assert "Not a Answer" in str(last_contents(script.received[1]))


# ---------------------------------------------------------------- what goes wrong


async def test_model_error_names_the_agent_and_leaves_the_session_unchanged() -> None:
    script = Script([pydantic_ai.exceptions.ModelHTTPError(503, "gpt", "overloaded")])
    session = AgentSession()
    with pytest.raises(AgentFailed, match=r"Agent 'writer'.*503") as caught:
        await Agent(script.model(), name="writer").run("Go", session=session)
    assert isinstance(caught.value.__cause__, pydantic_ai.exceptions.ModelHTTPError)
    assert session.messages == []


async def test_usage_limit_raises_usage_limit_reached() -> None:
    script = Script([call("double", {"number": 1}, f"c{place}") for place in range(9)])
    agent = Agent(script.model(), name="writer", tools=[double], usage_limits={"request_limit": 2})
    with pytest.raises(UsageLimitReached, match=r"Agent 'writer': a limit of its usage was reached.*request_limit"):
        await agent.run("Go")
    assert script.requests == 2


async def test_failed_request_is_retried_up_to_the_policy() -> None:
    class Flaky(Script):
        def _next(self, messages: Any, info: Any) -> list[Any]:
            if self.requests < 2:
                self.received.append(messages)
                raise ConnectionError("gone")
            return super()._next(messages, info)

    script = Flaky(["Here."])
    agent = Agent(script.model(), name="writer", retry=RetryPolicy(3, initial_delay=0.001))
    assert (await agent.run("Go")).text == "Here."
    assert script.requests == 3


async def test_request_that_exceeds_its_timeout_raises_timed_out() -> None:
    async def never(messages: Any, info: Any) -> Any:
        await asyncio.Event().wait()

    with pytest.raises(TimedOut, match=r"writer\.model"):
        await Agent(FunctionModel(never), name="writer", timeout=0.01).run("Go")


async def test_missing_api_key_fails_the_turn_and_not_the_agent_constructor(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)
    agent = Agent("openai:gpt-5", name="writer")
    with pytest.raises(AgentFailed, match=r"Agent 'writer'.*OPENAI_API_KEY"):
        await agent.run("Go")


async def test_unexpected_model_error_names_the_agent() -> None:
    with pytest.raises(AgentFailed, match="Agent 'writer': its turn failed with ZeroDivisionError: oh"):
        await Agent(Script([ZeroDivisionError("oh")]).model(), name="writer").run("Go")


@pytest.mark.parametrize(
    ("options", "error", "message"),
    [
        pytest.param({"model": 7}, TypeError, "a model of pydantic-ai", id="no model"),
        pytest.param({"name": ""}, ValueError, "needs a name", id="no name"),
        pytest.param({"tools": [double, double]}, ValueError, "two tools named 'double'", id="a tool twice"),
        pytest.param({"tools": ["double"]}, TypeError, "A tool is a function", id="no tool"),
        pytest.param({"retry": 0}, ValueError, "max_attempts", id="no attempts"),
        pytest.param({"usage_limits": {"requests": 1}}, TypeError, "requests", id="no limit"),
    ],
)
def test_bad_arguments_are_rejected_at_once(options: dict[str, Any], error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        Agent(options.pop("model", TestModel()), **{"name": "writer", **options})


def test_missing_extra_is_named_and_the_rest_of_perdure_imports() -> None:
    program = (
        "import sys; sys.modules['pydantic_ai'] = None\n"
        "import perdure, perdure.agents\n"
        "from perdure.errors import MissingExtra\n"
        "try: import perdure.agents.pydantic.agent\n"
        "except MissingExtra as error: print(error)"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert "perdure[agents]" in done.stdout
