"""ConcurrentBuilder: all at once, then joined."""

from __future__ import annotations

import asyncio
import functools
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Never

import pytest
from tests.unit.orchestrations.teams import Recorder, assert_no_request_is_repeated, text_of, texts

from perdure import (
    AgentExecutorRequest,
    AgentExecutorResponse,
    AgentResponse,
    AgentSession,
    BaseAgent,
    Executor,
    InMemoryCheckpointStorage,
    Message,
    Workflow,
    WorkflowContext,
    handler,
)
from perdure.errors import DuplicateExecutorId
from perdure.orchestrations.fixed_order import ConcurrentBuilder
from perdure.testing.scripted import Call, ScriptedAgent


def panel(storage: Any = None, log: Path | None = None, **options: Any) -> ConcurrentBuilder:
    team = [
        ScriptedAgent("optimist", ["It will work.", "Still."], log=log),
        ScriptedAgent("sceptic", ["It will not.", "Never."], log=log),
        ScriptedAgent("judge", ["It may.", "Perhaps."], log=log),
    ]
    return ConcurrentBuilder(participants=team, checkpoint_storage=storage, **options)


async def test_output_has_one_message_per_agent_in_their_order() -> None:
    [response] = (await panel().build().run("Will it work?")).get_outputs()
    assert isinstance(response, AgentResponse)
    assert [(message.role, message.author_name, message.text) for message in response.messages] == [
        ("assistant", "optimist", "It will work."),
        ("assistant", "sceptic", "It will not."),
        ("assistant", "judge", "It may."),
    ]


async def test_output_uses_the_last_message_of_a_turn_with_tools() -> None:
    def look_up(word: str) -> str:
        return word.upper()

    team = [
        ScriptedAgent("reader", [Call("look_up", {"word": "tide"}), "TIDE."], tools=[look_up]),
        ScriptedAgent("other", ["No."]),
    ]
    [response] = (await ConcurrentBuilder(participants=team).build().run("What?")).get_outputs()
    assert texts(response.messages) == ["TIDE.", "No."]


class WaitsForTheOther(BaseAgent):
    """Answers when both have begun, the first one last."""

    def __init__(self, name: str, begun: asyncio.Barrier, before: asyncio.Event | None, after: asyncio.Event) -> None:
        super().__init__(name)
        self._begun, self._before, self._after = begun, before, after

    async def run(self, messages: Any = None, *, stream: bool = False, session: Any = None, **kwargs: Any) -> Any:
        await self._begun.wait()
        if self._before is not None:
            await self._before.wait()
        self._after.set()
        return AgentResponse(messages=(Message("assistant", f"{self.name} is done", self.name),))


async def test_participants_run_concurrently_and_the_output_keeps_their_order() -> None:
    begun, second_is_done = asyncio.Barrier(2), asyncio.Event()
    team = [
        WaitsForTheOther("first", begun, second_is_done, asyncio.Event()),
        WaitsForTheOther("second", begun, None, second_is_done),
    ]
    [response] = (await ConcurrentBuilder(participants=team).build().run("Go.")).get_outputs()
    assert texts(response.messages) == ["first is done", "second is done"]


async def test_each_agent_receives_only_new_questions_and_remembers_earlier_ones() -> None:
    recorder, storage = Recorder(), InMemoryCheckpointStorage()

    def build() -> Workflow:
        team = [recorder.agent("a", ["One.", "Two."]), recorder.agent("b", ["Uno.", "Dos."])]
        return ConcurrentBuilder(participants=team, checkpoint_storage=storage).build()

    await build().run(["Count.", Message("user", "Please.")], thread_id="t")
    [response] = (await build().run(Message("user", "More."), thread_id="t")).get_outputs()
    assert recorder.received == {"a": [["Count.", "Please."], ["More."]], "b": [["Count.", "Please."], ["More."]]}
    assert texts(response.messages) == ["Two.", "Dos."]


# ---------------------------------------------------------------- aggregators


def joined(results: list[AgentExecutorResponse]) -> str:
    return " ".join(map(text_of, results))


async def joined_later(results: list[AgentExecutorResponse]) -> str:
    return joined(results)


async def yielded(results: list[AgentExecutorResponse], ctx: WorkflowContext[Never, str]) -> None:
    await ctx.yield_output(joined(results))


def promised(results: list[AgentExecutorResponse]) -> Any:
    return joined_later(results)


async def named(names: list[str], results: list[AgentExecutorResponse]) -> str:
    assert [result.executor_id for result in results] == names
    return joined(results)


class Joins(Executor):
    @handler
    async def join(self, results: list[AgentExecutorResponse], ctx: WorkflowContext[Never, str]) -> None:
        await ctx.yield_output(joined(results))


@pytest.mark.parametrize(
    "aggregator",
    [
        joined,
        joined_later,
        yielded,
        functools.partial(named, ["optimist", "sceptic", "judge"]),
        promised,
        Joins("joins"),
    ],
    ids=["function", "async function", "with the context", "partial", "function that gives a coroutine", "executor"],
)
async def test_aggregator_result_is_the_output(aggregator: Any) -> None:
    result = await panel().with_aggregator(aggregator).build().run("Will it work?")
    assert result.get_outputs() == ["It will work. It will not. It may."]


async def test_aggregator_without_a_result_makes_no_output() -> None:
    result = await panel().with_aggregator(lambda results: None).build().run("Will it work?")
    assert result.get_outputs() == []


