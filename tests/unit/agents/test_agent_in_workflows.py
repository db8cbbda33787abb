"""Agent inside of a workflow: its calls are recorded, its questions are asked, its values survive."""

from __future__ import annotations

import asyncio
import signal
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec
import pydantic
import pydantic_ai
import pytest
from tests.unit.agents import killed_turn
from tests.unit.agents.agent_models import Script, call, note, notes, told

from perdure import Executor, RetryPolicy, SqliteCheckpointStorage, Workflow, WorkflowBuilder, WorkflowContext, handler
from perdure.agents import AgentResponse, Message, ToolContext, tool
from perdure.agents.pydantic.agent import Agent
from perdure.agents.turn import take_turn
from perdure.errors import AgentFailed, UsageLimitReached

TEN = [call("count", {"number": place}, f"c{place}") for place in range(10)]


class Boom(BaseException):
    """The process is gone: nothing catches it."""


def flow(agent: Any, folder: Path, *then: Any) -> Workflow:
    storage = SqliteCheckpointStorage(folder / "threads.db", synchronous="NORMAL")
    builder = WorkflowBuilder(start_executor=agent, checkpoint_storage=storage, name="talk", output_from="all")
    before = agent
    for one in then:
        builder.add_edge(before, one)
        before = one
    return builder.build()


def last(result: Any) -> AgentResponse:
    response: AgentResponse = result.get_outputs()[-1]
    return response


# ---------------------------------------------------------------- crashes


def counting(log: Path, crash_at: str | None = None) -> Callable[..., Any]:
    def count(number: int) -> int:
        """Count."""
        if crash_at == f"c{number}":
            raise Boom
        note(log, tool=number)
        return number + 1

    return count


@pytest.mark.parametrize("place", [0, 4, 9])
async def test_finished_calls_of_a_turn_that_crashed_are_neither_made_nor_paid_again(
    tmp_path: Path, place: int
) -> None:
    log = tmp_path / "log"
    one_by_one = [[one] for one in TEN]
    replies = [*one_by_one, "All counted."]
    first = Agent(Script(replies, log).model(), name="counter", tools=[counting(log, f"c{place}")])
    with pytest.raises(Boom):
        await flow(first, tmp_path).run("Count to ten.", thread_id="t")
    second = Agent(Script(replies, log).model(), name="counter", tools=[counting(log)])
    result = await flow(second, tmp_path).run(thread_id="t")
    assert last(result).text == "All counted."
    assert sorted(one["model"] for one in notes(log) if "model" in one) == list(range(11))
    assert sorted(one["tool"] for one in notes(log) if "tool" in one) == list(range(10))
    assert result.usage == {"input_token_count": 110, "output_token_count": 55, "total_token_count": 165}


async def test_a_turn_killed_with_nine_of_ten_calls_recorded_makes_only_the_tenth_again(tmp_path: Path) -> None:
    root = Path(__file__).parents[3]
    command = [sys.executable, "-m", "tests.unit.agents.killed_turn", str(tmp_path)]
    killed = await asyncio.create_subprocess_exec(*command, cwd=root, stderr=subprocess.PIPE)
    _, errors = await asyncio.wait_for(killed.communicate(), 15)
    assert killed.returncode == -signal.SIGKILL, errors.decode()
    result = await killed_turn.flow(tmp_path).run(thread_id="t")
    assert last(result).text == "All counted."
    results = last(result).messages[1].contents
    assert [(one.call_id, one.result) for one in results] == [(f"c{place}", place + 1) for place in range(10)]
    made = notes(tmp_path / "log")
    assert sorted(one["tool"] for one in made if "tool" in one) == [*range(10), 9]
    assert [one["model"] for one in made if "model" in one] == [0, 1]
    assert [event.data for event in result if event.type == "warning"] == []


