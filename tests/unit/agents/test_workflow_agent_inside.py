"""A workflow that is an agent in another workflow: a crash resumes inside of it, a fork leaves it alone."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest
from tests.unit.agents.logs import begun

from perdure import Executor, InMemoryCheckpointStorage, RetryPolicy, WorkflowBuilder, WorkflowContext, handler
from perdure.agents.conversation.content import Content
from perdure.agents.conversation.message import Message
from perdure.agents.conversation.response import AgentResponse
from perdure.agents.executor import AgentExecutor
from perdure.agents.tools import Tool
from perdure.testing import Faults, ProcessGone
from perdure.testing.scripted import Call, ScriptedAgent
from perdure.workflows.workflow import Workflow


def pay(amount: int) -> str:
    return f"paid {amount}"


def inner(storage: Any, log: Path | None, *, approval: bool = False) -> Workflow:
    first = ScriptedAgent("first", ["one", "two"], log=log)
    tools = [Tool(pay, approval=approval)]
    second = ScriptedAgent("second", [Call("pay", {"amount": 1}), "three", "four"], tools=tools, log=log)
    return (
        WorkflowBuilder(name="inner", start_executor=first, checkpoint_storage=storage).add_edge(first, second).build()
    )


def outer(storage: Any, log: Path | None = None, **options: Any) -> Workflow:
    team = inner(storage, log, **options).as_agent("team")
    last = ScriptedAgent("last", ["so be it", "so be it again"], log=log)
    return WorkflowBuilder(name="outer", start_executor=team, checkpoint_storage=storage).add_edge(team, last).build()


def texts(result: Any) -> list[str]:
    return [response.text for response in result.get_outputs()]


@pytest.mark.parametrize("point", ["commit", "journal"])
async def test_crash_inside_resumes_inside(point: Any, tmp_path: Path) -> None:
    calm = Faults()
    await outer(calm.wrap(InMemoryCheckpointStorage())).run("go", thread_id="t")
    assert calm.counts[point] >= 5
    for nth in range(1, calm.counts[point] + 1):
        for when in ("before", "after"):
            storage, faults, log = InMemoryCheckpointStorage(), Faults(), tmp_path / f"{when}-{nth}"
            faults.crash(point, nth=nth, when=when)
            dying = outer(faults.wrap(storage), log)
            with pytest.raises(ProcessGone):
                await dying.run("go", thread_id="t")
            has_begun = bool(await storage.list_checkpoint_infos(thread_id="t"))
            result = await outer(storage, log).run(None if has_begun else "go", thread_id="t", takeover=True)
            assert texts(result) == ["onethree", "so be it"]
            assert result.usage == {"input_token_count": 4, "output_token_count": 4}
            assert len(begun(log)) - len(set(begun(log))) <= (when == "before")  # what was in flight, if anything
            assert texts(await outer(storage, log).run("on", thread_id="t")) == ["twofour", "so be it again"]


async def test_a_question_inside_is_asked_outside_and_answered_there() -> None:
    storage = InMemoryCheckpointStorage()
    result = await outer(storage, approval=True).run("go", thread_id="t")
    [request] = result.get_request_info_events()
    assert isinstance(request.data, Content) and request.data.type == "function_approval_request"
    answers = {request.request_id: request.data.approve({"amount": 9})}
    result = await outer(storage, approval=True).run(responses=answers, thread_id="t")
    [response, _] = result.get_outputs()
    assert [content.result for message in response.messages for content in message.of_type("function_result")] == [
        "paid 9"
    ]


async def test_question_answered_inside_is_neither_asked_nor_acted_on_again(tmp_path: Path) -> None:
    storage, log = InMemoryCheckpointStorage(), tmp_path / "log"
    [outside] = (await outer(storage, log, approval=True).run("go", thread_id="t")).get_request_info_events()
    within = inner(storage, log, approval=True)
    [inside] = (await within.run(thread_id="t/team")).get_request_info_events()
    await within.run(responses={inside.request_id: inside.data.approve({"amount": 2})}, thread_id="t/team")
    answers = {outside.request_id: outside.data.approve({"amount": 3})}
    result = await outer(storage, log, approval=True).run(responses=answers, thread_id="t")
    assert texts(result) == ["onethree", "so be it"]
    assert begun(log).count("second: call second-0-1") == 1
    assert sorted(thread.thread_id for thread in await storage.list_threads()) == ["t", "t/team"]


class Asking(Executor):
    @handler
    async def start(self, messages: list[Message], ctx: WorkflowContext[Any, str]) -> None:
        answer = await ctx.ask("Which colour?", str, request_id="colour")  # type: ignore[attr-defined]
        await ctx.yield_output(f"It is {answer}.")


@pytest.mark.parametrize("as_result", [False, True])
async def test_request_in_a_nested_workflow_agent_is_a_call_outside(as_result: bool) -> None:
    storage = InMemoryCheckpointStorage()

    def build() -> Workflow:
        deep = WorkflowBuilder(name="deep", start_executor=Asking("asker"), checkpoint_storage=storage).build()
        middle = WorkflowBuilder(name="middle", start_executor=deep.as_agent(), checkpoint_storage=storage).build()
        return WorkflowBuilder(name="top", start_executor=middle.as_agent(), checkpoint_storage=storage).build()

    [request] = (await build().run("go", thread_id="t")).get_request_info_events()
    assert (request.data.type, request.data.name) == ("function_call", "request_info")
    answer: Any = "red"
    if as_result:
        answer = Content.from_function_result(request.data.call_id, result="red")
    result = await build().run(responses={request.request_id: answer}, thread_id="t")
    assert texts(result) == ["It is red."]


async def test_fork_and_rewind_outside_do_not_disturb_the_thread_inside() -> None:
    storage = InMemoryCheckpointStorage()
    await outer(storage).run("go", thread_id="t")
    [head, *_, first] = await outer(storage).history("t")
    assert texts(await outer(storage).run("on", thread_id="t")) == ["twofour", "so be it again"]
    await outer(storage).fork(head, thread_id="u")
    assert texts(await outer(storage).run("on", thread_id="u")) == ["twofour", "so be it again"]
    await outer(storage).rewind("t", first)
    assert texts(await outer(storage).run(thread_id="t")) == ["onethree", "so be it"]
    assert texts(await outer(storage).run("on", thread_id="t")) == ["twofour", "so be it again"]


async def test_turn_that_fails_inside_is_retried_from_the_failed_request(tmp_path: Path) -> None:
    log, fails = tmp_path / "log", [True]

    def reply(messages: list[Message]) -> Any:
        return ConnectionError("no line") if fails and fails.pop() else "two"

    first, second = ScriptedAgent("first", ["one"], log=log), ScriptedAgent("second", reply, log=log)
    team = WorkflowBuilder(name="inner", start_executor=first).add_edge(first, second).build().as_agent("team")
    host = AgentExecutor(team, retry=RetryPolicy(2, initial_delay=0))
    result = await WorkflowBuilder(start_executor=host).build().run("go")
    assert texts(result) == ["onetwo"]
    assert begun(log) == ["first: request 0", "second: request 0", "second: request 0"]


async def test_words_inside_stream_outside_once_per_agent() -> None:
    stream = outer(InMemoryCheckpointStorage()).run("go", thread_id="t", stream=True)
    live = [event.data async for event in stream if event.type == "output"]
    joined = AgentResponse.from_updates(live)
    assert [message.text for message in joined.messages if message.text] == ["one", "three", "so be it"]
    assert [message.author_name for message in joined.messages if message.text] == ["first", "second", "last"]


async def test_workflow_agent_in_a_handler_is_recorded(tmp_path: Path) -> None:
    storage, faults, log = InMemoryCheckpointStorage(), Faults(), tmp_path / "log"

    class Asks(Executor):
        def __init__(self, agent: Any) -> None:
            super().__init__("asks")
            self._agent = agent

        @handler
        async def go(self, text: str, ctx: WorkflowContext[Any, str]) -> None:
            first = await self._agent.run(text)
            await ctx.sleep(0.001)
            await ctx.yield_output(first.text)

    def build(storage: Any) -> Workflow:
        asks = Asks(inner(storage, log).as_agent("team"))
        return WorkflowBuilder(name="asking", start_executor=asks, checkpoint_storage=storage).build()

    faults.crash("commit", nth=4, when="after")
    with pytest.raises(ProcessGone):
        await build(faults.wrap(storage)).run("go", thread_id="t")
    result = await build(storage).run(thread_id="t", takeover=True)
    assert result.get_outputs() == ["onethree"]
    assert len(begun(log)) == len(set(begun(log))) == 4


async def test_workflow_without_a_storage_uses_that_of_the_outer_workflow(tmp_path: Path) -> None:
    storage, faults, log = InMemoryCheckpointStorage(), Faults(), tmp_path / "log"

    def build(storage: Any) -> Workflow:
        team = inner(None, log).as_agent("team")
        return WorkflowBuilder(name="outer", start_executor=team, checkpoint_storage=storage).build()

    faults.crash("commit", nth=4, when="after")
    with pytest.raises(ProcessGone):
        await build(faults.wrap(storage)).run("go", thread_id="t")
    assert texts(await build(storage).run(thread_id="t", takeover=True)) == ["onethree"]
    assert len(begun(log)) == len(set(begun(log))) == 4


@pytest.mark.parametrize("is_streaming", [False, True])
async def test_run_cancelled_inside_resumes_inside(is_streaming: bool, tmp_path: Path) -> None:
    storage, log = InMemoryCheckpointStorage(), tmp_path / "log"
    begins, ends = asyncio.Event(), asyncio.Event()

    async def wait() -> str:
        begins.set()
        await ends.wait()
        return "waited"

    def build() -> Workflow:
        first = ScriptedAgent("first", ["one"], log=log)
        second = ScriptedAgent("second", [Call("wait"), "two"], tools=[wait], log=log)
        team = WorkflowBuilder(name="inner", start_executor=first, checkpoint_storage=storage).add_edge(first, second)
        agent = team.build().as_agent("team")
        return WorkflowBuilder(name="outer", start_executor=agent, checkpoint_storage=storage).build()

    async def run() -> Any:
        if not is_streaming:
            return await build().run("go", thread_id="t")
        return [event async for event in build().run("go", thread_id="t", stream=True)]

    running = asyncio.create_task(run())
    await begins.wait()
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running
    ends.set()
    assert texts(await build().run(thread_id="t")) == ["onetwo"]
    again = [name for name in set(begun(log)) if begun(log).count(name) > 1]
    assert again == ["second: call second-0-1"]
