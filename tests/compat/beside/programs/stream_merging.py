"""Updates of several agents at once, merged to one response."""

from typing import Any

from flows import AgentResponseUpdate, Content, WorkflowAgent


def text(words: str, **fields: Any) -> Any:
    return AgentResponseUpdate(contents=[Content.from_text(words)], role="assistant", **fields)


def merged(*updates: Any) -> Any:
    response = WorkflowAgent.merge_updates(list(updates), "merged")
    contents = [[content.type for content in message.contents] for message in response.messages]
    texts = [message.text for message in response.messages]
    usage = dict(response.usage_details or {})
    return [texts, contents, response.response_id, response.created_at, usage.get("input_token_count")]


def usage(count: int) -> Any:
    return Content.from_usage({"input_token_count": count})


def call(call_id: str) -> Any:
    return Content.from_function_call(call_id, "search", arguments="{}")


def result(call_id: str) -> Any:
    return Content.from_function_result(call_id, result="found")


async def main() -> Any:
    early, late = "2024-01-01T12:00:01Z", "2024-01-01T12:00:03Z"
    return [
        merged(
            text("b2", response_id="b", message_id="2", created_at=late),
            text("a", response_id="a", message_id="1", created_at=early),
            text("b1", response_id="b", message_id="1", created_at=early),
            text("b2 too", response_id="b", message_id="2"),
            text("left"),
            text("a too", response_id="a", message_id="1"),
        ),
        merged(
            text("later", response_id="a", message_id="1", created_at=late),
            text("dangling", response_id="a", created_at=early),
            text("undated", response_id="a", message_id="2"),
        ),
        merged(
            AgentResponseUpdate(contents=[call("c1")], role="assistant", response_id="a", message_id="1"),
            AgentResponseUpdate(contents=[call("c2")], role="assistant", response_id="b", message_id="2"),
            AgentResponseUpdate(contents=[result("c1")], role="tool"),
            AgentResponseUpdate(contents=[result("c2")], role="tool"),
            AgentResponseUpdate(contents=[result("c3")], role="tool"),
            text("found", response_id="a", message_id="3"),
        ),
        merged(
            AgentResponseUpdate(
                contents=[Content.from_text("one"), usage(2)], role="assistant", response_id="a", message_id="1"
            ),
            AgentResponseUpdate(
                contents=[Content.from_text("two"), usage(3)], role="assistant", response_id="b", message_id="2"
            ),
        ),
        merged(),
    ]