async def test_a_call_id_that_a_model_uses_again_is_another_call(tmp_path: Path) -> None:
    log = tmp_path / "log"
    replies = [call("count", {"number": number}, "call_0") for number in (1, 2, 3)]

    def agent(crash_at: str | None = None) -> Agent:
        return Agent(Script([*replies, "Done."], log).model(), name="counter", tools=[counting(log, crash_at)])

    with pytest.raises(Boom):
        await flow(agent("c3"), tmp_path).run("Go", thread_id="t")
    result = await flow(agent(), tmp_path).run(thread_id="t")
    results = [one.result for message in last(result).messages for one in message.of_type("function_result")]
    assert results == [2, 3, 4]
    assert [one["tool"] for one in notes(log) if "tool" in one] == [1, 2, 3]


async def test_a_model_error_fails_the_run_and_a_resume_asks_only_what_was_not_answered(tmp_path: Path) -> None:
    log = tmp_path / "log"
    broken = Script([TEN[0], pydantic_ai.exceptions.ModelHTTPError(503, "gpt", "overloaded")], log)
    with pytest.raises(AgentFailed, match=r"Agent 'counter'.*503"):
        await flow(Agent(broken.model(), name="counter", tools=[counting(log)]), tmp_path).run("Go", thread_id="t")
    mended = Script([TEN[0], "Counted."], log)
    result = await flow(Agent(mended.model(), name="counter", tools=[counting(log)]), tmp_path).run(thread_id="t")
    assert last(result).text == "Counted."
    assert [one.get("model") for one in notes(log) if "model" in one] == [0, 1, 1]
    assert mended.requests == 1


async def test_a_request_that_fails_is_tried_again(tmp_path: Path) -> None:
    class Flaky(Script):
        def _next(self, messages: Any, info: Any) -> list[Any]:
            found = super()._next(messages, info)
            if self.requests < 3:
                raise ConnectionError("gone")
            return found

    script = Flaky(["Here."])
    agent = Agent(script.model(), name="writer", retry=RetryPolicy(3, initial_delay=0.001))
    assert last(await flow(agent, tmp_path).run("Go")).text == "Here."
    assert script.requests == 3


async def test_a_limit_of_usage_leaves_a_thread_that_goes_on_with_a_higher_one(tmp_path: Path) -> None:
    log = tmp_path / "log"
    replies = [[one] for one in TEN[:3]]
    script = Script([*replies, "Done."], log)

    def agent(limit: int) -> Agent:
        tools, limits = [counting(log)], {"request_limit": limit}
        return Agent(script.model(), name="counter", tools=tools, usage_limits=limits)

    with pytest.raises(UsageLimitReached, match="Agent 'counter'"):
        await flow(agent(2), tmp_path).run("Go", thread_id="t")
    result = await flow(agent(9), tmp_path).run(thread_id="t")
    assert last(result).text == "Done."
    assert sorted(one["tool"] for one in notes(log) if "tool" in one) == [0, 1, 2]
    assert [one["model"] for one in notes(log) if "model" in one] == [0, 1, 2, 3]


async def test_a_tool_is_tried_again_as_its_policy_says_and_then_told_to_the_model(tmp_path: Path) -> None:
    log = tmp_path / "log"

    @tool(retry=RetryPolicy(2, initial_delay=0.001))
    def shaky(key: str, context: ToolContext) -> str:
        note(log, key=context.idempotency_key)
        raise ConnectionError("gone")

    script = Script([call("shaky", {"key": "a"}, "c1"), "Too bad."])
    result = await flow(Agent(script.model(), name="writer", tools=[shaky]), tmp_path).run("Go", thread_id="t")
    assert last(result).text == "Too bad."
    assert told(script.heard[1]) == ["ConnectionError: gone"]
    assert len(notes(log)) == 2
    assert len({one["key"] for one in notes(log)}) == 1


class NotStorable(Exception):
    """Of no use to a checkpoint."""

    def __init__(self, what: object) -> None:
        super().__init__("odd")
        self.what = what


