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
from tests.unit.agents.agent_models import Script, call, last_contents, note, notes

from perdure import Executor, RetryPolicy, SqliteCheckpointStorage, Workflow, WorkflowBuilder, WorkflowContext, handler
from perdure.agents import AgentResponse, Message, ToolContext, tool
from perdure.agents.base import take_turn
from perdure.agents.pydantic.agent import Agent
from perdure.errors import AgentFailed, UsageLimitReached

TEN = [call("count", {"number": place}, f"c{place}") for place in range(10)]


class Boom(BaseException):
    """Stands for the end of the process: no handler catches it."""


def flow(agent: Any, folder: Path, *then: Any) -> Workflow:
    storage = SqliteCheckpointStorage(folder / "threads.db", synchronous="NORMAL")
    builder = WorkflowBuilder(start_executor=agent, checkpoint_storage=storage, name="talk", output_from="all")
    before = agent
    for executor in then:
        builder.add_edge(before, executor)
        before = executor
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
async def test_crashed_turn_neither_repeats_nor_bills_its_finished_calls(tmp_path: Path, place: int) -> None:
    log = tmp_path / "log"
    single_calls = [[part] for part in TEN]
    replies = [*single_calls, "All counted."]
    first = Agent(Script(replies, log).model(), name="counter", tools=[counting(log, f"c{place}")])
    with pytest.raises(Boom):
        await flow(first, tmp_path).run("Count to ten.", thread_id="t")
    second = Agent(Script(replies, log).model(), name="counter", tools=[counting(log)])
    result = await flow(second, tmp_path).run(thread_id="t")
    assert last(result).text == "All counted."
    assert sorted(entry["model"] for entry in notes(log) if "model" in entry) == list(range(11))
    assert sorted(entry["tool"] for entry in notes(log) if "tool" in entry) == list(range(10))
    assert result.usage == {"input_token_count": 110, "output_token_count": 55, "total_token_count": 165}


async def test_turn_killed_after_nine_of_ten_calls_repeats_only_the_tenth(tmp_path: Path) -> None:
    root = Path(__file__).parents[3]
    command = [sys.executable, "-m", "tests.unit.agents.killed_turn", str(tmp_path)]
    killed = await asyncio.create_subprocess_exec(*command, cwd=root, stderr=subprocess.PIPE)
    _, errors = await asyncio.wait_for(killed.communicate(), 60)
    assert killed.returncode == -signal.SIGKILL, errors.decode()
    result = await killed_turn.flow(tmp_path).run(thread_id="t")
    assert last(result).text == "All counted."
    results = last(result).messages[1].contents
    assert [(content.call_id, content.result) for content in results] == [
        (f"c{place}", place + 1) for place in range(10)
    ]
    made = notes(tmp_path / "log")
    assert sorted(entry["tool"] for entry in made if "tool" in entry) == [*range(10), 9]
    assert [entry["model"] for entry in made if "model" in entry] == [0, 1]
    assert [event.data for event in result if event.type == "warning"] == []


async def test_reused_call_id_is_another_call(tmp_path: Path) -> None:
    log = tmp_path / "log"
    replies = [call("count", {"number": number}, "call_0") for number in (1, 2, 3)]

    def agent(crash_at: str | None = None) -> Agent:
        return Agent(Script([*replies, "Done."], log).model(), name="counter", tools=[counting(log, crash_at)])

    with pytest.raises(Boom):
        await flow(agent("c3"), tmp_path).run("Go", thread_id="t")
    result = await flow(agent(), tmp_path).run(thread_id="t")
    results = [content.result for message in last(result).messages for content in message.of_type("function_result")]
    assert results == [2, 3, 4]
    assert [entry["tool"] for entry in notes(log) if "tool" in entry] == [1, 2, 3]


async def test_model_error_fails_the_run_and_a_resume_repeats_only_that_request(tmp_path: Path) -> None:
    log = tmp_path / "log"
    broken = Script([TEN[0], pydantic_ai.exceptions.ModelHTTPError(503, "gpt", "overloaded")], log)
    with pytest.raises(AgentFailed, match=r"Agent 'counter'.*503"):
        await flow(Agent(broken.model(), name="counter", tools=[counting(log)]), tmp_path).run("Go", thread_id="t")
    repaired = Script([TEN[0], "Counted."], log)
    result = await flow(Agent(repaired.model(), name="counter", tools=[counting(log)]), tmp_path).run(thread_id="t")
    assert last(result).text == "Counted."
    assert [entry.get("model") for entry in notes(log) if "model" in entry] == [0, 1, 1]
    assert repaired.requests == 1


async def test_a_request_that_fails_is_tried_again(tmp_path: Path) -> None:
    class Flaky(Script):
        def _next(self, messages: Any, info: Any) -> list[Any]:
            parts = super()._next(messages, info)
            if self.requests < 3:
                raise ConnectionError("gone")
            return parts

    script = Flaky(["Here."])
    agent = Agent(script.model(), name="writer", retry=RetryPolicy(3, initial_delay=0.001))
    assert last(await flow(agent, tmp_path).run("Go")).text == "Here."
    assert script.requests == 3


