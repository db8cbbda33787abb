"""Agents inside of workflows: recorded calls are not repeated, usage adds up, replies stream live."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tests.unit.agents.logs import begun

from perdure import (
    Executor,
    InMemoryCheckpointStorage,
    RetryPolicy,
    RunContext,
    WorkflowBuilder,
    WorkflowContext,
    handler,
    workflow,
)
from perdure.agents.conversation.update import AgentResponseUpdate
from perdure.agents.tools import Tool, tool
from perdure.events import WorkflowRunState
from perdure.testing import Faults, ProcessGone
from perdure.testing.scripted import Call, ScriptedAgent


def double(number: int) -> int:
    return 2 * number


TEN = [Call("double", {"number": number}) for number in range(10)]


def counting(log: Path | None = None) -> ScriptedAgent:
    return ScriptedAgent("counter", [TEN, Call("double", {"number": 10}), "done"], tools=[double], log=log)


class Asks(Executor):
    """Runs an agent in its handler, as users do."""

    def __init__(self, make: Callable[[], ScriptedAgent], *, in_step: bool = False) -> None:
        super().__init__("asks")
        self._make = make
        self._in_step = in_step

    @handler
    async def go(self, text: str, ctx: WorkflowContext[Any, str]) -> None:
        agent = self._make()

        async def ask() -> str:
            session = agent.create_session()
            first = await agent.run(text, session=session)
            return first.text

        await ctx.yield_output(await ctx.step(ask) if self._in_step else await ask())


def build(kind: str, storage: Any, log: Path) -> Any:
    """The same agent in a graph, in a handler, in a step, and in a function."""
    if kind == "graph":
        return WorkflowBuilder(name=kind, start_executor=counting(log), checkpoint_storage=storage).build()
    if kind != "function":
        asks = Asks(lambda: counting(log), in_step=kind == "step")
        return WorkflowBuilder(name=kind, start_executor=asks, checkpoint_storage=storage).build()

    @workflow(name=kind)
    async def flow(text: str, ctx: RunContext) -> str:
        return (await counting(log).run(text)).text

    return flow.build(storage)


KINDS = ["graph", "handler", "step", "function"]


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("nth", [1, 6, 11, 12, 13])
async def test_finished_calls_of_a_turn_that_was_killed_are_not_made_again(kind: str, nth: int, tmp_path: Path) -> None:
    storage, faults, log = InMemoryCheckpointStorage(), Faults(), tmp_path / "log"
    faults.crash("journal", nth=nth, when="after")
    with pytest.raises(ProcessGone):
        await build(kind, faults.wrap(storage), log).run("go", thread_id="t")
    result = await build(kind, storage, log).run(thread_id="t", takeover=True)
    assert str(result.get_outputs()[0]) == "done"
    repeated = [name for name in set(begun(log)) if begun(log).count(name) > 1]
    # Ten calls are made at once: those that had begun and were not recorded are made again, no others.
    assert len(repeated) <= (10 - (nth - 1) if 1 < nth <= 11 else 0)
    assert len(set(begun(log))) == 3 + 11
    assert result.usage == {"input_token_count": 3, "output_token_count": 3}


@pytest.mark.parametrize("kind", [kind for kind in KINDS if kind != "graph"])
async def test_usage_adds_up_over_runs_of_the_thread(kind: str, tmp_path: Path) -> None:
    storage, log = InMemoryCheckpointStorage(), tmp_path / "log"
    await build(kind, storage, log).run("go", thread_id="t")
    result = await build(kind, storage, log).run("go", thread_id="t")
    assert result.usage == {"input_token_count": 6, "output_token_count": 6}
    [*_, head] = await storage.list_checkpoints(thread_id="t")
    assert head.metadata["usage"] == result.usage


async def test_usage_of_siblings_sub_workflows_and_retried_executors_adds_up() -> None:
    tries: list[int] = []

    class Flaky(Executor):
        @handler
        async def go(self, text: str, ctx: WorkflowContext[str]) -> None:
            await ScriptedAgent("helper", ["ok"]).run(text)
            tries.append(1)
            if len(tries) == 1:
                raise ConnectionError("once")
            await ctx.send_message(text)

    flaky = Flaky("flaky", retry=RetryPolicy(2, initial_delay=0))
    inner = WorkflowBuilder(name="inner", start_executor=ScriptedAgent("deep", ["deep"])).build()
    others = [ScriptedAgent(name, [name]) for name in ("x", "y")]
    flow = (
        WorkflowBuilder(start_executor=flaky, checkpoint_storage=InMemoryCheckpointStorage())
        .add_fan_out_edges(flaky, [inner, *others])
        .build()
    )
    result = await flow.run("go")
    assert len(tries) == 2
    assert result.usage == {"input_token_count": 4, "output_token_count": 4}


async def test_usage_of_a_turn_in_a_step_survives_a_wait() -> None:
    storage = InMemoryCheckpointStorage()

    @workflow
    async def flow(text: str, ctx: RunContext) -> str:
        async def ask() -> str:
            return (await ScriptedAgent("a", ["one"]).run(text)).text

        first = await ctx.step(ask)
        return first + await ctx.request_info("more?", str, request_id="more")

    built = flow.build(storage)
    await built.run("go", thread_id="t")
    result = await flow.build(storage).run(responses={"more": "!"}, thread_id="t")
    assert result.get_outputs() == ["one!"]
    assert result.usage == {"input_token_count": 1, "output_token_count": 1}


async def test_parallel_agents_in_one_handler_keep_separate_records(tmp_path: Path) -> None:
    log = tmp_path / "log"

    class Panel(Executor):
        @handler
        async def go(self, text: str, ctx: WorkflowContext[Any, str]) -> None:
            a, b = (ScriptedAgent(name, [f"{name} {n}" for n in range(3)], log=log) for name in "ab")
            shared = a.create_session()
            responses = await asyncio.gather(a.run(text), b.run(text), a.run(text), a.run(text, session=shared))
            last = await a.run(text, session=shared)
            await ctx.yield_output(", ".join(response.text for response in (*responses, last)))

    def panel(storage: Any) -> Any:
        return WorkflowBuilder(name="panel", start_executor=Panel("panel"), checkpoint_storage=storage).build()

    for nth in range(1, 6):
        log.unlink(missing_ok=True)
        storage, faults = InMemoryCheckpointStorage(), Faults()
        faults.crash("journal", nth=nth, when="before")
        with pytest.raises(ProcessGone):
            await panel(faults.wrap(storage)).run("go", thread_id="t")
        result = await panel(storage).run(thread_id="t", takeover=True)
        assert result.get_outputs() == ["a 0, b 0, a 0, a 0, a 1"]


async def test_failing_model_fails_the_run_and_a_resume_asks_it_again(tmp_path: Path) -> None:
    storage, log, fails = InMemoryCheckpointStorage(), tmp_path / "log", [True]

    def reply(messages: Any) -> Any:
        if len(messages) == 1:
            return Call("double", {"number": 1})
        return ConnectionError("no line") if fails and fails.pop() else "done"

    def flow() -> Any:
        agent = ScriptedAgent("a", reply, tools=[double], log=log)
        return WorkflowBuilder(name="w", start_executor=agent, checkpoint_storage=storage).build()

    with pytest.raises(ConnectionError, match="no line"):
        await flow().run("go", thread_id="t")
    result = await flow().run(thread_id="t")
    assert [response.text for response in result.get_outputs()] == ["done"]
    assert begun(log) == ["a: request 0", "a: call a-0-1", "a: request 1", "a: request 1"]
    assert result.usage == {"input_token_count": 2, "output_token_count": 2}


# ---------------------------------------------------------------- streaming


async def test_words_stream_live_and_are_not_in_the_event_log() -> None:
    storage = InMemoryCheckpointStorage()
    flow = WorkflowBuilder(start_executor=ScriptedAgent("a", ["one two three"]), checkpoint_storage=storage).build()
    events = [event async for event in flow.run("go", thread_id="t", stream=True)]
    live = [event for event in events if event.type == "output"]
    assert [event.data.text for event in live if event.data.text] == ["one", " two", " three"]
    assert all(isinstance(event.data, AgentResponseUpdate) and event.data.author_name == "a" for event in live)
    assert {event.seq for event in live} == {None}
    logged = [event async for event in flow.follow("t", until_idle=True)]
    assert [event.data.text for event in logged if event.type in ("data", "output")] == ["one two three"]


async def test_handle_streams_words() -> None:
    storage = InMemoryCheckpointStorage()
    flow = WorkflowBuilder(start_executor=ScriptedAgent("a", ["one two"]), checkpoint_storage=storage).build()
    async with flow.open(thread_id="t") as handle:
        await handle.send("go")
        words = []
        async for event in handle.events():
            if event.type == "output" and event.data.text:
                words.append(event.data.text)
            if event.type == "status" and event.state is WorkflowRunState.IDLE:
                break
    assert words == ["one", " two"]


async def test_words_streamed_before_a_wait_are_not_streamed_again() -> None:
    storage = InMemoryCheckpointStorage()

    def flow() -> Any:
        calls = [Call("double", {"number": 1})]
        agent = ScriptedAgent("a", [calls, "one two"], tools=[Tool(double, approval=True)])
        return WorkflowBuilder(name="w", start_executor=agent, checkpoint_storage=storage).build()

    async def watched(**options: Any) -> tuple[list[str], Any]:
        stream = flow().run(thread_id="t", stream=True, **options)
        live = [event.data async for event in stream if event.type == "output"]
        return [content.type for update in live for content in update.contents], await stream.get_final_response()

    first, result = await watched(message="go")
    [request] = result.get_request_info_events()
    second, _ = await watched(responses={request.request_id: request.data.approve()})
    assert first == ["function_call"]
    assert second == ["function_result", "text", "text", "usage"]


@pytest.mark.parametrize(
    ("nth", "expected"),
    [
        (1, ["function_result", "text", "text", "usage"]),
        (2, ["text", "text", "usage"]),
        (3, ["function_call", "function_result", "text"]),  # the recorded response
    ],
)
async def test_words_recorded_before_a_crash_are_not_streamed_again(nth: int, expected: list[str]) -> None:
    storage, faults = InMemoryCheckpointStorage(), Faults()
    faults.crash("journal", nth=nth, when="after")

    def flow(storage: Any) -> Any:
        agent = ScriptedAgent("a", [Call("double", {"number": 1}), "one two"], tools=[double])
        return WorkflowBuilder(name="w", start_executor=agent, checkpoint_storage=storage).build()

    with pytest.raises(ProcessGone):
        await flow(faults.wrap(storage)).run("go", thread_id="t", stream=True).get_final_response()
    stream = flow(storage).run(thread_id="t", stream=True, takeover=True)
    live = [event.data async for event in stream if event.type == "output"]
    assert [content.type for update in live for content in update.contents] == expected
    assert [response.text for response in (await stream.get_final_response()).get_outputs()] == ["one two"]


async def test_one_agent_serves_many_threads_at_once() -> None:
    agent = ScriptedAgent("a", lambda messages: f"{messages[0].text}: {len(messages)}")
    flow = WorkflowBuilder(start_executor=agent, checkpoint_storage=InMemoryCheckpointStorage()).build()
    for place in (1, 3):
        results = await asyncio.gather(*(flow.run(f"thread {n}", thread_id=f"t{n}") for n in range(20)))
        assert [result.get_outputs()[0].text for result in results] == [f"thread {n}: {place}" for n in range(20)]


async def test_agent_does_not_stream_without_a_watcher() -> None:
    streaming: list[Any] = []

    class Watching(ScriptedAgent):
        def _emit(self, message: Any, *, replayed: bool) -> None:
            from perdure.agents.recording import is_streaming

            streaming.append(is_streaming())

    await WorkflowBuilder(start_executor=Watching("a", ["one"])).build().run("go")
    assert streaming == [False]


# ---------------------------------------------------------------- cancelling


async def test_run_cancelled_in_the_middle_of_a_turn_resumes_there(tmp_path: Path) -> None:
    storage, log = InMemoryCheckpointStorage(), tmp_path / "log"
    begins, ends = asyncio.Event(), asyncio.Event()

    @tool
    async def wait() -> str:
        begins.set()
        await ends.wait()
        return "waited"

    def flow() -> Any:
        agent = ScriptedAgent("a", [Call("wait"), "done"], tools=[wait], log=log)
        return WorkflowBuilder(name="w", start_executor=agent, checkpoint_storage=storage).build()

    running = asyncio.create_task(flow().run("go", thread_id="t"))
    await begins.wait()
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running
    ends.set()
    result = await flow().run(thread_id="t")
    assert [response.text for response in result.get_outputs()] == ["done"]
    assert begun(log).count("a: request 0") == 1 and begun(log).count("a: call a-0-1") == 2


async def test_leaving_the_stream_of_an_agent_ends_its_turn() -> None:
    begins, ended = asyncio.Event(), asyncio.Event()

    @tool
    async def wait() -> None:
        begins.set()
        try:
            await asyncio.Event().wait()
        finally:
            ended.set()

    async with ScriptedAgent("a", [Call("wait"), "done"], tools=[wait]).run("go", stream=True) as stream:
        async for _ in stream:
            await begins.wait()
            break
    assert ended.is_set()


async def test_handler_replays_the_recorded_failure_of_an_agent_after_a_crash(tmp_path: Path) -> None:
    storage, log, fails = InMemoryCheckpointStorage(), tmp_path / "log", [True]

    def reply(messages: Any) -> Any:
        return ConnectionError("no line") if fails and fails.pop() else "of the first"

    class Fallback(Executor):
        @handler
        async def go(self, text: str, ctx: WorkflowContext[Any, str]) -> None:
            try:
                response = await ScriptedAgent("first", reply, log=log).run(text)
            except ConnectionError:
                response = await ScriptedAgent("second", ["of the second"], log=log).run(text)
            await ctx.yield_output(response.text)

    def flow(storage: Any) -> Any:
        return WorkflowBuilder(name="w", start_executor=Fallback("f"), checkpoint_storage=storage).build()

    faults = Faults()
    faults.crash("commit", nth=2, when="before")
    with pytest.raises(ProcessGone):
        await flow(faults.wrap(storage)).run("go", thread_id="t")
    result = await flow(storage).run(thread_id="t", takeover=True)
    assert result.get_outputs() == ["of the second"]
    assert begun(log) == ["first: request 0", "second: request 0"]
