"""The client reads the chunks that the server makes."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from perdure.agents import AgentResponse, AgentResponseUpdate, Content, Message
from perdure.client.turns import decode_chunk
from perdure.events import WorkflowErrorDetails, WorkflowEvent
from perdure.server.auth.principal import Space
from perdure.server.threads.as_json import output_messages, with_ids
from perdure.server.threads.hub import StreamedEvent, chunks_of_event

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
def test_client_reads_every_message_of_an_output(data: Any) -> None:
    event = WorkflowEvent("output", data, executor_id="one", seq=5, thread_id="t", run_id="run-1")
    messages = with_ids(output_messages(event), "run-1-out")
    parts = chunks_of_event("t", StreamedEvent(event, Space(), 4, hides=False), messages)
    chunks = [decode_chunk(seq, msgspec.json.decode(msgspec.json.encode(body))) for seq, body in parts]
    assert [chunk.message and chunk.message.message_id for chunk in chunks] == [part.message_id for part in messages]
    assert [chunk.text for chunk in chunks] == [
        "".join(content.text or "" for content in part.of_type("text")) for part in messages
    ]
    assert all(chunk.seq == 5 and chunk.event == "message" and chunk.run_id == "run-1" for chunk in chunks)


@pytest.mark.parametrize("hides", [True, False])
def test_event_of_a_failure_shows_its_error_once_or_not_at_all(hides: bool) -> None:
    event = WorkflowEvent.executor_failed("a", WorkflowErrorDetails("ValueError", "the password is wrong"))
    frame = StreamedEvent(event, Space(), 4, hides=hides).frame
    assert frame.count(b"the password is wrong") == (0 if hides else 1)


def test_client_reads_a_delta() -> None:
    update = AgentResponseUpdate(contents="Hel", role="assistant", author_name="ada", message_id="id-1")
    event = WorkflowEvent("data", update, executor_id="one")
    ((seq, body),) = chunks_of_event("t", StreamedEvent(event, Space(), 4, hides=False), ())
    chunk = decode_chunk(seq, msgspec.json.decode(msgspec.json.encode(body)))
    assert chunk.seq is None
    assert chunk.message is not None
    assert (chunk.text, chunk.message.delta, chunk.message.message_id) == ("Hel", True, "id-1")
