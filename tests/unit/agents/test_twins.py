"""Messages, contents, responses and sessions of Agent Framework stand for ours, and ours for theirs."""

from __future__ import annotations

import json
import subprocess
import sys
from typing import Any

import agent_framework as af
import pytest
from hypothesis import given
from tests.unit.agents.conversations import messages as any_message

from perdure import WorkflowBuilder
from perdure.agents.base import BaseAgent
from perdure.agents.conversation.content import Content
from perdure.agents.conversation.message import AgentSession, Message, as_messages
from perdure.agents.conversation.response import AgentResponse, as_response
from perdure.agents.conversation.twins import to_framework
from perdure.agents.conversation.update import AgentResponseUpdate
from perdure.agents.executor import AgentExecutorRequest, AgentExecutorResponse
from perdure.agents.recording import ApprovalResponse
from perdure.agents.tools import Tool, ToolContext, tool
from perdure.checkpoints.encode import tool_codec
from perdure.codecs.builtin_types import Opaque
from perdure.graph.coercion import coerce
from perdure.graph.matching import is_instance_of, is_type_compatible, most_specific
from perdure.testing.scripted import Call, ScriptedAgent

CALL = af.Content.from_function_call("c1", "pay", arguments={"amount": 1})
THEIRS = [
    af.Message("user", ["hi", CALL], author_name="ann", message_id="m1", additional_properties={"a": {"b": [1]}}),
    af.Content.from_function_approval_request("c1", CALL),
    af.Content.from_function_result("c1", result=[af.Content.from_text("a"), af.Content.from_text("b")]),
    af.Content.from_code_interpreter_tool_result(call_id="c", outputs=[af.Content.from_text("2")]),
    af.AgentResponse(messages=[af.Message("assistant", ["hi"])], response_id="r", value={"a": 1}, finish_reason="stop"),
    af.AgentResponseUpdate(contents=[af.Content.from_text("hi")], role="assistant", agent_id="a", message_id="m"),
]


@pytest.mark.parametrize("value", THEIRS, ids=lambda value: type(value).__name__)
def test_value_of_the_framework_loads_equal_and_of_its_class(value: Any) -> None:
    loaded = tool_codec().decode(tool_codec().encode({"key": [value]}, "state"), "state")["key"][0]
    assert type(loaded) is type(value)
    assert loaded.to_dict() == value.to_dict()
    assert getattr(loaded, "value", None) == getattr(value, "value", None)


def test_session_of_the_framework_loads_with_its_state() -> None:
    session = af.AgentSession(session_id="s", service_session_id="service")
    session.state["message"] = af.Message("user", ["hi"])
    loaded = tool_codec().decode(tool_codec().encode(session, "state"), "state")
    assert (type(loaded), loaded.session_id, loaded.service_session_id) == (af.AgentSession, "s", "service")
    assert (type(loaded.state["message"]), loaded.state["message"].text) == (af.Message, "hi")


@given(any_message)
def test_message_of_ours_survives_the_way_through_the_framework(message: Message) -> None:
    [again] = as_messages(to_framework(message))
    unusual = ("function_result", "function_approval_response")  # the result is a text there, and reasons are ours
    expected = [content for content in message.contents if content.type not in unusual]
    assert repr([content for content in again.contents if content.type not in unusual]) == repr(expected)
    fields = (message.role, message.author_name, message.message_id)
    assert (again.role, again.author_name, again.message_id) == fields
    assert repr(again.additional_properties) == repr(message.additional_properties)


def test_framework_accepts_instances_of_ours_as_its_own() -> None:
    ours: list[Any] = [Message("user"), Content.from_text("a"), AgentResponse(), AgentResponseUpdate(), AgentSession()]
    assert all(isinstance(value, getattr(af, type(value).__name__)) for value in ours)
    assert not isinstance(ours[0], af.Content)
    assert not isinstance(ours[0], Content)


def test_instances_of_the_framework_are_instances_of_ours() -> None:
    theirs = [*THEIRS, af.Content.from_text("yes")]
    for kind, expected in ((Message, [0]), (AgentResponse, [4]), (Content, [1, 2, 3, 6]), (ApprovalResponse, [])):
        assert [index for index, value in enumerate(theirs) if isinstance(value, kind)] == expected


def test_our_instances_have_their_own_class_without_the_framework() -> None:
    code = "import sys; from perdure import Message; print(Message('user').__class__ is Message, *sys.modules)"
    output = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60).stdout
    assert output.startswith("True ")
    assert "agent_framework" not in output


def test_stored_message_of_the_framework_is_opaque_without_the_framework() -> None:
    tree = tool_codec().encode(THEIRS[0], "state")
    code = (
        "import json, sys; from perdure.checkpoints.encode import tool_codec\n"
        "value = tool_codec().decode(json.load(sys.stdin), 'state')\n"
        "print(type(value).__name__, 'agent_framework' in sys.modules)"
    )
    output = subprocess.run(
        [sys.executable, "-c", code], input=json.dumps(tree), capture_output=True, text=True, check=True, timeout=60
    ).stdout
    assert output.split() == [Opaque.__name__, "False"]


def test_annotations_of_both_match_values_of_both() -> None:
    ours, theirs = Message("user", "hi"), af.Message("user", ["hi"])
    for annotation in (Message, af.Message):
        assert is_instance_of(ours, annotation) and is_instance_of(theirs, annotation)
        assert is_instance_of([ours, theirs], list[annotation])  # type: ignore[valid-type]
        assert not is_instance_of(ours, af.Content) and not is_instance_of(theirs, Content)
        assert most_specific(theirs, [object, annotation]) == 1
    assert is_type_compatible(Message, af.Message) and is_type_compatible(list[af.Message], list[Message])
    assert not is_type_compatible(af.Content, Message)


