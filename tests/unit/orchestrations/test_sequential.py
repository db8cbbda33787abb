"""SequentialBuilder: one after the other."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Never

import pytest
from tests.unit.orchestrations.teams import Recorder, assert_no_request_is_repeated, session_texts, texts

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
from perdure.agents.conversation.update import AgentResponseUpdate
from perdure.errors import DuplicateExecutorId, InvalidRun
from perdure.orchestrations.fixed_order import SequentialBuilder
from perdure.orchestrations.participants import AgentRequestInfoResponse
from perdure.testing.scripted import Call, ScriptedAgent


def trio(storage: Any = None, log: Path | None = None, **options: Any) -> Workflow:
    team = [
        ScriptedAgent("writer", ["A draft.", "A shorter draft."], log=log),
        ScriptedAgent("critic", ["Too long.", "Fine."], log=log),
        ScriptedAgent("editor", ["The text.", "The short text."], log=log),
    ]
    return SequentialBuilder(participants=team, checkpoint_storage=storage, **options).build()


# ---------------------------------------------------------------- input of each participant


async def test_each_agent_receives_the_conversation_and_the_last_agent_answers() -> None:
    recorder = Recorder()
    team = [
        recorder.agent("writer", ["A draft."]),
        recorder.agent("critic", ["Long."]),
        recorder.agent("end", ["So."]),
    ]
    result = await SequentialBuilder(participants=team).build().run("Write.")
    assert recorder.received == {
        "writer": [["Write."]],
        "critic": [["Write.", "A draft."]],
        "end": [["Write.", "A draft.", "Long."]],
    }
    [response] = result.get_outputs()
    assert isinstance(response, AgentResponse)
    assert [(message.author_name, message.text) for message in response.messages] == [("end", "So.")]
    assert result.get_intermediate_outputs() == []


async def test_chain_only_agent_responses_passes_only_the_previous_answer() -> None:
    recorder = Recorder()
    team = [
        recorder.agent("writer", ["A draft."]),
        recorder.agent("critic", ["Long."]),
        recorder.agent("end", ["So."]),
    ]
    await SequentialBuilder(participants=team, chain_only_agent_responses=True).build().run("Write.")
    assert recorder.received == {"writer": [["Write."]], "critic": [["A draft."]], "end": [["Long."]]}


@pytest.mark.parametrize("run_input", [Message("user", "Write."), ["Write."], [Message("user", "Write.")]])
async def test_run_accepts_a_text_a_message_or_a_list(run_input: Any) -> None:
    result = await trio().run(run_input)
    assert result.get_outputs()[0].text == "The text."


async def test_second_run_continues_the_conversation_and_repeats_nothing() -> None:
    recorder, storage = Recorder(), InMemoryCheckpointStorage()

    def build() -> Workflow:
        team = [recorder.agent("writer", ["A draft.", "Shorter."]), recorder.agent("critic", ["Too long.", "Fine."])]
        return SequentialBuilder(participants=team, checkpoint_storage=storage).build()

    await build().run("Write.", thread_id="t")
    result = await build().run("Again.", thread_id="t")
    assert recorder.received["writer"] == [["Write."], ["Again."]]
    assert recorder.received["critic"] == [["Write.", "A draft."], ["Again.", "Shorter."]]
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
        text = f"{prior.executor_id}: {len(prior.full_conversation)}"
        await ctx.yield_output(AgentResponse(messages=(Message("assistant", text),)))


async def test_an_executor_may_work_on_the_conversation_between_agents() -> None:
    recorder = Recorder()
    team = [recorder.agent("writer", ["A draft."]), Shortens("shorten"), recorder.agent("editor", ["The text."])]
    result = await SequentialBuilder(participants=team).build().run("Write.")
    assert recorder.received["editor"] == [["A draft."]]
    assert result.get_outputs()[0].text == "The text."


async def test_an_executor_may_be_the_last_and_take_the_response() -> None:
    team = [ScriptedAgent("writer", ["A draft."]), Counts("count")]
    result = await SequentialBuilder(participants=team).build().run("Write.")
    assert result.get_outputs()[0].text == "writer: 2"


def test_last_participant_must_have_an_output() -> None:
    builder = SequentialBuilder(participants=[ScriptedAgent("writer", []), Shortens("shorten")])
    with pytest.raises(WorkflowValidationError, match="'shorten' must have output type"):
        builder.build()


# ---------------------------------------------------------------- options


async def test_outputs_of_all_or_of_some_participants_are_available() -> None:
    everything = await trio(output_from="all").run("Write.")
    assert texts(everything.get_outputs()) == ["A draft.", "Too long.", "The text."]
    some = await trio(output_from=["editor"], intermediate_output_from=["critic"]).run("Write.")
    assert texts(some.get_outputs()) == ["The text."]
    assert texts(some.get_intermediate_outputs()) == ["Too long."]


def test_default_name_lists_the_participants() -> None:
    assert trio().name == trio().name == "sequential-writer-critic-editor"
    named = trio(name="drafts", description="writes")
    assert (named.name, named.description) == ("drafts", "writes")


async def test_storage_can_be_set_after_construction() -> None:
    storage = InMemoryCheckpointStorage()
    team = [ScriptedAgent("writer", ["A draft."])]
    await SequentialBuilder(participants=team).with_checkpointing(storage).build().run("Write.", thread_id="t")
    assert await session_texts(storage, "writer") == ["Write.", "A draft."]


async def test_durability_decides_when_a_run_saves() -> None:
    stored = {}
    for durability in ("sync", "async", "exit"):
        storage = InMemoryCheckpointStorage()
        result = await trio(storage, durability=durability).run("Write.", thread_id="t")
        assert texts(result.get_outputs()) == ["The text."]
        stored[durability] = len(await storage.list_checkpoint_ids(thread_id="t"))
    assert stored["exit"] < stored["sync"] == stored["async"]


def test_invalid_options_are_rejected() -> None:
    with pytest.raises(DuplicateExecutorId, match="'a'"):
        SequentialBuilder(participants=[ScriptedAgent("a", []), ScriptedAgent("a", [])])
    with pytest.raises(ValueError, match="participants cannot be empty"):
        SequentialBuilder(participants=[])
    with pytest.raises(ValueError, match="Unknown output participant 'b' is not in the participants list"):
        SequentialBuilder(participants=[ScriptedAgent("a", [])], output_from=["b"]).build()
    with pytest.raises(InvalidRun, match="not a checkpoint storage"):
        SequentialBuilder(participants=[ScriptedAgent("a", [])], checkpoint_storage="here")
    with pytest.raises(InvalidRun, match="not a checkpoint storage"):
        SequentialBuilder(participants=[ScriptedAgent("a", [])]).with_checkpointing("here")


async def test_last_of_101_participants_is_reached() -> None:
    team = [ScriptedAgent(f"agent-{number}", [f"{number}"]) for number in range(101)]
    result = await SequentialBuilder(participants=team, chain_only_agent_responses=True).build().run("Count.")
    assert result.get_outputs()[0].text == "100"


# ---------------------------------------------------------------- as an agent


async def test_team_as_an_agent_answers_and_continues_in_a_session() -> None:
    storage = InMemoryCheckpointStorage()
    session = AgentSession(session_id="s")
    first = await trio(storage).as_agent().run("Write.", session=session)
    assert texts(first.messages) == ["The text."]
    second = await trio(storage).as_agent().run("Shorter.", session=session)
    assert texts(second.messages) == ["The short text."]


async def test_team_as_an_agent_streams_the_answer_of_the_last_agent() -> None:
    stream = trio().as_agent().run("Write.", stream=True)
    updates = [update async for update in stream]
    assert [update.text for update in updates if update.text] == ["The", " text."]
    assert AgentResponse.from_updates(updates).text == (await stream.get_final_response()).text == "The text."


async def test_stream_contains_the_words_of_public_agents_in_order() -> None:
    seen: list[tuple[str, str | None, str]] = []
    async for event in trio(output_from=["editor"], intermediate_output_from=["writer"]).run("Write.", stream=True):
        if isinstance(event.data, AgentResponseUpdate) and event.data.text:
            seen.append((event.type, event.executor_id, event.data.text))
    assert seen == [
        ("intermediate", "writer", "A"),
        ("intermediate", "writer", " draft."),
        ("output", "editor", "The"),
        ("output", "editor", " text."),
    ]


def nested(storage: Any) -> Workflow:
    writer = ScriptedAgent("writer", ["A draft.", "A better draft."])
    inner = SequentialBuilder(participants=[writer], name="inner", checkpoint_storage=storage).with_request_info()
    editor = ScriptedAgent("editor", ["The text."])
    team = [inner.build().as_agent(), editor]
    return SequentialBuilder(participants=team, name="outer", checkpoint_storage=storage).build()


async def test_nested_team_can_request_a_review() -> None:
    storage = InMemoryCheckpointStorage()
    result = await nested(storage).run("Write.", thread_id="t")
    for answer in (AgentRequestInfoResponse.from_strings(["Better."]), AgentRequestInfoResponse.approve()):
        [event] = result.get_request_info_events()
        result = await nested(storage).run(responses={event.request_id: answer}, thread_id="t")
    assert texts(result.get_outputs()) == ["The text."]
    received = await session_texts(storage, "editor")  # includes the request and its answer, which have no text
    assert [text for text in received if text] == ["Write.", "A better draft.", "The text."]


# ---------------------------------------------------------------- stopped


def look_up(word: str) -> str:
    return f"{word}: a rise and fall of the sea"


def with_a_tool(storage: Any, log: Path) -> Workflow:
    writer = ScriptedAgent("writer", [Call("look_up", {"word": "tide"}), "A draft."], tools=[look_up], log=log)
    editor = ScriptedAgent("editor", ["The text."], log=log)
    return SequentialBuilder(participants=[writer, editor], checkpoint_storage=storage).build()


async def test_stop_at_any_write_changes_no_result_and_repeats_no_request(tmp_path: Path) -> None:
    await assert_no_request_is_repeated(with_a_tool, "Write.", tmp_path)


async def test_failing_model_leaves_the_thread_resumable() -> None:
    storage = InMemoryCheckpointStorage()

    def build(reply: Any) -> Workflow:
        team = [ScriptedAgent("writer", ["A draft."]), ScriptedAgent("editor", [reply])]
        return SequentialBuilder(participants=team, checkpoint_storage=storage).build()

    with pytest.raises(ConnectionError, match="no model today"):
        await build(ConnectionError("no model today")).run("Write.", thread_id="t")
    result = await build("The text.").run(thread_id="t")
    assert result.get_outputs()[0].text == "The text."
    assert await session_texts(storage, "editor") == ["Write.", "A draft.", "The text."]
