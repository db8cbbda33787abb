"""SequentialBuilder: one after the other."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Never

import pytest
from tests.unit.orchestrations.teams import Hearing, assert_nothing_is_said_twice, heard_by, texts

from perdure import (
    AgentExecutorResponse,
    AgentResponse,
    AgentSession,
    Executor,
    InMemoryCheckpointStorage,
    Message,
    Workflow,
    WorkflowContext,
    WorkflowValidationError,
    handler,
)
from perdure.agents.conversation.response import AgentResponseUpdate
from perdure.errors import DuplicateExecutorId, InvalidRun
from perdure.orchestrations.request_info import AgentRequestInfoResponse
from perdure.orchestrations.sequential import SequentialBuilder
from perdure.testing.scripted import Call, ScriptedAgent


def trio(storage: Any = None, log: Path | None = None, **options: Any) -> Workflow:
    team = [
        ScriptedAgent("writer", ["A draft.", "A shorter draft."], log=log),
        ScriptedAgent("critic", ["Too long.", "Fine."], log=log),
        ScriptedAgent("editor", ["The text.", "The short text."], log=log),
    ]
    return SequentialBuilder(participants=team, checkpoint_storage=storage, **options).build()


# ---------------------------------------------------------------- who hears what


async def test_each_hears_the_conversation_so_far_and_the_last_one_answers() -> None:
    hearing = Hearing()
    team = [
        hearing.agent("writer", ["A draft."]),
        hearing.agent("critic", ["Long."]),
        hearing.agent("end", ["So."]),
    ]
    result = await SequentialBuilder(participants=team).build().run("Write.")
    assert hearing.told == {
        "writer": [["Write."]],
        "critic": [["Write.", "A draft."]],
        "end": [["Write.", "A draft.", "Long."]],
    }
    [response] = result.get_outputs()
    assert isinstance(response, AgentResponse)
    assert [(one.author_name, one.text) for one in response.messages] == [("end", "So.")]
    assert result.get_intermediate_outputs() == []


async def test_only_what_the_agent_before_said_is_chained_if_so_wanted() -> None:
    hearing = Hearing()
    team = [
        hearing.agent("writer", ["A draft."]),
        hearing.agent("critic", ["Long."]),
        hearing.agent("end", ["So."]),
    ]
    await SequentialBuilder(participants=team, chain_only_agent_responses=True).build().run("Write.")
    assert hearing.told == {"writer": [["Write."]], "critic": [["A draft."]], "end": [["Long."]]}


@pytest.mark.parametrize("given", [Message("user", "Write."), ["Write."], [Message("user", "Write.")]])
async def test_it_begins_with_a_text_a_message_or_several(given: Any) -> None:
    result = await trio().run(given)
    assert result.get_outputs()[0].text == "The text."


async def test_a_second_run_goes_on_with_the_conversation_and_tells_nothing_twice() -> None:
    hearing, storage = Hearing(), InMemoryCheckpointStorage()

    def build() -> Workflow:
        team = [hearing.agent("writer", ["A draft.", "Shorter."]), hearing.agent("critic", ["Too long.", "Fine."])]
        return SequentialBuilder(participants=team, checkpoint_storage=storage).build()

    await build().run("Write.", thread_id="t")
    result = await build().run("Again.", thread_id="t")
    assert hearing.told["writer"] == [["Write."], ["Again."]]
    assert hearing.told["critic"] == [["Write.", "A draft."], ["Again.", "Shorter."]]
    assert result.get_outputs()[0].text == "Fine."


# ---------------------------------------------------------------- executors among them


class Shortens(Executor):
    """Knows of no agents: takes a conversation, and sends one on."""

    @handler
    async def shorten(self, conversation: list[Message], ctx: WorkflowContext[list[Message]]) -> None:
        await ctx.send_message(conversation[-1:])


class Counts(Executor):
    @handler
    async def count(self, prior: AgentExecutorResponse, ctx: WorkflowContext[Never, AgentResponse]) -> None:
        told = f"{prior.executor_id}: {len(prior.full_conversation)}"
        await ctx.yield_output(AgentResponse(messages=(Message("assistant", told),)))


async def test_an_executor_may_work_on_the_conversation_between_agents() -> None:
    hearing = Hearing()
    team = [hearing.agent("writer", ["A draft."]), Shortens("shorten"), hearing.agent("editor", ["The text."])]
    result = await SequentialBuilder(participants=team).build().run("Write.")
    assert hearing.told["editor"] == [["A draft."]]
    assert result.get_outputs()[0].text == "The text."


async def test_an_executor_may_be_the_last_and_take_the_response() -> None:
    team = [ScriptedAgent("writer", ["A draft."]), Counts("count")]
    result = await SequentialBuilder(participants=team).build().run("Write.")
    assert result.get_outputs()[0].text == "writer: 2"


def test_the_last_one_must_have_an_output() -> None:
    builder = SequentialBuilder(participants=[ScriptedAgent("writer", []), Shortens("shorten")])
    with pytest.raises(WorkflowValidationError, match="'shorten', whose handlers declare no workflow output"):
        builder.build()


# ---------------------------------------------------------------- what it is told


async def test_outputs_of_all_or_of_some_can_be_had() -> None:
    everything = await trio(output_from="all").run("Write.")
    assert texts(everything.get_outputs()) == ["A draft.", "Too long.", "The text."]
    some = await trio(output_from=["editor"], intermediate_output_from=["critic"]).run("Write.")
    assert texts(some.get_outputs()) == ["The text."]
    assert texts(some.get_intermediate_outputs()) == ["Too long."]


def test_its_name_is_always_the_same() -> None:
    assert trio().name == trio().name == "sequential-writer-critic-editor"
    named = trio(name="drafts", description="writes")
    assert (named.name, named.description) == ("drafts", "writes")


async def test_it_may_be_told_later_where_its_threads_are_kept() -> None:
    storage = InMemoryCheckpointStorage()
    team = [ScriptedAgent("writer", ["A draft."])]
    await SequentialBuilder(participants=team).with_checkpointing(storage).build().run("Write.", thread_id="t")
    assert await heard_by(storage, "writer") == ["Write.", "A draft."]


async def test_it_may_be_told_when_to_save() -> None:
    stored = {}
    for durability in ("sync", "async", "exit"):
        storage = InMemoryCheckpointStorage()
        result = await trio(storage, durability=durability).run("Write.", thread_id="t")
        assert texts(result.get_outputs()) == ["The text."]
        stored[durability] = len(await storage.list_checkpoint_ids(thread_id="t"))
    assert stored["exit"] < stored["sync"] == stored["async"]


def test_what_means_nothing_is_refused_when_it_is_made() -> None:
    with pytest.raises(DuplicateExecutorId, match="'a'"):
        SequentialBuilder(participants=[ScriptedAgent("a", []), ScriptedAgent("a", [])])
    with pytest.raises(ValueError, match="at least a participant"):
        SequentialBuilder(participants=[])
    with pytest.raises(ValueError, match="output_from names 'b', which is not a participant"):
        SequentialBuilder(participants=[ScriptedAgent("a", [])], output_from=["b"])
    with pytest.raises(InvalidRun, match="not a checkpoint storage"):
        SequentialBuilder(participants=[ScriptedAgent("a", [])], checkpoint_storage="here")
    with pytest.raises(InvalidRun, match="not a checkpoint storage"):
        SequentialBuilder(participants=[ScriptedAgent("a", [])]).with_checkpointing("here")


async def test_one_of_a_hundred_participants_is_reached() -> None:
    team = [ScriptedAgent(f"agent-{number}", [f"{number}"]) for number in range(101)]
    result = await SequentialBuilder(participants=team, chain_only_agent_responses=True).build().run("Count.")
    assert result.get_outputs()[0].text == "100"


# ---------------------------------------------------------------- as an agent


async def test_as_an_agent_it_answers_and_goes_on_in_a_session() -> None:
    storage = InMemoryCheckpointStorage()
    session = AgentSession(session_id="s")
    first = await trio(storage).as_agent().run("Write.", session=session)
    assert texts(first.messages) == ["The text."]
    second = await trio(storage).as_agent().run("Shorter.", session=session)
    assert texts(second.messages) == ["The short text."]


async def test_as_an_agent_it_streams_what_the_last_one_says() -> None:
    stream = trio().as_agent().run("Write.", stream=True)
    updates = [update async for update in stream]
    assert [one.text for one in updates if one.text] == ["The", " text."]
    assert AgentResponse.from_updates(updates).text == (await stream.get_final_response()).text == "The text."


async def test_while_it_is_streamed_everybodys_words_are_seen_as_they_come() -> None:
    seen: list[tuple[str | None, str]] = []
    async for event in trio().run("Write.", stream=True):
        if event.type == "data" and isinstance(event.data, AgentResponseUpdate) and event.data.text:
            seen.append((event.executor_id, event.data.text))
    assert seen == [
        ("writer", "A"),
        ("writer", " draft."),
        ("critic", "Too"),
        ("critic", " long."),
        ("editor", "The"),
        ("editor", " text."),
    ]


def nested(storage: Any) -> Workflow:
    writer = ScriptedAgent("writer", ["A draft.", "A better draft."])
    inner = SequentialBuilder(participants=[writer], name="inner", checkpoint_storage=storage).with_request_info()
    editor = ScriptedAgent("editor", ["The text."])
    team = [inner.build().as_agent(), editor]
    return SequentialBuilder(participants=team, name="outer", checkpoint_storage=storage).build()


async def test_a_team_may_take_part_in_another_and_ask_from_there() -> None:
    storage = InMemoryCheckpointStorage()
    result = await nested(storage).run("Write.", thread_id="t")
    for answer in (AgentRequestInfoResponse.from_strings(["Better."]), AgentRequestInfoResponse.approve()):
        [event] = result.get_request_info_events()
        result = await nested(storage).run(responses={event.request_id: answer}, thread_id="t")
    assert texts(result.get_outputs()) == ["The text."]
    heard = await heard_by(storage, "editor")  # among it what was asked and answered, which has no text
    assert [one for one in heard if one] == ["Write.", "A better draft.", "The text."]


# ---------------------------------------------------------------- stopped


def look_up(word: str) -> str:
    return f"{word}: a rise and fall of the sea"


def with_a_tool(storage: Any, log: Path) -> Workflow:
    writer = ScriptedAgent("writer", [Call("look_up", {"word": "tide"}), "A draft."], tools=[look_up], log=log)
    editor = ScriptedAgent("editor", ["The text."], log=log)
    return SequentialBuilder(participants=[writer, editor], checkpoint_storage=storage).build()


async def test_stopped_anywhere_it_comes_to_the_same_end_and_asks_no_model_twice(tmp_path: Path) -> None:
    await assert_nothing_is_said_twice(with_a_tool, "Write.", tmp_path)


async def test_a_model_that_fails_leaves_the_thread_where_it_can_be_resumed() -> None:
    storage = InMemoryCheckpointStorage()

    def build(reply: Any) -> Workflow:
        team = [ScriptedAgent("writer", ["A draft."]), ScriptedAgent("editor", [reply])]
        return SequentialBuilder(participants=team, checkpoint_storage=storage).build()

    with pytest.raises(ConnectionError, match="no model today"):
        await build(ConnectionError("no model today")).run("Write.", thread_id="t")
    result = await build("The text.").run(thread_id="t")
    assert result.get_outputs()[0].text == "The text."
    assert await heard_by(storage, "editor") == ["Write.", "A draft.", "The text."]