async def test_a_tool_that_raised_is_not_called_again_after_a_crash(tmp_path: Path) -> None:
    log = tmp_path / "log"

    def odd() -> str:
        note(log, tool="odd")
        raise NotStorable(object())

    class Killed(Script):
        def _next(self, messages: Any, info: Any) -> list[Any]:
            if len(messages) > 2:
                raise Boom
            return super()._next(messages, info)

    agent = Agent(Killed([call("odd", {}, "c1")]).model(), name="writer", tools=[odd])
    with pytest.raises(Boom):
        await flow(agent, tmp_path).run("Go", thread_id="t")
    script = Script([call("odd", {}, "c1"), "Too bad."])
    await flow(Agent(script.model(), name="writer", tools=[odd]), tmp_path).run(thread_id="t")
    assert [told(one) for one in script.heard] == [["NotStorable: odd"]]
    assert notes(log) == [{"tool": "odd"}]


class Both(Executor):
    """Two agents in one delivery, the second with what the first said; in its first life it does not get further."""

    def __init__(self, first: Any, second: Any, *, is_doomed: bool) -> None:
        super().__init__("both")
        self._agents = first, second
        self._is_doomed = is_doomed

    @handler
    async def run(self, text: str, ctx: WorkflowContext[None, str]) -> None:
        first, second = self._agents
        draft = await take_turn(first, [Message("user", text)])
        final = await take_turn(second, draft.messages)
        if self._is_doomed:
            raise Boom
        await ctx.yield_output(final.text)


async def test_a_turn_that_follows_from_another_is_found_again(tmp_path: Path) -> None:
    log = tmp_path / "log"

    def both(*, is_doomed: bool) -> Both:
        first = Script([[TEN[0], TEN[1]], call("count", {"number": "no"}, "c3"), "Counted."], log)
        counter = Agent(first.model(), name="counter", tools=[counting(log)])
        return Both(counter, Agent(Script(["Checked."], log).model(), name="checker"), is_doomed=is_doomed)

    with pytest.raises(Boom):
        await flow(both(is_doomed=True), tmp_path).run("Count.", thread_id="t")
    made = len(notes(log))
    result = await flow(both(is_doomed=False), tmp_path).run(thread_id="t")
    assert result.get_outputs() == ["Checked."]
    assert len(notes(log)) == made == 6


# ---------------------------------------------------------------- values


class Answer(msgspec.Struct):
    name: str


@dataclass
class Point:
    x: int


class Person(pydantic.BaseModel):
    name: str


@pytest.mark.parametrize("value", [Answer("a"), Point(1), Person(name="Ada")], ids=lambda one: type(one).__name__)
async def test_structured_output_survives_in_another_workflow_object(tmp_path: Path, value: Any) -> None:
    given = value.model_dump() if isinstance(value, Person) else msgspec.to_builtins(value)
    agent = Agent(Script([call("final_result", given, "c1")]).model(), name="writer", output_type=type(value))
    assert last(await flow(agent, tmp_path).run("Go", thread_id="t")).value == value
    again = Agent(Script([]).model(), name="writer", output_type=type(value))
    result = await flow(again, tmp_path).run(thread_id="t")
    assert last(result).value == value
    assert type(last(result).value) is type(value)


async def test_a_thread_is_a_conversation_and_adds_up_what_it_used(tmp_path: Path) -> None:
    script = Script(["One.", "Two."])
    await flow(Agent(script.model(), name="writer"), tmp_path).run("first", thread_id="t")
    result = await flow(Agent(script.model(), name="writer"), tmp_path).run("second", thread_id="t")
    assert last(result).text == "Two."
    assert result.usage["total_token_count"] == 30


async def test_an_agent_after_another_hears_what_it_said(tmp_path: Path) -> None:
    writer, editor = Script(["A draft."]), Script(["Better."])
    last_one = Agent(editor.model(), name="editor")
    result = await flow(Agent(writer.model(), name="writer"), tmp_path, last_one).run("Write.")
    assert [one.text for one in result.get_outputs()] == ["A draft.", "Better."]
    assert told(editor.heard[0]) == ["Write.", "writer: A draft."]


# ---------------------------------------------------------------- approval


