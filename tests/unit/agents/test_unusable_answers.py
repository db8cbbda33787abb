"""Turns that a model led to a dead end: they fail, a resume asks the model again, and finished calls stay recorded."""

from __future__ import annotations

import asyncio
import contextlib
from pathlib import Path
from typing import Any

import pydantic
import pytest
from pydantic_ai.exceptions import ModelRetry, UnexpectedModelBehavior
from pydantic_ai.messages import ModelMessage, ModelResponse, TextPart, ToolCallPart
from tests.unit.agents.agent_models import Script, call, note, notes, prompts
from tests.unit.agents.test_agent_in_workflows import flow, last

from perdure import Executor, InMemoryCheckpointStorage, RetryPolicy, WorkflowBuilder, WorkflowContext, handler
from perdure.agents import AgentExecutor
from perdure.agents.conversation.response import AgentResponse
from perdure.agents.pydantic.agent import Agent
from perdure.errors import AgentFailed
from perdure.testing import Faults, ProcessGone


class City(pydantic.BaseModel):
    name: str


class Model(Script):
    """Gives its replies, one after the other, for any messages."""

    def _next(self, messages: list[ModelMessage], info: Any) -> list[Any]:
        place, self._replies = self._replies[0], self._replies[1:]
        reply = place if isinstance(place, list) else [place]
        self.received.append(list(messages))
        if self._log is not None:
            note(self._log, model=len(messages))
        return [TextPart(part) if isinstance(part, str) else part for part in reply]


def bad(call_id: str) -> Any:
    return call("count", "{bad", call_id)


def agent(model: Script, log: Path, **options: Any) -> Agent:
    def count(number: int) -> int:
        """Count."""
        note(log, tool=number)
        return number + 1

    return Agent(model.model(), name="counter", tools=[count], **options)


def pairs(response: AgentResponse) -> tuple[set[Any], set[Any]]:
    """The ids of all calls, and those of all results."""
    contents = [content for message in response.messages for content in message.contents]
    kinds = ("function_call", "function_result")
    return tuple({content.call_id for content in contents if content.type == kind} for kind in kinds)  # type: ignore[return-value]


async def test_resume_after_too_many_malformed_arguments_asks_the_model_again(tmp_path: Path) -> None:
    log = tmp_path / "log"
    good = call("count", {"number": 1}, "c1")
    broken = Model([good, *(bad(f"b{n}") for n in range(4))], log)
    advice = r"'counter'.*exceeded max retries count of 3.*resume: the model is asked again"
    with pytest.raises(AgentFailed, match=advice):
        await flow(agent(broken, log), tmp_path).run("Count.", thread_id="t")
    still_broken = Model([bad(f"d{n}") for n in range(4)], log)
    with pytest.raises(AgentFailed, match=advice):
        await flow(agent(still_broken, log), tmp_path).run(thread_id="t")
    assert [len(messages) for messages in still_broken.received] == [
        3,
        5,
        7,
        9,
    ]  # all of its tries, not those of the first
    repaired = Model(["Counted."], log)
    result = await flow(agent(repaired, log), tmp_path).run(thread_id="t")
    assert [part.tool_call_id for part in repaired.received[0][1].parts] == ["c1"]
    assert [part.content for part in repaired.received[0][2].parts] == [2]
    assert len(repaired.received[0]) == 3
    assert [entry["tool"] for entry in notes(log) if "tool" in entry] == [1]
    assert [message.text for message in last(result).messages if message.text] == ["Counted."]
    assert pairs(last(result)) == ({"c1"}, {"c1"})
    assert result.usage["input_token_count"] == 10 * (5 + 4 + 1)
    made = len(notes(log))
    await flow(agent(Model(["More."], log), log), tmp_path).run("And?", thread_id="t")
    assert len(notes(log)) == made + 1


async def test_resume_after_invalid_outputs_asks_the_model_again(tmp_path: Path) -> None:
    log = tmp_path / "log"
    broken = Model(["no city"] * 4, log)
    with pytest.raises(AgentFailed, match=r"Exceeded maximum output retries \(3\)"):
        await flow(agent(broken, log, output_type=City), tmp_path).run("Where?", thread_id="t")
    repaired = Model(["still none", call("final_result", {"name": "Oslo"}, "o1")], log)
    result = await flow(agent(repaired, log, output_type=City), tmp_path).run(thread_id="t")
    assert last(result).value == City(name="Oslo")
    assert prompts(repaired.received[0]) == ["Where?"]
    assert [message.text for message in last(result).messages if message.text] == ["still none", '{"name":"Oslo"}']
    assert len(notes(log)) == 6


async def test_answer_emptied_by_a_filter_is_not_replayed_on_resume(tmp_path: Path) -> None:
    class Filtered(Model):
        def _answer(self, messages: list[ModelMessage], info: Any) -> ModelResponse:
            return ModelResponse(parts=[], finish_reason="content_filter")

    with pytest.raises(AgentFailed, match="ContentFilterError"):
        await flow(Agent(Filtered([]).plain(), name="counter"), tmp_path).run("Go", thread_id="t")
    result = await flow(Agent(Model(["Fine."]).model(), name="counter"), tmp_path).run(thread_id="t")
    assert last(result).text == "Fine."


async def test_request_that_fails_with_unexpected_behavior_is_repeated_on_resume(tmp_path: Path) -> None:
    class Garbled(Model):
        def _answer(self, messages: list[ModelMessage], info: Any) -> ModelResponse:
            raise UnexpectedModelBehavior("Garbled.")

    for message in ("Go", None):
        with pytest.raises(AgentFailed, match="Garbled"):
            await flow(Agent(Garbled([]).plain(), name="counter"), tmp_path).run(message, thread_id="t")
    result = await flow(Agent(Model(["Fine."]).model(), name="counter"), tmp_path).run(thread_id="t")
    assert last(result).text == "Fine."


