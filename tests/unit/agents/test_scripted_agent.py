"""ScriptedAgent: says what was written down, streams it, logs each request and call."""

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
async def test_what_is_streamed_joins_up_to_what_is_given_without_streaming(script: list[Any]) -> None:
    calm = await agent(*script).run("go")
    stream = agent(*script).run("go", stream=True)
    updates = [update async for update in stream]
    assert AgentResponse.from_updates(updates) == await stream == calm


async def test_a_text_is_streamed_word_by_word() -> None:
    updates = [update async for update in agent("one two three").run("go", stream=True)]
    assert [one.text for one in updates if one.text] == ["one", " two", " three"]


async def test_how_far_it_is_follows_from_the_session() -> None:
    speaker = agent("one", "two")
    session = speaker.create_session()
    said = [(await speaker.run("go", session=session)).text for _ in range(2)]
    assert said == ["one", "two"]
    assert (await speaker.run("go")).text == "one"
    with pytest.raises(ScriptOver, match="asked 3 times; its script has 2 replies"):
        await speaker.run("go", session=session)


async def test_a_function_is_given_all_that_was_said() -> None:
    def reply(messages: list[Message]) -> str:
        return " ".join(one.text for one in messages)

    speaker = ScriptedAgent("a", reply)
    session = speaker.create_session()
    await speaker.run("one", session=session)
    assert (await speaker.run("two", session=session)).text == "one one two"


async def test_an_exception_is_raised() -> None:
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


async def test_tools_of_one_turn_are_known_in_that_turn_alone() -> None:
    def twice(n: int) -> int:
        return 2 * n

    speaker = agent(Call("twice", {"n": 2}), "done", Call("twice", {"n": 2}), "done")
    session = speaker.create_session()
    first = await speaker.run("go", session=session, tools=[twice])
    second = await speaker.run("go", session=session)
    results = [
        one for said in (first, second) for message in said.messages for one in message.of_type("function_result")
    ]
    assert [(one.result, one.exception) for one in results] == [(4, None), (None, "There is no tool 'twice'.")]


def test_an_agent_needs_a_name() -> None:
    with pytest.raises(ValueError, match="needs a name"):
        ScriptedAgent("", ["hi"])