def payer(script: Script, log: Path) -> Agent:
    @tool(approval=lambda arguments: arguments["amount"] > 10)
    def pay(amount: int) -> str:
        note(log, paid=amount)
        return f"paid {amount}"

    return Agent(script.model(), name="payer", tools=[pay])


async def test_several_calls_wait_for_approval_across_processes_and_are_made_as_it_says(tmp_path: Path) -> None:
    log = tmp_path / "log"
    calls = [call("pay", {"amount": amount}, f"c{amount}") for amount in (5, 20, 30, 40)]
    script = Script([calls, "Done."])
    first = await flow(payer(script, log), tmp_path).run("Pay.", thread_id="t")
    requests = {one.data.function_call.call_id: one for one in first.get_request_info_events()}
    assert sorted(requests) == ["c20", "c30", "c40"]
    assert notes(log) == [{"paid": 5}]
    verdicts = {
        "c20": requests["c20"].data.approve(),
        "c30": requests["c30"].data.reject("too much"),
        "c40": requests["c40"].data.approve({"amount": 11}),
    }
    result = first
    for call_id, verdict in verdicts.items():  # one by one, each in a process of its own, as it were
        responses = {requests[call_id].request_id: verdict}
        result = await flow(payer(script, log), tmp_path).run(responses=responses, thread_id="t")
    assert last(result).text == "Done."
    results = last(result).messages[1].contents
    assert [one.result or one.exception for one in results] == ["paid 5", "paid 20", "too much", "paid 11"]
    assert sorted(one["paid"] for one in notes(log)) == [5, 11, 20]
    assert script.requests == 2


async def test_arguments_that_were_edited_into_nonsense_are_told_to_the_model(tmp_path: Path) -> None:
    log = tmp_path / "log"
    script = Script([call("pay", {"amount": 20}, "c1"), "Then not."])
    workflow = flow(payer(script, log), tmp_path)
    (request,) = (await workflow.run("Pay.", thread_id="t")).get_request_info_events()
    edited = {request.request_id: request.data.approve({"amount": "lots"})}
    assert last(await workflow.run(responses=edited, thread_id="t")).text == "Then not."
    assert "invalid arguments" in str(told(script.heard[1]))
    assert notes(log) == []


async def test_a_tool_of_pydantic_ai_that_requires_approval_is_asked_for_too(tmp_path: Path) -> None:
    def pay(amount: int) -> str:
        note(tmp_path / "log", paid=amount)
        return f"paid {amount}"

    def agent() -> Agent:
        return Agent(script.model(), name="payer", tools=[pydantic_ai.Tool(pay, requires_approval=True)])

    script = Script([call("pay", {"amount": 20}, "c1"), "Done."])
    (request,) = (await flow(agent(), tmp_path).run("Pay.", thread_id="t")).get_request_info_events()
    result = await flow(agent(), tmp_path).run(responses={request.request_id: request.data.approve()}, thread_id="t")
    assert last(result).text == "Done."
    assert notes(tmp_path / "log") == [{"paid": 20}]
    assert script.requests == 2


async def test_a_run_that_is_cancelled_in_the_middle_of_a_turn_goes_on_where_it_was(tmp_path: Path) -> None:
    log = tmp_path / "log"
    is_called = asyncio.Event()

    def agent(*, is_stuck: bool) -> Agent:
        async def count(number: int) -> int:
            note(log, tool=number)
            if is_stuck and number == 1:
                is_called.set()
                await asyncio.Event().wait()
            return number + 1

        return Agent(Script([[TEN[0]], [TEN[1]], "Counted."], log).model(), name="counter", tools=[count])

    running = asyncio.create_task(flow(agent(is_stuck=True), tmp_path).run("Go", thread_id="t"))
    await is_called.wait()
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running
    result = await flow(agent(is_stuck=False), tmp_path).run(thread_id="t")
    assert last(result).text == "Counted."
    assert [one["tool"] for one in notes(log) if "tool" in one] == [0, 1, 1]
    assert [one["model"] for one in notes(log) if "model" in one] == [0, 1, 2]