class Repaired(Script):
    """One more mistake, a call, and a word. The messages determine which comes next."""

    def _next(self, messages: list[ModelMessage], info: Any) -> list[Any]:
        note(self._log, model=len(messages)) if self._log else None
        called = {part.tool_call_id for message in messages for part in message.parts if isinstance(part, ToolCallPart)}
        if "d1" not in called:
            return [bad("d1")]
        return [TextPart("Counted.")] if "c2" in called else [call("count", {"number": 2}, "c2")]


def in_memory(start: Any, storage: Any) -> Any:
    return WorkflowBuilder(name="w", start_executor=start, checkpoint_storage=storage).build()


DEAD_END = [call("count", {"number": 1}, "c1"), *(bad(f"b{n}") for n in range(4))]


@pytest.mark.parametrize("when", ["before", "after"])
@pytest.mark.parametrize("nth", range(1, 6))
async def test_turn_that_left_a_dead_end_replays_the_same_way_after_a_crash(
    nth: int, when: Any, tmp_path: Path
) -> None:
    log, storage, faults = tmp_path / "log", InMemoryCheckpointStorage(), Faults()
    with pytest.raises(AgentFailed):
        await in_memory(agent(Model(DEAD_END, log), log), storage).run("Count.", thread_id="t")
    faults.crash("journal", nth=nth, when=when)
    with pytest.raises(ProcessGone):
        await in_memory(agent(Repaired([], log), log), faults.wrap(storage)).run(thread_id="t")
    result = await in_memory(agent(Repaired([], log), log), storage).run(thread_id="t", takeover=True)
    assert last(result).text == "Counted."
    assert pairs(last(result)) == ({"c1", "d1", "c2"}, {"c1", "d1", "c2"})
    is_lost = when == "before"  # of the writes: the way out, two requests, a call, a request
    assert len([entry for entry in notes(log) if "model" in entry]) == 5 + 3 + (is_lost and nth in (2, 3, 5))
    assert [entry["tool"] for entry in notes(log) if "tool" in entry] == [1, 2, *([2] if is_lost and nth == 4 else [])]


async def test_retries_of_an_executor_leave_a_dead_end(tmp_path: Path) -> None:
    log = tmp_path / "log"
    start = AgentExecutor(agent(Model([*DEAD_END, "Counted."], log), log), retry=RetryPolicy(2, initial_delay=0))
    result = await in_memory(start, InMemoryCheckpointStorage()).run("Count.")
    assert last(result).text == "Counted."
    assert len(notes(log)) == 1 + 6


async def test_handler_replays_a_dead_end_after_a_crash(tmp_path: Path) -> None:
    log, storage, faults = tmp_path / "log", InMemoryCheckpointStorage(), Faults()

    class Fallback(Executor):
        @handler
        async def go(self, text: str, ctx: WorkflowContext[Any, str]) -> None:
            try:
                response = await agent(Model([*DEAD_END, "of the first"], log), log).run(text)
            except AgentFailed:
                response = await Agent(Model(["of the second"], log).model(), name="second").run(text)
            await ctx.yield_output(response.text)

    faults.crash("commit", nth=2, when="before")
    with pytest.raises(ProcessGone):
        await in_memory(Fallback("f"), faults.wrap(storage)).run("go", thread_id="t")
    made = notes(log)
    result = await in_memory(Fallback("f"), storage).run(thread_id="t", takeover=True)
    assert result.get_outputs() == ["of the second"]
    assert notes(log) == made


@pytest.mark.parametrize("is_late", [False, True])
async def test_finished_calls_of_the_last_answer_before_a_dead_end_stay(tmp_path: Path, is_late: bool) -> None:
    log, is_paid = tmp_path / "log", asyncio.Event()

    def make(model: Script) -> Agent:
        async def pay(amount: int) -> str:
            note(log, paid=amount)
            is_paid.set()
            with contextlib.suppress(asyncio.CancelledError):
                await (asyncio.Event() if is_late else is_paid).wait()
            return f"paid {amount}"

        async def check() -> str:
            await is_paid.wait()  # the other call comes first, and is recorded after this one if it is late
            raise ModelRetry("not like that")

        return Agent(model.model(), name="payer", tools=[pay, check], tool_retries=0)

    calls = [call("pay", {"amount": 5}, "c1"), call("check", {}, "c2")]
    with pytest.raises(AgentFailed, match="'check' exceeded max retries"):
        await flow(make(Model([["Both.", *calls]])), tmp_path).run("Pay", thread_id="t")
    repaired = Model(["Paid."])
    result = await flow(make(repaired), tmp_path).run(thread_id="t")
    assert notes(log) == [{"paid": 5}]
    assert [part.content for part in repaired.received[0][-1].parts] == ["paid 5"]
    assert [message.text for message in last(result).messages if message.text] == ["Both.", "Paid."]
    assert pairs(last(result)) == ({"c1"}, {"c1"})


async def test_stream_after_a_dead_end_leaves_out_the_calls_that_led_to_it(tmp_path: Path) -> None:
    log = tmp_path / "log"
    with pytest.raises(AgentFailed):
        await flow(agent(Model(DEAD_END, log), log), tmp_path).run("Count.", thread_id="t")
    speaker = flow(agent(Repaired([], log), log), tmp_path).as_agent()
    stream = speaker.run(thread_id="t", stream=True)
    updates = [update async for update in stream]
    assert AgentResponse.from_updates(updates).messages == (await stream.get_final_response()).messages
    assert not any(str(content.call_id).startswith("b") for update in updates for content in update.contents)
