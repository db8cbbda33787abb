"""Agents of other frameworks in a graph: recorded, resumed in another workflow object, with the earlier messages."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, TypedDict

import agent_framework as af
import agents as sdk
import pydantic
import pydantic_ai
import pytest
from langgraph.graph import START, StateGraph
from langgraph.types import interrupt
from pydantic_ai.messages import ModelResponse
from tests.unit.agents.agent_models import Script, call, last_contents, note, notes
from tests.unit.agents.foreign_agents import MAKERS, NAME, SdkModel, with_framework
from tests.unit.agents.test_agent_in_workflows import Boom, flow, last

from perdure import Executor, WorkflowContext, handler
from perdure.agents import AgentExecutorResponse, AgentResponseUpdate, AgentSession, Message, tool
from perdure.agents.base import adapt_agent, take_turn
from perdure.agents.recording import emit_updates_to
from perdure.errors import InvalidRun, PerdureError


class Next(Executor):
    """What comes after the agent; in its first life it does not get far."""

    def __init__(self, *, is_doomed: bool = False) -> None:
        super().__init__("next")
        self._is_doomed = is_doomed

    @handler
    async def take(self, response: AgentExecutorResponse, ctx: WorkflowContext[None, str]) -> None:
        if self._is_doomed:
            raise Boom
        await ctx.yield_output(f"got {response.agent_response.text}")


@pytest.fixture(params=list(MAKERS))
def make(request: pytest.FixtureRequest) -> Callable[[Path], Any]:
    return MAKERS[request.param]


# ---------------------------------------------------------------- all of them


async def test_a_turn_that_was_recorded_is_not_taken_again_after_a_crash(make: Any, tmp_path: Path) -> None:
    log = tmp_path / "log"
    with pytest.raises(Boom):
        await flow(make(log), tmp_path, Next(is_doomed=True)).run("Hello", thread_id="t")
    assert len(notes(log)) == 1
    result = await flow(make(log), tmp_path, Next()).run(thread_id="t")
    assert result.get_outputs()[-1] == "got heard: Hello"
    assert len(notes(log)) == 1


async def test_conversation_continues_in_another_workflow_object(make: Any, tmp_path: Path) -> None:
    log = tmp_path / "log"
    first = await flow(make(log), tmp_path).run("Hello", thread_id="t")
    assert last(first).text == "heard: Hello"
    assert [message.author_name for message in last(first).messages] == [NAME]
    second = await flow(make(log), tmp_path).run("again", thread_id="t")
    assert last(second).text == "heard: Hello | again"
    assert last(second).usage_details is not None
    assert second.usage["total_token_count"] == 2 * first.usage["total_token_count"]


async def test_adapted_agent_receives_messages_of_other_agents(make: Any, tmp_path: Path) -> None:
    session = AgentSession()
    messages = [Message("user", "Plan."), Message("assistant", "Do it.", "planner")]
    response = await take_turn(make(tmp_path / "log"), messages, session)
    if make is MAKERS["agent-framework"]:  # it receives the message unchanged, with its author
        assert response.text == "heard: Plan."
    else:
        assert response.text == "heard: Plan. | planner: Do it."


def test_adapted_agent_keeps_its_name(make: Any, tmp_path: Path) -> None:
    assert adapt_agent(make(tmp_path / "log")).name == NAME


# ---------------------------------------------------------------- pydantic-ai


class Answer(pydantic.BaseModel):
    name: str


async def test_the_calls_of_a_pydantic_ai_agent_are_recorded_one_by_one(tmp_path: Path) -> None:
    log = tmp_path / "log"
    replies = [call("add", {"number": 1}, "c1"), call("final_result", {"name": "two"}, "c2")]

    def make(script: Script) -> Any:
        agent = pydantic_ai.Agent(script.model(), name="adder", output_type=Answer, instructions="Add.")

        @agent.tool  # type: ignore[untyped-decorator]
        def add(ctx: pydantic_ai.RunContext[Any], number: int) -> int:
            note(log, tool=number)
            return number + 1

        return agent

    class Dying(Script):
        def _next(self, messages: Any, info: Any) -> list[Any]:
            if any(isinstance(message, ModelResponse) for message in messages):
                raise Boom
            return super()._next(messages, info)

    with pytest.raises(Boom):
        await flow(make(Dying(replies, log)), tmp_path).run("Go", thread_id="t")
    script = Script(replies, log)
    result = await flow(make(script), tmp_path).run(thread_id="t")
    assert last(result).value == Answer(name="two")
    assert notes(log) == [{"model": 0}, {"tool": 1}, {"model": 1}]
    assert last_contents(script.received[0]) == [2]
    assert script.infos[0].instructions == "Add."
    again = await flow(make(Script([])), tmp_path).run(thread_id="t")
    assert last(again).value == Answer(name="two")


async def test_a_pydantic_ai_agent_streams_and_asks_for_approval(tmp_path: Path) -> None:
    script = Script([call("pay", {"amount": 20}, "c1"), "All paid."])
    agent = pydantic_ai.Agent(script.model(), name="payer")

    @agent.tool_plain(requires_approval=True)  # type: ignore[untyped-decorator]
    def pay(amount: int) -> str:
        return f"paid {amount}"

    (request,) = (await flow(agent, tmp_path).run("Pay", thread_id="t")).get_request_info_events()
    answer = {request.request_id: request.data.approve({"amount": 5})}
    events = [event async for event in flow(agent, tmp_path).run(responses=answer, thread_id="t", stream=True)]
    texts = [event.data.text for event in events if isinstance(event.data, AgentResponseUpdate)]
    assert [text for text in texts if text] == ["All", " paid."]
    assert last_contents(script.received[1]) == ["paid 5"]


async def test_listeners_of_a_pydantic_ai_agent_get_their_events(tmp_path: Path) -> None:
    received: list[Any] = []

    async def listen(ctx: Any, events: Any) -> None:
        received.extend([type(event).__name__ async for event in events])

    capability = pydantic_ai.capabilities.ProcessEventStream(listen)
    agent = pydantic_ai.Agent(Script(["Hello."]).model(), name="writer", capabilities=[capability])
    assert last(await flow(agent, tmp_path).run("Hi")).text == "Hello."
    assert "PartStartEvent" in received


def test_a_pydantic_ai_agent_without_a_model_is_rejected() -> None:
    with pytest.raises(ValueError, match="'lost' of pydantic-ai has no model"):
        adapt_agent(pydantic_ai.Agent(name="lost"))


# ---------------------------------------------------------------- the OpenAI Agents SDK


async def test_the_calls_of_an_openai_agent_are_recorded_one_by_one(tmp_path: Path) -> None:
    log = tmp_path / "log"

    @sdk.function_tool  # type: ignore[untyped-decorator]
    def look() -> str:
        """Look."""
        note(log, tool="look")
        return "seen"

    def die(done: int) -> None:
        if done == 2:
            raise Boom

    def make(fail: Any = None) -> Any:
        return sdk.Agent(name="eye", model=SdkModel(log, ["look", "look"], fail), tools=[look])

    with pytest.raises(Boom):
        await flow(make(die), tmp_path).run("Look", thread_id="t")
    result = await flow(make(), tmp_path).run(thread_id="t")
    assert last(result).text == "heard: Look"
    assert notes(log) == [{"model": 0}, {"tool": "look"}, {"model": 1}, {"tool": "look"}, {"model": 2}]
    assert [message.role for message in last(result).messages] == [
        "assistant",
        "tool",
        "assistant",
        "tool",
        "assistant",
    ]
    assert result.usage == {"input_token_count": 30, "output_token_count": 15, "total_token_count": 45}


async def test_openai_agent_takes_tools_for_one_turn_and_a_tool_can_end_it(tmp_path: Path) -> None:
    @tool(ends_turn=True)
    def hand_over() -> str:
        """Hand over."""
        return "over"

    agent = adapt_agent(sdk.Agent(name="eye", model=SdkModel(tmp_path / "log", ["hand_over", "never"])))
    response = await agent.run("Go", tools=[hand_over])
    assert [message.role for message in response.messages] == ["assistant", "tool"]
    assert response.messages[1].contents[0].result == "over"
    assert len(notes(tmp_path / "log")) == 1


async def test_openai_agent_asks_for_approval_and_follows_the_answers(tmp_path: Path) -> None:
    log = tmp_path / "log"

    @sdk.function_tool(needs_approval=True)  # type: ignore[untyped-decorator]
    def pay(amount: int = 20) -> str:
        """Pay."""
        note(log, paid=amount)
        return f"paid {amount}"

    def make() -> Any:
        return sdk.Agent(name="payer", model=SdkModel(log, ["pay", "pay", "pay"]), tools=[pay])

    result = await flow(make(), tmp_path).run("Pay", thread_id="t")
    for answer in ("approve", "reject", "edit"):
        (request,) = result.get_request_info_events()
        verdict = {
            "approve": request.data.approve(),
            "reject": request.data.reject("not that"),
            "edit": request.data.approve({"amount": 7}),
        }[answer]
        result = await flow(make(), tmp_path).run(responses={request.request_id: verdict}, thread_id="t")
    assert last(result).text == "heard: Pay"
    assert [entry["paid"] for entry in notes(log) if "paid" in entry] == [20, 7]
    results = [content.result for message in last(result).messages for content in message.of_type("function_result")]
    assert results == ["paid 20", "not that", "paid 7"]
    assert [entry["model"] for entry in notes(log) if "model" in entry] == [0, 1, 2, 3]


async def test_openai_agent_that_needs_approval_outside_a_workflow_raises(tmp_path: Path) -> None:
    @sdk.function_tool(needs_approval=True)  # type: ignore[untyped-decorator]
    def pay() -> str:
        """Pay."""
        return "paid"

    agent = adapt_agent(sdk.Agent(name="payer", model=SdkModel(tmp_path / "log", ["pay"]), tools=[pay]))
    with pytest.raises(InvalidRun, match="'payer' needs approval for its calls of 'pay'"):
        await agent.run("Pay")


# ---------------------------------------------------------------- LangGraph


async def test_langgraph_that_interrupts_or_returns_no_messages_raises() -> None:
    class State(TypedDict):
        messages: list[Any]

    def build(answer: Any, **options: Any) -> Any:
        graph = StateGraph(State)
        graph.add_node("answer", answer)
        graph.add_edge(START, "answer")
        return adapt_agent(graph.compile(name="graph", **options))

    with pytest.raises(PerdureError, match="The graph 'graph' interrupts itself"):
        await build(lambda state: interrupt("?"), checkpointer=None).run("Go")
    with pytest.raises(TypeError, match=r"'graph' returned .* Expected a state with messages"):
        await build(lambda state: {"messages": "text"}).run("Go")


# ---------------------------------------------------------------- agent-framework-core


async def test_agent_framework_agent_asks_for_approval_across_workflow_objects(tmp_path: Path) -> None:
    log = tmp_path / "log"

    @af.tool(approval_mode="always_require")  # type: ignore[untyped-decorator]
    def pay(amount: int) -> str:
        """Pay."""
        note(log, paid=amount)
        return f"paid {amount}"

    first = await flow(with_framework(log, pay), tmp_path).run("Pay.", thread_id="t")
    (request,) = first.get_request_info_events()
    assert request.data.function_call.parse_arguments() == {"amount": 20}
    answer = {request.request_id: request.data.approve()}
    result = await flow(with_framework(log, pay), tmp_path).run(responses=answer, thread_id="t")
    assert last(result).messages[-1].text == "heard: Pay."
    assert [entry for entry in notes(log) if "paid" in entry] == [{"paid": 20}]
    assert len([entry for entry in notes(log) if "model" in entry]) == 2


async def test_agent_framework_agent_streams(tmp_path: Path) -> None:
    events = [event async for event in flow(with_framework(tmp_path / "log"), tmp_path).run("Hello", stream=True)]
    text = "".join(event.data.text for event in events if isinstance(event.data, AgentResponseUpdate))
    assert text == "heard: Hello"


class Plain(af.BaseAgent):  # type: ignore[misc]  # an untyped base
    """An agent of the framework that neither streams nor takes options."""

    async def run(self, messages: Any = None, *, session: Any = None) -> Any:
        return af.AgentResponse(messages=[af.Message("assistant", ["heard"])])


class Generating(af.BaseAgent):  # type: ignore[misc]  # an untyped base
    """An agent of the framework whose stream is an async generator."""

    async def run(self, messages: Any = None, *, stream: bool = False, session: Any = None) -> Any:
        for text in ("he", "ard"):
            yield af.AgentResponseUpdate(contents=[af.Content.from_text(text)], role="assistant")


@pytest.mark.parametrize("kind", [Plain, Generating])
async def test_own_agent_of_the_framework_gets_what_its_run_takes(kind: Any, tmp_path: Path) -> None:
    stream = flow(kind(name=NAME), tmp_path, Next()).run("Hello", stream=True)
    events = [event async for event in stream]
    updates = [event.data for event in events if isinstance(event.data, AgentResponseUpdate)]
    assert "".join(update.text for update in updates) == "heard"
    assert (await stream.get_final_response()).get_outputs()[-1] == "got heard"
    with emit_updates_to(lambda update, replayed: None):
        response = await take_turn(kind(name=NAME), [Message("user", "Hello")], response_format=dict)
    assert response.text == "heard"
