"""Messages, contents and responses: their constructors, their attributes and their dicts."""

from __future__ import annotations

from typing import Any

from flows import AgentResponse, AgentResponseUpdate, AgentSession, Content, Message
from pydantic import BaseModel


class Answer(BaseModel):
    number: int


def contents() -> dict[str, Any]:
    call = Content.from_function_call("c1", "search", arguments={"q": 1}, informational_only=True)
    approval = Content.from_function_approval_request("r1", Content.from_function_call("r1", "pay", arguments="{}"))
    made = [
        Content.from_text("text", annotations=[{"type": "citation", "title": "t"}], additional_properties={"a": 1}),
        Content.from_text_reasoning(id="r", text="why", protected_data="secret"),
        Content.from_data(b"abc", "image/png"),
        Content.from_data(data=b"abc", media_type="image/png"),
        Content.from_uri("data:text/plain;base64,YWJj"),
        Content.from_uri(uri="https://example.org/a.png", media_type="image/png"),
        Content.from_error(message="bad", error_code="1", error_details="very"),
        Content.from_usage({"input_token_count": 3}),
        call,
        Content.from_function_result("c1", result="found"),
        Content.from_hosted_file("f1", media_type="text/plain", name="n"),
        Content.from_hosted_vector_store("v1"),
        Content.from_code_interpreter_tool_call(call_id="c", inputs=[Content.from_text("1 + 1")]),
        Content.from_code_interpreter_tool_result(call_id="c", outputs=[Content.from_text("2")]),
        Content.from_image_generation_tool_call(image_id="i"),
        Content.from_image_generation_tool_result(image_id="i", outputs=[Content.from_uri("https://x/i.png")]),
        Content.from_search_tool_call("s", tool_name="web", arguments={"q": "tides"}, status="done"),
        Content.from_search_tool_result("s", tool_name="web", result={"hits": 2}),
        Content.from_shell_tool_call(call_id="sh", commands=["ls"], timeout_ms=5, max_output_length=9),
        Content.from_shell_tool_result(call_id="sh", outputs=[Content.from_shell_command_output(stdout="a")]),
        Content.from_shell_command_output(stdout="a", stderr="b", exit_code=0, timed_out=False),
        Content.from_mcp_server_tool_call("m", "look", server_name="docs", arguments="{}"),
        Content.from_mcp_server_tool_result("m", output=[{"type": "other"}]),
        Content.from_oauth_consent_request("https://example.org/consent"),
        approval,
        approval.to_function_approval_response(True),
        Content("text", text="made"),
        Content(type="function_call", call_id="x", name="f"),
    ]
    dicts = [content.to_dict() for content in made]
    for data in dicts:
        data.pop("hosted", None)  # new in 1.23
        for nested in (data, *data.values()):
            if isinstance(nested, dict):
                nested.pop("hosted", None)
        if data["type"] == "function_result":
            data.pop("items", None)  # only the framework repeats a text as items
    again = [Content.from_dict(content.to_dict()) == content for content in made]
    flags = [content.user_input_request for content in made]
    parsed = [call.parse_arguments(), Content.from_function_call("c", "f", arguments='{"a": 2}').parse_arguments()]
    more = [made[2].has_top_level_media_type("image"), made[0].additional_properties.get("a"), call.annotations]
    return {
        "dicts": dicts,
        "again": again,
        "flags": flags,
        "parsed": parsed,
        "more": more,
        "texts": [str(content) for content in made],
    }


def messages() -> Any:
    made = [
        Message("user", ["a", "b"]),
        Message(role="assistant", contents=["a", Content.from_uri("https://x/a.png", media_type="image/png"), "b"]),
        Message("tool", [{"type": "text", "text": "from a dict"}], author_name="me", message_id="m1"),
        Message("user", additional_properties={"a": 1}, raw_representation=object()),
        Message("user"),
    ]
    made[4].contents.append(Content.from_text("later"))
    made[4].author_name = "later"
    made[4].additional_properties["b"] = 2
    texts = [message.text for message in made]
    dicts = [message.to_dict() for message in made]
    again = [Message.from_json(message.to_json()).to_dict() == message.to_dict() for message in made]
    excluded = made[2].to_dict(exclude={"contents", "message_id"})
    nones = Message("user", message_id="m").to_dict(exclude_none=False)
    return texts, dicts, again, excluded, nones, [type(message.contents).__name__ for message in made]


def responses() -> Any:
    request = Content.from_function_approval_request("r1", Content.from_function_call("r1", "pay", arguments="{}"))
    response: AgentResponse[Answer] = AgentResponse(
        messages=[Message("assistant", ["a"]), Message("assistant", ["b", request])],
        response_id="r",
        agent_id="me",
        created_at="2026-01-01",
        finish_reason="stop",
        usage_details={"input_token_count": 3},
        value=Answer(number=1),
    )
    response.messages.append(Message("assistant", ["c"]))
    single = AgentResponse(messages=Message("assistant", ["only"]))
    empty: Any = AgentResponse()
    parsed: Any = AgentResponse(messages=[Message("assistant", ['{"number": 5}'])], response_format=Answer)
    updates = [
        AgentResponseUpdate(contents=[Content.from_text("a ")], role="assistant", message_id="m", response_id="r"),
        AgentResponseUpdate(contents=[Content.from_text("b")], message_id="m", author_name="me"),
        AgentResponseUpdate(contents=[Content.from_usage({"output_token_count": 2})]),
        AgentResponseUpdate(contents=[Content.from_text('{"number": 7}')], role="assistant", message_id="n"),
    ]
    joined: Any = AgentResponse.from_updates(updates, output_format_type=Answer)
    return [
        [response.text, str(response), [content.id for content in response.user_input_requests]],
        [response.finish_reason, response.agent_id, response.usage_details, response.value and response.value.number],
        [single.text, len(single.messages), empty.text, empty.messages, empty.value, empty.usage_details],
        [parsed.value.number, joined.value.number, joined.text, [len(message.contents) for message in joined.messages]],
        [joined.usage_details, joined.response_id, [message.author_name for message in joined.messages]],
        [updates[0].text, str(updates[0]), updates[0].user_input_requests, updates[1].role, updates[0].to_dict()],
        AgentResponse.from_dict(single.to_dict()).to_dict() == single.to_dict(),
        AgentResponseUpdate.from_json(updates[1].to_json()).to_dict(),
        [AgentResponse[Answer](messages=[]).text, AgentResponse[str].__name__],
    ]


def sessions() -> Any:
    session = AgentSession(session_id="s", service_session_id="service")
    session.state["key"] = {"a": [1]}
    again = AgentSession.from_dict(session.to_dict())
    fresh = AgentSession()
    return [
        [again.session_id, again.service_session_id, again.state, len(fresh.session_id), fresh.state],
        {name: value for name, value in session.to_dict().items() if name != "messages"},
    ]


async def main() -> Any:
    return {"contents": contents(), "messages": messages(), "responses": responses(), "sessions": sessions()}
