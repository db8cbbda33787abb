"""Models of other frameworks receive the conversation and the answers of people, and continue after a dead end."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import agent_framework as af
import agents as sdk
import pytest
from agents.mcp import MCPServer
from langchain_core.messages import AIMessage
from langgraph.graph import END, START, MessagesState, StateGraph
from mcp.types import CallToolResult, Tool as MCPTool
from openai.types.responses import ResponseFunctionToolCall, ResponseOutputMessage, ResponseOutputText
from tests.unit.agents.agent_models import note, notes
from tests.unit.agents.foreign_agents import NAME, FrameworkClient
from tests.unit.agents.test_agent_in_workflows import flow, last

from perdure.agents import AgentSession, Content, Message
from perdure.agents.adapters import agent_framework as framework_messages
from perdure.agents.base import take_turn
from perdure.errors import AgentFailed

sdk.set_tracing_disabled(True)


def function_call(name: str, call_id: str) -> Any:
    return ResponseFunctionToolCall(arguments="{}", call_id=call_id, name=name, type="function_call")


def output_message(text: str) -> Any:
    content = [ResponseOutputText(text=text, type="output_text", annotations=[])]
    return ResponseOutputMessage(id="m", content=content, role="assistant", status="completed", type="message")


class SdkScript(sdk.Model):  # type: ignore[misc]  # the SDK is not looked at
    """Replies with `reply(items)` for the items that it receives."""

    def __init__(self, reply: Callable[[list[Any]], Any]) -> None:
        self._reply = reply
        self.received: list[list[Any]] = []

    async def get_response(self, system_instructions: Any, input: Any, *args: Any, **kwargs: Any) -> Any:
        self.received.append(list(input))
        usage = sdk.Usage(requests=1, input_tokens=10, output_tokens=5, total_tokens=15)
        return sdk.ModelResponse(output=[self._reply(input)], usage=usage, response_id=f"r{len(self.received)}")

    def stream_response(self, *args: Any, **kwargs: Any) -> Any:
        raise NotImplementedError("the adapter does not stream")


# ---------------------------------------------------------------- calls of other agents


def recording_openai_agent(received: list[Any], log: Path) -> Any:
    def reply(items: Any) -> Any:
        received.append(
            [(item.get("type", item.get("role")), item.get("call_id", item.get("content"))) for item in items]
        )
        return output_message("ok")

    return sdk.Agent(name=NAME, model=SdkScript(reply))


def recording_langgraph_agent(received: list[Any], log: Path) -> Any:
    async def answer(state: MessagesState) -> dict[str, Any]:
        received.append(
            [(message.type, getattr(message, "tool_call_id", None) or message.content) for message in state["messages"]]
        )
        return {"messages": [AIMessage("ok")]}

    graph = StateGraph(MessagesState)
    graph.add_node("answer", answer)
    graph.add_edge(START, "answer")
    graph.add_edge("answer", END)
    return graph.compile(name=NAME)


def recording_framework_agent(received: list[Any], log: Path) -> Any:
    class Client(FrameworkClient):
        def _reply_contents(self, messages: Any, options: Any) -> list[Any]:
            contents = [content for message in messages for content in message.contents]
            received.append([(content.type, content.call_id or content.id or content.text) for content in contents])
            return [af.Content.from_text("ok")]

    return af.Agent(Client(log), name=NAME)


CALL = Content.from_function_call("other-1", "look", arguments={"q": "1"})
OTHERS = [
    Message("user", "go"),
    Message("assistant", [CALL, Content.from_function_approval_request("ask-1", CALL)], "other"),
    Message("user", [Content.from_function_approval_response(True, "ask-1", CALL)]),
    Message("tool", [Content.from_function_result("other-1", result="LOOKED")]),
    Message("assistant", "it says", "other"),
]
"""Another agent called a tool, and a user approved the call."""
OWN = [
    Message("assistant", [Content.from_function_call("own-1", "find", arguments="{}")], NAME),
    Message("tool", [Content.from_function_result("own-1", exception="ValueError: none")]),
    Message("assistant", "found", NAME),
]


@pytest.mark.parametrize(
    ("make", "messages", "own"),
    [
        (
            recording_openai_agent,
            [("user", "go"), ("user", "other: it says")],
            ["function_call", "function_call_output"],
        ),
        (recording_langgraph_agent, [("human", "go"), ("human", "other: it says")], ["tool"]),
    ],
    ids=["openai", "langgraph"],
)
async def test_model_receives_calls_of_its_own_agent_only(make: Any, messages: Any, own: Any, tmp_path: Path) -> None:
    received: list[Any] = []
    await take_turn(make(received, tmp_path / "log"), OTHERS, AgentSession())
    assert received == [messages]
    await take_turn(make(received, tmp_path / "log"), [*OTHERS, *OWN, Message("user", "and?")])
    assert [kind for kind, what in received[1] if what == "own-1"] == own
    assert not any(what in ("other-1", "ask-1") for _, what in received[1])


async def test_framework_agent_gets_calls_of_other_agents_with_results(tmp_path: Path) -> None:
    received: list[Any] = []
    unanswered = Message("assistant", [Content.from_function_call("other-2", "look", arguments="{}")], "other")
    unasked = Message("tool", [Content.from_function_result("other-3", result="LOOKED")])
    agent = recording_framework_agent(received, tmp_path / "log")
    await take_turn(agent, [*OTHERS, unanswered, unasked, *OWN, Message("user", "and?")], AgentSession())
    calls = [("function_call", "other-1"), ("function_result", "other-1"), ("text", "it says")]
    own = [("function_call", "own-1"), ("function_result", "own-1"), ("text", "found"), ("text", "and?")]
    assert received == [[("text", "go"), *calls, *own]]


# ---------------------------------------------------------------- approval in agent-framework-core


@pytest.mark.parametrize(
    ("answers", "paid", "notices"),
    [
        (("approve", "reject"), [20], ["The call of 'pay' was not approved: too much"]),
        (("edit", "reject"), [7], ["The call of 'pay' was not approved: too much"]),
        (("edit", "edit"), [7, 7], []),
        (("reject", "approve"), [30], ["The call of 'pay' was not approved: too much"]),
    ],
)
@pytest.mark.parametrize("is_kept_elsewhere", [False, True])
async def test_agent_framework_agent_makes_only_approved_calls(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    answers: Sequence[str],
    paid: list[int],
    notices: list[str],
    is_kept_elsewhere: bool,
) -> None:
    log, prompts = tmp_path / "log", list[str]()

    @af.tool(approval_mode="always_require")  # type: ignore[untyped-decorator]
    def pay(amount: int) -> str:
        """Pay."""
        note(log, paid=amount)
        return f"paid {amount}"

    class Client(FrameworkClient):
        def _reply_contents(self, messages: Any, options: Any) -> list[Any]:
            prompts[:] = [message.text for message in messages if message.role == "user"]
            if any(content.type == "function_result" for message in messages for content in message.contents):
                return [af.Content.from_text("done")]
            amounts = {"c1": 20, "c2": 30}
            return [
                af.Content.from_function_call(call_id, "pay", arguments={"amount": amounts[call_id]})
                for call_id in amounts
            ]

    def agent() -> Any:
        return af.Agent(Client(log), name=NAME, tools=[pay])

    asked = await flow(agent(), tmp_path).run("Pay.", thread_id="t")
    responses = {}
    for request, answer in zip(asked.get_request_info_events(), answers, strict=True):
        data = request.data
        made = {"approve": data.approve(), "reject": data.reject("too much"), "edit": data.approve({"amount": 7})}
        responses[request.request_id] = made[answer]
    if is_kept_elsewhere:  # as in a version of the framework to come
        monkeypatch.setattr(framework_messages, "PENDING", ("elsewhere", "pending"))
        paid = [amount for amount in paid if amount != 7]
        instead = """The call of 'pay' was not approved as it was. It is approved with these arguments: {"amount":7}"""
        notices = [*notices, *[instead for answer in answers if answer == "edit"]]
    result = await flow(agent(), tmp_path).run(responses=responses, thread_id="t")
    assert last(result).messages[-1].text == "done"
    assert [entry["paid"] for entry in notes(log) if "paid" in entry] == paid
    assert prompts == ["Pay.", *notices]


def test_agent_framework_agent_receives_contents_of_every_kind(tmp_path: Path) -> None:
    call = Content.from_function_call("c1", "pay", arguments={"amount": 1})
    request = Content.from_function_approval_request("r1", call)
    contents = [
        Content.from_text("text"),
        Content.from_text_reasoning("because"),
        Content.from_data(b"data", "image/png"),
        Content.from_uri("https://example.org/a.png", media_type="image/png"),
        Content.from_error("bad", error_code="1", error_details="very"),
        Content.from_usage({"input_token_count": 1}),
        call,
        request,
    ]
    answers = [request.reject("no"), Content.from_function_result("c1", exception=ValueError("gone"))]
    new = [Message("assistant", contents, NAME), Message("user", answers)]
    messages, _ = framework_messages.messages_for_agent(NAME, [], new)
    theirs = [af.Message.from_dict(message.to_dict()) for message in messages]
    assert [content.type for content in theirs[0].contents] == [content.type for content in contents]
    assert [content.type for content in theirs[1].contents] == ["function_approval_response", "function_result"]
    assert theirs[1].contents[1].result == "gone"
    assert theirs[2].text == "The call of 'pay' was not approved: no"


# ---------------------------------------------------------------- the OpenAI Agents SDK


async def test_openai_agent_resumes_after_too_many_turns(tmp_path: Path) -> None:
    log = tmp_path / "log"

    @sdk.function_tool  # type: ignore[untyped-decorator]
    def look() -> str:
        """Look."""
        note(log, tool="look")
        return "seen"

    def make(reply: Any) -> Any:
        return sdk.Agent(name="eye", model=SdkScript(reply), tools=[look])

    def looping(items: Any) -> Any:
        return function_call("look", f"c{len(items)}")

    with pytest.raises(AgentFailed, match=r"Agent 'eye'.*Max turns \(10\) exceeded.*resume: the model is asked again"):
        await flow(make(looping), tmp_path).run("Look", thread_id="t")
    repaired_agent = make(lambda items: output_message("seen enough") if len(items) > 21 else looping(items))
    result = await flow(repaired_agent, tmp_path).run(thread_id="t")
    assert last(result).text == "seen enough"
    assert [len(items) for items in repaired_agent.model.received] == [21, 23]
    assert len(notes(log)) == 11
    assert [message.role for message in last(result).messages] == ["assistant", "tool"] * 11 + ["assistant"]
    assert result.usage["input_token_count"] == 10 * 12
    again = await flow(make(looping), tmp_path).run(thread_id="t")
    assert last(again).text == "seen enough"


async def test_openai_agent_is_asked_again_after_calling_an_unknown_tool(tmp_path: Path) -> None:
    @sdk.function_tool  # type: ignore[untyped-decorator]
    def look() -> str:
        """Look."""
        note(tmp_path / "log", tool="look")
        return "seen"

    def make(*replies: Any) -> Any:
        left = list(replies)
        return sdk.Agent(name="eye", model=SdkScript(lambda items: left.pop(0)), tools=[look])

    with pytest.raises(AgentFailed, match=r"ModelBehaviorError.*nowhere"):
        await flow(make(function_call("look", "c1"), function_call("nowhere", "c2")), tmp_path).run(
            "Look", thread_id="t"
        )
    repaired_agent = make(output_message("seen"))
    result = await flow(repaired_agent, tmp_path).run(thread_id="t")
    assert last(result).text == "seen"
    assert [item.get("type", "message") for item in repaired_agent.model.received[0]] == [
        "message",
        "function_call",
        "function_call_output",
    ]
    assert notes(tmp_path / "log") == [{"tool": "look"}]


async def test_failed_request_of_an_openai_agent_is_repeated_on_resume(tmp_path: Path) -> None:
    def fail(items: Any) -> Any:
        raise sdk.ModelBehaviorError("garbled")

    for message in ("Go", None):
        with pytest.raises(AgentFailed, match="garbled"):
            await flow(sdk.Agent(name="eye", model=SdkScript(fail)), tmp_path).run(message, thread_id="t")
    repaired_agent = sdk.Agent(name="eye", model=SdkScript(lambda items: output_message("fine")))
    assert last(await flow(repaired_agent, tmp_path).run(thread_id="t")).text == "fine"


class Server(MCPServer):  # type: ignore[misc]
    """Its tools are called by the SDK itself."""

    name = "server"

    def __init__(self, log: Path) -> None:
        super().__init__(require_approval="always")
        self._log = log

    async def list_tools(self, run_context: Any = None, agent: Any = None) -> Any:
        return [MCPTool(name="pay", inputSchema={"type": "object", "properties": {"amount": {"type": "integer"}}})]

    async def call_tool(self, tool_name: str, arguments: Any, meta: Any = None) -> Any:
        note(self._log, paid=arguments)
        return CallToolResult(content=[])

    async def _nothing(self, *args: Any) -> Any:
        """Not asked for."""

    connect = cleanup = list_prompts = get_prompt = _nothing


@pytest.mark.parametrize("is_edited", [False, True])
async def test_tool_that_cannot_take_edited_arguments_is_not_called(tmp_path: Path, is_edited: bool) -> None:
    log = tmp_path / "log"

    def make() -> Any:
        def reply(items: Any) -> Any:
            done = [item for item in items if item.get("type") == "function_call_output"]
            return output_message(str(done[0]["output"])) if done else function_call("pay", "c1")

        return sdk.Agent(name="payer", model=SdkScript(reply), mcp_servers=[Server(log)])

    (request,) = (await flow(make(), tmp_path).run("Pay", thread_id="t")).get_request_info_events()
    answer = request.data.approve({"amount": 7}) if is_edited else request.data.approve()
    result = await flow(make(), tmp_path).run(responses={request.request_id: answer}, thread_id="t")
    assert notes(log) == ([] if is_edited else [{"paid": {}}])
    assert ('It is approved only with these arguments: {"amount":7}' in last(result).text) is is_edited