async def test_thread_stopped_by_a_usage_limit_continues_with_a_higher_limit(tmp_path: Path) -> None:
    log = tmp_path / "log"
    replies = [[part] for part in TEN[:3]]
    script = Script([*replies, "Done."], log)

    def agent(limit: int) -> Agent:
        tools, limits = [counting(log)], {"request_limit": limit}
        return Agent(script.model(), name="counter", tools=tools, usage_limits=limits)

    with pytest.raises(UsageLimitReached, match="Agent 'counter'"):
        await flow(agent(2), tmp_path).run("Go", thread_id="t")
    result = await flow(agent(9), tmp_path).run(thread_id="t")
    assert last(result).text == "Done."
    assert sorted(entry["tool"] for entry in notes(log) if "tool" in entry) == [0, 1, 2]
    assert [entry["model"] for entry in notes(log) if "model" in entry] == [0, 1, 2, 3]


async def test_tool_is_retried_by_its_policy_then_the_model_receives_the_error(tmp_path: Path) -> None:
    log = tmp_path / "log"

    @tool(retry=RetryPolicy(2, initial_delay=0.001))
    def shaky(key: str, context: ToolContext) -> str:
        note(log, key=context.idempotency_key)
        raise ConnectionError("gone")

    script = Script([call("shaky", {"key": "a"}, "c1"), "Too bad."])
    result = await flow(Agent(script.model(), name="writer", tools=[shaky]), tmp_path).run("Go", thread_id="t")
    assert last(result).text == "Too bad."
    assert last_contents(script.received[1]) == ["ConnectionError: gone"]
    assert len(notes(log)) == 2
    assert len({entry["key"] for entry in notes(log)}) == 1


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
    assert [last_contents(messages) for messages in script.received] == [["NotStorable: odd"]]
    assert notes(log) == [{"tool": "odd"}]


class Both(Executor):
    """Two agents in one delivery, the second with the messages of the first. While doomed, it crashes after both."""

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


async def test_turn_that_depends_on_an_earlier_turn_is_replayed_after_a_crash(tmp_path: Path) -> None:
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


@pytest.mark.parametrize("value", [Answer("a"), Point(1), Person(name="Ada")], ids=lambda value: type(value).__name__)
async def test_structured_output_survives_in_another_workflow_object(tmp_path: Path, value: Any) -> None:
    arguments = value.model_dump() if isinstance(value, Person) else msgspec.to_builtins(value)
    agent = Agent(Script([call("final_result", arguments, "c1")]).model(), name="writer", output_type=type(value))
    assert last(await flow(agent, tmp_path).run("Go", thread_id="t")).value == value
    again = Agent(Script([]).model(), name="writer", output_type=type(value))
    result = await flow(again, tmp_path).run(thread_id="t")
    assert last(result).value == value
    assert type(last(result).value) is type(value)


async def test_thread_is_a_conversation_and_adds_up_its_usage(tmp_path: Path) -> None:
    script = Script(["One.", "Two."])
    await flow(Agent(script.model(), name="writer"), tmp_path).run("first", thread_id="t")
    result = await flow(Agent(script.model(), name="writer"), tmp_path).run("second", thread_id="t")
    assert last(result).text == "Two."
    assert result.usage["total_token_count"] == 30


async def test_agent_receives_the_response_of_the_agent_before_it(tmp_path: Path) -> None:
    writer, editor = Script(["A draft."]), Script(["Better."])
    second = Agent(editor.model(), name="editor")
    result = await flow(Agent(writer.model(), name="writer"), tmp_path, second).run("Write.")
    assert [response.text for response in result.get_outputs()] == ["A draft.", "Better."]
    assert last_contents(editor.received[0]) == ["Write.", "writer: A draft."]


# ---------------------------------------------------------------- approval


def payer(script: Script, log: Path) -> Agent:
    @tool(approval=lambda arguments: arguments["amount"] > 10)
    def pay(amount: int) -> str:
        note(log, paid=amount)
        return f"paid {amount}"

    return Agent(script.model(), name="payer", tools=[pay])


async def test_several_calls_wait_for_approval_across_processes_and_follow_it(tmp_path: Path) -> None:
    log = tmp_path / "log"
    calls = [call("pay", {"amount": amount}, f"c{amount}") for amount in (5, 20, 30, 40)]
    script = Script([calls, "Done."])
    first = await flow(payer(script, log), tmp_path).run("Pay.", thread_id="t")
    requests = {event.data.function_call.call_id: event for event in first.get_request_info_events()}
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
    assert [content.result or content.exception for content in results] == ["paid 5", "paid 20", "too much", "paid 11"]
    assert sorted(entry["paid"] for entry in notes(log)) == [5, 11, 20]
    assert script.requests == 2


async def test_model_receives_an_error_for_invalid_edited_arguments(tmp_path: Path) -> None:
    log = tmp_path / "log"
    script = Script([call("pay", {"amount": 20}, "c1"), "Then not."])
    workflow = flow(payer(script, log), tmp_path)
    (request,) = (await workflow.run("Pay.", thread_id="t")).get_request_info_events()
    edited = {request.request_id: request.data.approve({"amount": "lots"})}
    assert last(await workflow.run(responses=edited, thread_id="t")).text == "Then not."
    assert "invalid arguments" in str(last_contents(script.received[1]))
    assert notes(log) == []


async def test_pydantic_ai_tool_that_requires_approval_makes_a_request(tmp_path: Path) -> None:
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


async def test_run_cancelled_in_the_middle_of_a_turn_resumes_there(tmp_path: Path) -> None:
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
    assert [entry["tool"] for entry in notes(log) if "tool" in entry] == [0, 1, 1]
    assert [entry["model"] for entry in notes(log) if "model" in entry] == [0, 1, 2]
