"""Chunks made from the log are those that the server streams."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from perdure.agents import AgentResponse, AgentResponseUpdate, Content, Message
from perdure.client import Message as ClientMessage
from perdure.client.turns import to_chunks
from perdure.events import WorkflowEvent
from perdure.server.auth.principal import Space
from perdure.server.runs.turns import _delta
from perdure.server.threads.agentflow import messages_to_client
from perdure.server.threads.conversation import output_messages, with_run_ids
from perdure.server.threads.to_json import event_to_json

MESSAGES = [
    Message("assistant", "Hello", "ada", "id-1"),
    Message("assistant", [Content.from_text("a"), Content.from_text("b")], additional_properties={"mood": "good"}),
    Message("assistant", [Content.from_function_call(call_id="c", name="f", arguments='{"x": [1, null]}')]),
    Message("assistant", [Content.from_function_call(call_id="c", name="f", arguments="no json")]),
    Message("tool", [Content.from_function_result(call_id="c", result={"y": 1.5})]),
    Message("tool", [Content.from_function_result(call_id="c", exception="it broke")]),
    Message("assistant", [Content("text_reasoning", "because"), Content.from_text("so")]),
    Message("assistant", [Content.from_data(b"png", "image/png")]),
    Message("assistant", [Content.from_uri("https://example.org/a.pdf", media_type="application/pdf")]),
    Message("assistant", [Content("error", message="no")]),
    Message("assistant", [Content.from_text("x"), Content("usage", usage_details={"total_token_count": 3})]),
]
DATA: list[Any] = [
    AgentResponse(messages=tuple(MESSAGES)),
    MESSAGES[0],
    list(MESSAGES),
    "a text",
    {"a": [1, 2.5, None, {"ü": True}]},
    ["no", "messages"],
    [],
    None,
    7,
]


@pytest.mark.parametrize("data", DATA, ids=lambda value: type(value).__name__)
def test_output_gives_the_same_messages_from_the_log_and_the_stream(data: Any) -> None:
    event = WorkflowEvent("output", data, executor_id="one", seq=5, thread_id="t", run_id="run-1")
    encoded = msgspec.json.decode(msgspec.json.encode(event_to_json(event, Space())))
    streamed = messages_to_client(with_run_ids(output_messages(event), "run-1-out"))
    chunks = to_chunks(encoded, 5)
    assert [chunk.message for chunk in chunks] == [msgspec.convert(message, ClientMessage) for message in streamed]
    assert all(chunk.seq == 5 and chunk.event == "message" and chunk.run_id == "run-1" for chunk in chunks)


def test_delta_gives_the_same_message_from_the_log_and_the_stream() -> None:
    update = AgentResponseUpdate(contents="Hel", role="assistant", author_name="ada", message_id="id-1")
    encoded = event_to_json(WorkflowEvent("data", update, executor_id="one"), Space())
    (chunk,) = to_chunks(encoded, None)
    assert chunk.message == msgspec.convert(_delta(update), ClientMessage)
    assert chunk.seq is None
