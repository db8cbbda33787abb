"""The forms of messages that clients send, and those that they may not."""

from __future__ import annotations

import base64
from typing import Any

import pytest
from tests.server.routes.calling import called, texts

PIXEL = base64.b64encode(b"\x89PNG pixel").decode()


async def test_message_content_is_a_text_or_blocks_of_text() -> None:
    async with called("remembering") as app:
        blocks = [{"type": "text", "text": "two"}, {"type": "text", "text": "blocks"}]
        messages = [{"role": "user", "content": "a text"}, {"role": "user", "content": blocks}]
        result = await app.post("/v1/graph/invoke", {"messages": messages, "config": {"thread_id": "t"}})
    assert texts(result["messages"]) == ["heard: a text, two blocks"]


async def test_messages_of_all_roles_reach_the_agent() -> None:
    async with called("remembering") as app:
        texts_by_role = [("system", "be brief"), ("user", "one"), ("assistant", "yes"), ("user", "two")]
        messages = [{"role": role, "content": text} for role, text in texts_by_role]
        result = await app.post("/v1/graph/invoke", {"messages": messages, "config": {"thread_id": "t"}})
        listed = (await app.get("/v1/threads/t/messages"))["messages"]
    assert texts(result["messages"]) == ["heard: one, two"]
    assert [message["role"] for message in listed] == ["system", "user", "assistant", "user", "assistant"]


@pytest.mark.parametrize(
    ("block", "kind", "url"),
    [
        ({"type": "image", "media": {"kind": "url", "url": "https://a.test/x.png"}}, "image", "https://a.test/x.png"),
        (
            {"type": "image", "media": {"kind": "data", "data_base64": PIXEL, "mime_type": "image/png"}},
            "image",
            f"data:image/png;base64,{PIXEL}",
        ),
        (
            {"type": "audio", "media": {"kind": "url", "url": "https://a.test/x.wav", "mime_type": "audio/wav"}},
            "audio",
            "https://a.test/x.wav",
        ),
        (
            {"type": "document", "media": {"url": "https://a.test/x.pdf", "mime_type": "application/pdf"}},
            "document",
            "https://a.test/x.pdf",
        ),
    ],
)
async def test_images_and_other_media_are_stored_with_the_message(block: dict[str, Any], kind: str, url: str) -> None:
    async with called("remembering") as app:
        content = [{"type": "text", "text": "look"}, block]
        body = {"messages": [{"role": "user", "content": content}], "config": {"thread_id": "t"}}
        assert texts((await app.post("/v1/graph/invoke", body))["messages"]) == ["heard: look"]
        [asked, _] = (await app.get("/v1/threads/t/messages"))["messages"]
    assert [item["type"] for item in asked["content"]] == ["text", kind]
    assert asked["content"][1]["media"]["url"] == url


async def test_message_keeps_its_id_and_metadata() -> None:
    async with called("remembering") as app:
        message = {"role": "user", "content": "hi", "message_id": "mine", "metadata": {"from": "phone"}}
        await app.post("/v1/graph/invoke", {"messages": [message], "config": {"thread_id": "t"}})
        stored = (await app.get("/v1/threads/t/messages/mine"))["message"]
    assert (stored["message_id"], stored["metadata"], texts([stored])) == ("mine", {"from": "phone"}, ["hi"])


@pytest.mark.parametrize(
    ("message", "field"),
    [
        ({"role": "tool", "content": "42"}, "messages[0].role"),
        ({"role": "robot", "content": "hi"}, "messages[0].role"),
        ({"content": "hi", "tools_calls": [{"id": "1", "name": "f"}]}, "messages[0].tools_calls"),
        ({"content": [{"type": "tool_call", "id": "1", "name": "f", "args": {}}]}, "messages[0].content[0].type"),
        ({"content": [{"type": "tool_result", "call_id": "1", "output": 1}]}, "messages[0].content[0].type"),
        ({"content": [{"type": "remote_tool_call", "id": "1"}]}, "messages[0].content[0].type"),
        ({"content": [{"type": "smell"}]}, "messages[0].content[0].type"),
        ({"content": [{"type": "text", "text": 5}]}, "messages[0].content[0].text"),
        ({"content": [{"type": "text"}]}, "messages[0].content[0].text"),
        ({"content": []}, "messages[0].content"),
        ({"content": [{"type": "image"}]}, "messages[0].content[0].media"),
        ({"content": [{"type": "image", "media": {"url": "file:///etc/passwd"}}]}, "messages[0].content[0].media"),
        ({"content": [{"type": "image", "media": {"data_base64": "%%"}}]}, "messages[0].content[0].media.data_base64"),
        ({"content": [{"type": "image", "media": {"url": "https://a", "mime_type": 5}}]}, "mime_type"),
        ({"content": [{"type": ["text"], "text": "x"}]}, "messages[0].content[0].type"),
    ],
)
async def test_forbidden_message_is_rejected_with_its_field(message: dict[str, Any], field: str) -> None:
    async with called("remembering") as app:
        body = {"messages": [message], "config": {"thread_id": "t"}}
        error = await app.refused("POST", "/v1/graph/invoke", body, status=422)
        assert error["code"] == "invalid_message"
        assert field in error["details"][0]["field"]
        assert await app.get("/v1/threads") == {"threads": []}