@dataclass
class Verdict:
    votes: dict[str, str]


async def test_aggregator_output_of_a_custom_type_survives_a_restart() -> None:
    storage = InMemoryCheckpointStorage()

    def count(results: list[AgentExecutorResponse]) -> Verdict:
        return Verdict({result.executor_id: text_of(result) for result in results})

    await panel(storage).with_aggregator(count).build().run("Will it work?", thread_id="t")
    again = await panel(storage).with_aggregator(count).build().run(thread_id="t")
    assert again.get_outputs() == [
        Verdict({"optimist": "It will work.", "sceptic": "It will not.", "judge": "It may."})
    ]


async def test_agent_called_by_an_aggregator_is_recorded_too(tmp_path: Path) -> None:
    def build(storage: Any, log: Path) -> Workflow:
        chair = ScriptedAgent("chair", ["Two of three say yes."], log=log)

        async def sum_up(results: list[AgentExecutorResponse]) -> str:
            response = await chair.run([Message("user", text_of(result)) for result in results])
            return response.text

        return panel(storage, log).with_aggregator(sum_up).build()

    await assert_no_request_is_repeated(build, "Will it work?", tmp_path, at_once=3)


def test_invalid_aggregator_is_rejected() -> None:
    with pytest.raises(TypeError, match="aggregator must be an Executor or a callable, got 'joined'"):
        panel().with_aggregator("joined")  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="has already been called"):
        panel().with_aggregator(joined).with_aggregator(joined)


# ---------------------------------------------------------------- options


class Echoes(Executor):
    """An executor as a participant."""

    @handler
    async def echo(self, request: AgentExecutorRequest, ctx: WorkflowContext[AgentExecutorResponse]) -> None:
        response = AgentResponse(messages=(Message("assistant", request.messages[-1].text, self.id),))
        await ctx.send_message(AgentExecutorResponse(self.id, response, [*request.messages, *response.messages]))


async def test_an_executor_may_take_part() -> None:
    team = [ScriptedAgent("agent", ["Yes."]), Echoes("echo")]
    [response] = (await ConcurrentBuilder(participants=team).build().run("Hello")).get_outputs()
    assert texts(response.messages) == ["Yes.", "Hello"]


async def test_participant_outputs_are_available_beside_the_joined_output() -> None:
    result = await panel(output_from=["judge"], intermediate_output_from="all_other").build().run("Will it work?")
    assert texts(result.get_intermediate_outputs()) == ["It will work.", "It will not."]
    assert [texts(output.messages) for output in result.get_outputs()] == [
        ["It may."],
        ["It will work.", "It will not.", "It may."],
    ]


def test_default_name_lists_the_participants() -> None:
    assert panel().build().name == "concurrent-optimist-sceptic-judge"
    named = panel(name="panel", description="votes").build()
    assert (named.name, named.description) == ("panel", "votes")


def test_invalid_options_are_rejected() -> None:
    with pytest.raises(ValueError, match="at least 2 participants, got 1"):
        ConcurrentBuilder(participants=[ScriptedAgent("a", [])])
    with pytest.raises(DuplicateExecutorId, match="'a'"):
        ConcurrentBuilder(participants=[ScriptedAgent("a", []), ScriptedAgent("a", [])])
    with pytest.raises(DuplicateExecutorId, match="'aggregator'"):
        ConcurrentBuilder(participants=[ScriptedAgent("aggregator", []), ScriptedAgent("a", [])]).build()
    with pytest.raises(ValueError, match="Unknown output participant 'x'"):
        panel(output_from=["x"]).build()


# ---------------------------------------------------------------- as an agent, and stopped


async def test_agent_of_a_team_answers_for_all_and_continues_in_a_session() -> None:
    storage, session = InMemoryCheckpointStorage(), AgentSession(session_id="s")
    first = await panel(storage).build().as_agent().run("Will it work?", session=session)
    assert texts(first.messages) == ["It will work.", "It will not.", "It may."]
    stream = panel(storage).build().as_agent().run("And now?", session=session, stream=True)
    updates = [update async for update in stream]
    assert texts(AgentResponse.from_updates(updates).messages) == ["Still.", "Never.", "Perhaps."]


async def test_stop_at_any_write_changes_no_result_and_repeats_no_request(tmp_path: Path) -> None:
    def build(storage: Any, log: Path) -> Workflow:
        return panel(storage, log).with_aggregator(joined).build()

    await assert_no_request_is_repeated(build, "Will it work?", tmp_path, at_once=3)


async def test_failed_agent_does_not_repeat_the_others(tmp_path: Path) -> None:
    storage, log = InMemoryCheckpointStorage(), tmp_path / "log"
    failed = asyncio.Event()

    def build(reply: Any) -> Workflow:
        team = [ScriptedAgent("good", ["Yes."], log=log), ScriptedAgent("bad", reply, log=log)]
        return ConcurrentBuilder(participants=team, checkpoint_storage=storage).build()

    def fails(_: list[Message]) -> Any:
        failed.set()
        return ConnectionError("no model today")

    with pytest.raises(ConnectionError, match="no model today"):
        await build(fails).run("Well?", thread_id="t")
    assert failed.is_set()
    [response] = (await build(["No."]).run(thread_id="t")).get_outputs()
    assert texts(response.messages) == ["Yes.", "No."]
    assert log.read_text().count('"agent": "good"') == 1