@pytest.mark.parametrize("value", [Message("user", "hi"), af.Message("user", ["hi"])], ids=["ours", "theirs"])
def test_message_is_converted_to_the_class_of_the_annotation(value: Any) -> None:
    assert type(coerce(value, Message)) is Message
    assert type(coerce(value, af.Message)) is af.Message
    assert coerce(value, object) is value
    assert [type(item) for item in coerce([value], list[af.Message])] == [af.Message]  # type: ignore[attr-defined]
    assert type(coerce({"key": value}, dict[str, Message])["key"]) is Message  # type: ignore[index]
    assert coerce((value, 1), tuple[Message | str, int])[0] == Message("user", "hi")  # type: ignore[index]


def test_answer_of_the_framework_approves() -> None:
    answer = THEIRS[1].to_function_approval_response(True)
    coerced: Any = coerce(answer, ApprovalResponse)
    assert (type(coerced), coerced.approved, coerced.function_call.name) == (Content, True, "pay")


def test_contents_that_the_framework_added_to_ours_become_ours() -> None:
    message = Message("assistant", "hi")
    message.contents.append(THEIRS[1])
    [converted] = as_response(AgentResponse(messages=[message]), "a").messages
    assert [type(content) for content in converted.contents] == [Content, Content]
    assert [content["type"] for content in message.to_dict()["contents"]] == ["text", "function_approval_request"]


class Till:
    paid = 0

    @tool(approval_mode="always_require", kind="money")
    def pay(self, amount: int) -> int:
        """Pay."""
        self.paid += amount
        return self.paid


async def test_tool_of_both_frameworks_asks_in_our_agent_too() -> None:
    till = Till()
    assert isinstance(till.pay, af.FunctionTool)
    assert (till.pay.kind, till.pay.approval_mode) == ("money", "always_require")
    agent = ScriptedAgent("clerk", [Call("pay", {"amount": 3}), "done"], tools=[till.pay])
    workflow = WorkflowBuilder(start_executor=agent).build()
    [request] = (await workflow.run("go")).get_request_info_events()
    assert till.paid == 0
    await workflow.run(responses={request.request_id: request.data.approve()})
    assert till.paid == 3


def test_tool_with_parameters_unknown_to_pydantic_is_ours_alone() -> None:
    def pay(amount: int, context: ToolContext) -> str:
        return context.call_id

    assert type(tool(pay)) is Tool
    with pytest.raises(TypeError, match="aproval"):
        tool(pay, aproval=True)  # type: ignore[call-overload]  # the mistake
    with pytest.raises(Exception, match="schema for"):
        tool(pay, approval_mode="always_require")


def test_option_of_the_framework_without_the_framework_is_a_type_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "agent_framework", None)
    monkeypatch.setitem(sys.modules, "perdure.agents.adapters.agent_framework", None)
    with pytest.raises(TypeError, match="approval_mode only if agent-framework-core is installed"):
        tool(str, approval_mode="always_require")


async def test_agent_without_a_name_has_that_of_its_class_in_workflows() -> None:
    class Clerk(BaseAgent):
        async def run(self, messages: Any = None, *, stream: bool = False, session: Any = None, **kwargs: Any) -> Any:
            return AgentResponse(messages=[Message("assistant", repr(sorted(kwargs)))])

    assert Clerk().name is None
    workflow = WorkflowBuilder(start_executor=Clerk()).build()
    assert list(workflow.executors) == ["Clerk"]
    assert (await workflow.run("go")).get_outputs()[0].text == "['client_kwargs', 'function_invocation_kwargs']"


async def test_result_and_responses_are_instances_of_the_frameworks_classes() -> None:
    result = await WorkflowBuilder(start_executor=ScriptedAgent("clerk", ["done"])).build().run("go")
    assert isinstance(result, (af.WorkflowRunResult,))
    assert isinstance(AgentExecutorRequest([]), (af.AgentExecutorRequest,))
    assert isinstance(AgentExecutorResponse("clerk", result.get_outputs()[0]), (af.AgentExecutorResponse,))


def test_properties_of_the_frameworks_responses_arrive() -> None:
    assert as_response(af.AgentResponse(messages=[], additional_properties={"a": 1}), None).additional_properties == {
        "a": 1
    }


def test_parts_of_a_content_add_up() -> None:
    call = Content.from_function_call("c1", "pay", arguments='{"a"', id="o1") + Content(
        "function_call", arguments=": 1}"
    )
    assert (call.call_id, call.name, call.id, call.parse_arguments()) == ("c1", "pay", "o1", {"a": 1})
    thought = Content.from_text_reasoning("be", id="r") + Content.from_text_reasoning("cause", protected_data="secret")
    assert (thought.text, thought.id, thought.protected_data) == ("because", "r", "secret")
    usage = Content.from_usage({"input_token_count": 1}) + Content.from_usage({"input_token_count": 2})
    assert usage.usage_details == {"input_token_count": 3}
    with pytest.raises(TypeError, match="A text and a usage are not parts of one content"):
        Content.from_text("a") + usage


def test_factory_of_a_content_names_the_missing_parameter() -> None:
    with pytest.raises(TypeError, match="A mcp_server_tool_call needs tool_name"):
        Content.from_mcp_server_tool_call("c1")
    with pytest.raises(TypeError, match="A hosted_file takes 1 positional arguments, got 2"):
        Content.from_hosted_file("f", "text/plain")
