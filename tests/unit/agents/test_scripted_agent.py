"""ScriptedAgent: replies with its script, streams the replies, logs each request and call."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from tests.unit.agents.logs import begun

from perdure.agents.conversation.content import Content
from perdure.agents.conversation.message import Message
from perdure.agents.conversation.response import AgentResponse
from perdure.testing import ScriptOver
from perdure.testing.scripted import Call, ScriptedAgent


def add(a: int, b: int) -> int:
    return a + b


def agent(*replies: Any, **options: Any) -> ScriptedAgent:
    return ScriptedAgent("a", list(replies), tools=[add], **options)


SCRIPTS: list[list[Any]] = [
    ["one two  three "],
    [""],
    [{"name": "ann"}],
    [Message("assistant", ["a b", "c d", Content.from_uri("https://x"), "e f"], message_id="message-1")],
    [Message("assistant", [Content.from_text_reasoning("hm hm"), "so"], additional_properties={"x": 1})],
    [[Call("add", {"a": 1, "b": 2}), Call("add", '{"a": 1}')], Call("unknown"), "done"],
    [Message("assistant", ["Let me", Content.from_function_call("c1", "add", arguments={"a": 1, "b": 2})]), "3"],
]


@pytest.mark.parametrize("script", SCRIPTS, ids=range(len(SCRIPTS)))
async def test_streamed_updates_join_to_the_unstreamed_response(script: list[Any]) -> None:
    calm = await agent(*script).run("go")
    stream = agent(*script).run("go", stream=True)
    updates = [update async for update in stream]
    assert AgentResponse.from_updates(updates) == await stream.get_final_response() == calm


async def test_a_text_is_streamed_word_by_word() -> None:
    updates = [update async for update in agent("one two three").run("go", stream=True)]
    assert [update.text for update in updates if update.text] == ["one", " two", " three"]


async def test_position_in_the_script_follows_from_the_session() -> None:
    speaker = agent("one", "two")
    session = speaker.create_session()
    texts = [(await speaker.run("go", session=session)).text for _ in range(2)]
    assert texts == ["one", "two"]
    assert (await speaker.run("go")).text == "one"
    with pytest.raises(ScriptOver, match="asked 3 times; its script has 2 replies"):
        await speaker.run("go", session=session)


async def test_function_receives_the_whole_conversation() -> None:
    def reply(messages: list[Message]) -> str:
        return " ".join(message.text for message in messages)

    speaker = ScriptedAgent("a", reply)
    session = speaker.create_session()
    await speaker.run("one", session=session)
    assert (await speaker.run("two", session=session)).text == "one one two"


async def test_exception_in_the_script_is_raised() -> None:
    with pytest.raises(ConnectionError, match="no line"):
        await agent(ConnectionError("no line")).run("go")


async def test_a_dict_is_the_structured_output_and_its_json_the_text() -> None:
    response = await agent({"next": "ann"}).run("go")
    assert (response.value, response.text) == ({"next": "ann"}, '{"next": "ann"}')


async def test_each_request_counts_and_each_request_and_call_is_logged(tmp_path: Path) -> None:
    lines: list[dict[str, Any]] = []
    for log in (tmp_path / "log", lines.append):
        calls = [Call("add", {"a": 1, "b": 2}), Call("add", {"a": 3, "b": 4}, call_id="mine")]
        response = await agent(calls, "done", usage={"tokens": 5}, log=log).run("go")
        assert response.usage_details == {"tokens": 10}
    assert sorted(begun(tmp_path / "log")) == ["a: call a-0-1", "a: call mine", "a: request 0", "a: request 1"]
    assert len(lines) == 4 and lines[0] == {"agent": "a", "kind": "model", "place": 0}


async def test_tools_of_one_turn_are_known_only_in_that_turn() -> None:
    def twice(n: int) -> int:
        return 2 * n

    speaker = agent(Call("twice", {"n": 2}), "done", Call("twice", {"n": 2}), "done")
    session = speaker.create_session()
    first = await speaker.run("go", session=session, tools=[twice])
    second = await speaker.run("go", session=session)
    results = [
        content
        for response in (first, second)
        for message in response.messages
        for content in message.of_type("function_result")
    ]
    assert [(content.result, content.exception) for content in results] == [
        (4, None),
        (None, "No tool 'twice' exists."),
    ]


def test_an_agent_needs_a_name() -> None:
    with pytest.raises(ValueError, match="needs a name"):
        ScriptedAgent("", ["hi"])
