"""Code that changed since the recording: a warning names the step, and no call gets the result of another."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any, TypeAlias

from tests.unit.engine.flows import warnings_of
from tests.unit.engine.function_flows import Calls, answer, begin

from perdure import InMemoryCheckpointStorage, RunContext, WorkflowRunResult, workflow

Body: TypeAlias = Callable[["Steps", RunContext], Awaitable[Any]]


class Steps:
    """Steps whose results show which of them was called with what, and in which version of the code."""

    def __init__(self) -> None:
        self.calls = Calls()
        self.version = "old"
        self.fetch = self.calls.step(self._give("fetch"), name="fetch")
        self.check = self.calls.step(self._give("check"), name="check")
        self.send = self.calls.step(self._give("send"), name="send")

    def _give(self, name: str) -> Callable[[Any], str]:
        return lambda value: f"{name} {value} {self.version}"


async def changed(before: Body, after: Body) -> tuple[Any, list[str], Steps]:
    """Output, warnings and steps of a function that paused as `before` and resumed as `after`."""
    steps, storage = Steps(), InMemoryCheckpointStorage()
    body = before

    @workflow
    async def flow(_: str, ctx: RunContext) -> Any:
        output = await body(steps, ctx)
        await ctx.request_info("go on?", str)
        return output

    asked = await begin(flow, storage)
    steps.version, body = "new", after
    steps.calls.clear()
    result: WorkflowRunResult = await answer(flow, storage, asked, {"go on?": "y"})
    return (result.get_outputs() or [None])[0], warnings_of(list(result)), steps


async def fetch_and_send(steps: Steps, ctx: RunContext) -> list[str]:
    return [await steps.fetch(1), await steps.send(2)]


async def test_the_same_code_gives_no_warning() -> None:
    output, warnings, steps = await changed(fetch_and_send, fetch_and_send)
    assert (output, warnings, steps.calls) == (["fetch 1 old", "send 2 old"], [], [])


async def test_removed_step_warns_and_its_result_goes_to_no_other_step() -> None:
    async def only_send(steps: Steps, ctx: RunContext) -> list[str]:
        return [await steps.send(2)]

    output, warnings, steps = await changed(fetch_and_send, only_send)
    assert (output, steps.calls) == (["send 2 old"], [])
    assert any("without reaching" in text and "'fetch'" in text and "'send'" not in text for text in warnings)


async def test_renamed_step_is_called_and_its_old_name_gives_a_warning() -> None:
    async def check_and_send(steps: Steps, ctx: RunContext) -> list[str]:
        return [await steps.check(1), await steps.send(2)]

    output, warnings, steps = await changed(fetch_and_send, check_and_send)
    assert (output, steps.calls) == (["check 1 new", "send 2 old"], [1])
    assert any("without reaching" in text and "'fetch'" in text for text in warnings)


async def test_reordered_steps_keep_their_results_and_give_a_warning() -> None:
    async def send_and_fetch(steps: Steps, ctx: RunContext) -> list[str]:
        return [await steps.send(2), await steps.fetch(1)]

    output, warnings, steps = await changed(fetch_and_send, send_and_fetch)
    assert (output, steps.calls) == (["send 2 old", "fetch 1 old"], [])
    assert any("'send'" in text and "after 'fetch'" in text and "at the beginning" in text for text in warnings)


async def test_changed_arguments_are_another_call() -> None:
    async def fetch_another(steps: Steps, ctx: RunContext) -> list[str]:
        return [await steps.fetch(7), await steps.send(2)]

    output, warnings, steps = await changed(fetch_and_send, fetch_another)
    assert (output, steps.calls) == (["fetch 7 new", "send 2 old"], [7])
    assert any("without reaching" in text and "'fetch'" in text for text in warnings)


async def test_an_added_step_is_called_and_the_others_keep_their_results() -> None:
    async def check_between(steps: Steps, ctx: RunContext) -> list[str]:
        return [await steps.fetch(1), await steps.check(5), await steps.send(2)]

    output, warnings, steps = await changed(fetch_and_send, check_between)
    assert (output, steps.calls) == (["fetch 1 old", "check 5 new", "send 2 old"], [5])
    assert any("'send'" in text and "after 'check'" in text for text in warnings)


async def test_a_step_added_at_the_end_gives_no_warning() -> None:
    async def check_at_the_end(steps: Steps, ctx: RunContext) -> list[str]:
        return [await steps.fetch(1), await steps.send(2), await steps.check(5)]

    output, warnings, _ = await changed(fetch_and_send, check_at_the_end)
    assert output == ["fetch 1 old", "send 2 old", "check 5 new"]
    assert warnings == []


async def test_reworded_question_is_asked_again_and_its_old_answer_is_not_used() -> None:
    async def ask(steps: Steps, ctx: RunContext) -> Any:
        return await ctx.request_info(f"sure? ({steps.version})", str)

    steps, storage = Steps(), InMemoryCheckpointStorage()

    @workflow
    async def flow(_: str, ctx: RunContext) -> list[Any]:
        return [await ask(steps, ctx), await ctx.request_info("go on?", str)]

    asked = await answer(flow, storage, await begin(flow, storage), {"sure? (old)": "yes"})
    steps.version = "new"
    again = await answer(flow, storage, asked, {"go on?": "y"})
    assert [event.data for event in again.get_request_info_events()] == ["sure? (new)"]
    result = await answer(flow, storage, again, {"sure? (new)": "no"})
    assert result.get_outputs() == [["no", "y"]]


async def test_sequential_steps_that_become_concurrent_keep_their_results() -> None:
    async def at_once(steps: Steps, ctx: RunContext) -> list[str]:
        return list(await asyncio.gather(steps.fetch(1), steps.send(2)))

    output, warnings, steps = await changed(fetch_and_send, at_once)
    assert (output, steps.calls) == (["fetch 1 old", "send 2 old"], [])
    assert any("'send'" in text for text in warnings)


async def test_concurrent_steps_that_become_sequential_keep_their_results() -> None:
    async def at_once(steps: Steps, ctx: RunContext) -> list[str]:
        return list(await asyncio.gather(steps.fetch(1), steps.send(2)))

    output, _, steps = await changed(at_once, fetch_and_send)
    assert (output, steps.calls) == (["fetch 1 old", "send 2 old"], [])


async def test_loop_that_grows_or_shrinks_keeps_the_results_of_its_rounds() -> None:
    async def rounds(steps: Steps, ctx: RunContext, number: int) -> list[str]:
        return [await steps.fetch(n) for n in range(number)]

    async def two(steps: Steps, ctx: RunContext) -> list[str]:
        return await rounds(steps, ctx, 2)

    async def three(steps: Steps, ctx: RunContext) -> list[str]:
        return await rounds(steps, ctx, 3)

    output, warnings, _ = await changed(two, three)
    assert (output, warnings) == (["fetch 0 old", "fetch 1 old", "fetch 2 new"], [])
    output, warnings, _ = await changed(three, two)
    assert output == ["fetch 0 old", "fetch 1 old"]
    assert any("'fetch'" in text for text in warnings)
