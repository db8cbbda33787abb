"""Effects of a step beside its result: restored when the result is replayed, discarded when the step fails."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from tests.turns import turns
from tests.unit.engine.policy_flows import AT_ONCE, Boom, Context, Flaky, SkippingClock, alone, of_kind, sink, worker

from perdure import InMemoryCheckpointStorage, Workflow, WorkflowBuilder, append

STORAGES = [None, InMemoryCheckpointStorage]


def once_failing(work: Any, flaky: Flaky, storage: Any = None, **policy: Any) -> Workflow:
    """start -> sink; the start does `work` and then fails as often as `flaky` does."""

    async def both(message: Any, ctx: Context) -> None:
        value = await work(ctx)
        flaky.meet()
        await ctx.yield_output(value)

    policy = policy or {"retry": 3}
    start = worker("start", both, **policy)
    builder = WorkflowBuilder(
        name="effects", start_executor=start, checkpoint_storage=storage, clock=SkippingClock(), state={"log": append}
    )
    return builder.add_edge(start, sink()).build()


async def everything(ctx: Context) -> None:
    """A step that sends, yields, writes and changes in place."""
    await ctx.send_message("sent")
    await ctx.yield_output("yielded")
    ctx.set_state("log", "line")
    ctx.set_state("set", [1])
    ctx.get_state("set").append("in place")
    ctx.private["mine"] = ["private"]


# ---------------------------------------------------------------- there again


@pytest.mark.parametrize("failures", [0, 1, 2])
async def test_all_effects_of_a_replayed_step_count_once(failures: int) -> None:
    storage, calls = InMemoryCheckpointStorage(), list[str]()

    async def work(ctx: Context) -> list[Any]:
        async def act() -> None:
            calls.append("acted")
            await everything(ctx)

        await ctx.step(act)
        return [ctx.get_state("set"), dict(ctx.private)]

    result = await once_failing(work, Flaky(failures), storage).run("x", thread_id="t")
    assert calls == ["acted"]
    assert result.get_outputs() == ["yielded", [[1, "in place"], {"mine": ["private"]}], "sent"]
    head = await storage.get_latest(thread_id="t")
    assert head is not None and head.state == {"log": ["line"], "set": [1, "in place"]}
    assert head.executors["start"].private == {"mine": ["private"]}


@pytest.mark.parametrize("make_storage", STORAGES, ids=["no storage", "memory"])
async def test_effects_of_a_replayed_step_count_once_after_a_restart(make_storage: Any) -> None:
    storage = make_storage and make_storage()

    async def work(ctx: Context) -> Any:
        await ctx.step(everything, ctx)
        return ctx.get_state("set")

    workflow = once_failing(work, flaky := Flaky(1), storage, on_error="stop")
    with pytest.raises(Boom):
        await workflow.run("x", thread_id="t")
    again = workflow if storage is None else once_failing(work, flaky, storage, on_error="stop")
    result = await again.run(thread_id="t")
    assert result.get_outputs() == ["yielded", [1, "in place"], "sent"]
    first = of_kind(result, "output")[0]
    assert (first.data, first.replayed) == ("yielded", True)


async def test_a_question_asked_in_a_step_is_asked_once() -> None:
    async def work(ctx: Context) -> None:
        await ctx.step(ask, ctx)

    async def ask(ctx: Context) -> None:
        await ctx.request_info("sure?", str, request_id="sure")

    result = await once_failing(work, Flaky(2), InMemoryCheckpointStorage()).run("x")
    assert [event.request_id for event in result.get_request_info_events()] == ["sure"]


async def test_effects_of_the_handler_between_steps_count_once() -> None:
    async def act(word: str, ctx: Context) -> None:
        ctx.set_state("log", f"step {word}")
        await ctx.send_message(f"step {word}")

    async def work(ctx: Context) -> str:
        for word in "ab":
            ctx.set_state("log", f"handler {word}")
            await ctx.send_message(f"handler {word}")
            await ctx.step(act, word, ctx)
        return "end"

    storage = InMemoryCheckpointStorage()
    result = await once_failing(work, Flaky(2), storage).run("x", thread_id="t")
    order = ["handler a", "step a", "handler b", "step b"]
    assert result.get_outputs() == ["end", *order]
    head = await storage.get_latest(thread_id="t")
    assert head is not None and head.state == {"log": order}


# ---------------------------------------------------------------- several at once, and in each other


@pytest.mark.parametrize("failures", [0, 2])
async def test_steps_that_run_at_once_find_their_own_results(failures: int) -> None:
    calls: list[int] = []

    async def work(ctx: Context) -> list[Any]:
        async def one(number: int) -> str:
            calls.append(number)
            for _ in range(3 - number):
                await asyncio.sleep(0)
            ctx.set_state("log", number)
            return f"result {number}"

        return list(await asyncio.gather(*(ctx.step(one, number) for number in range(4))))

    storage = InMemoryCheckpointStorage()
    result = await once_failing(work, Flaky(failures), storage).run("x", thread_id="t")
    assert result.get_outputs() == [[f"result {number}" for number in range(4)]]
    assert calls == [0, 1, 2, 3]
    head = await storage.get_latest(thread_id="t")
    assert head is not None and head.state == {"log": [3, 2, 1, 0]}, "in the order in which they wrote"


@pytest.mark.parametrize("failures", [0, 2])
async def test_a_step_may_be_made_in_a_step(failures: int) -> None:
    calls: list[str] = []

    async def work(ctx: Context) -> str:
        async def inner(text: str) -> str:
            calls.append(f"inner {text}")
            await ctx.send_message(f"from inner {text}")
            return text.upper()

        async def outer(text: str) -> str:
            calls.append(f"outer {text}")
            return f"<{await ctx.step(inner, text)}>"

        return str(await ctx.step(outer, "a"))

    result = await once_failing(work, Flaky(failures)).run("x")
    assert result.get_outputs() == ["<A>", "from inner a"]
    assert calls == ["outer a", "inner a"]


@pytest.mark.parametrize("failures", [0, 1])
async def test_an_inner_step_is_not_called_again_after_a_crash_in_the_outer_one(failures: int) -> None:
    calls: list[str] = []
    storage, crash = InMemoryCheckpointStorage(), Flaky(1)

    async def work(ctx: Context) -> str:
        async def inner() -> str:
            calls.append("inner")
            await ctx.send_message("from inner")
            return "in"

        async def outer() -> str:
            calls.append("outer")
            value = await ctx.step(inner)
            crash.meet()
            return f"<{value}>"

        return str(await ctx.step(outer))

    flaky = Flaky(failures)
    with pytest.raises(Boom):
        await once_failing(work, flaky, storage, on_error="stop").run("x", thread_id="t")
    result = await once_failing(work, flaky, storage, retry=3).run(thread_id="t")
    assert result.get_outputs() == ["<in>", "from inner"]
    assert calls == ["outer", "inner", "outer"]


@pytest.mark.parametrize("retry", [AT_ONCE, 3], ids=["at once", "later"])
async def test_inner_step_is_not_called_again_when_its_outer_step_is_retried(retry: Any) -> None:
    calls: list[str] = []
    flaky = Flaky(2)

    async def work(ctx: Context) -> str:
        async def inner() -> str:
            calls.append("inner")
            await ctx.send_message("from inner")
            return "in"

        async def outer() -> str:
            calls.append("outer")
            value = await ctx.step(inner)
            flaky.meet()
            return f"<{value}>"

        return str(await ctx.step(outer, retry=retry))

    result = await once_failing(work, Flaky(0)).run("x")
    assert calls == ["outer", "inner", "outer", "outer"]
    assert result.get_outputs() == ["<in>", "from inner"]


# ---------------------------------------------------------------- gone when the step failed


@pytest.mark.parametrize("retry", [AT_ONCE, 3], ids=["at once", "later"])
async def test_a_failed_attempt_of_a_step_leaves_no_trace(retry: Any) -> None:
    flaky, storage = Flaky(2), InMemoryCheckpointStorage()

    async def work(ctx: Context) -> str:
        async def act() -> str:
            await everything(ctx)
            ctx.private["times"] = ctx.private.get("times", 0) + 1
            flaky.meet()
            return "end"

        return str(await ctx.step(act, retry=retry))

    result = await once_failing(work, Flaky(0), storage).run("x", thread_id="t")
    assert result.get_outputs() == ["yielded", "end", "sent"]
    head = await storage.get_latest(thread_id="t")
    assert head is not None and head.state == {"log": ["line"], "set": [1, "in place"]}
    assert head.executors["start"].private == {"mine": ["private"], "times": 1}


async def test_output_of_a_failed_attempt_of_a_step_is_not_in_the_result() -> None:
    flaky = Flaky(2)

    async def work(ctx: Context) -> str:
        async def act() -> None:
            await ctx.yield_output("from the step")
            flaky.meet()

        await ctx.step(act, retry=AT_ONCE)
        return "end"

    result = await once_failing(work, Flaky(0)).run("x")
    assert [event.data for event in of_kind(result, "output")] == result.get_outputs() == ["from the step", "end"]


@pytest.mark.parametrize("failures", [0, 2], ids=["undisturbed", "replayed"])
@pytest.mark.parametrize("on_error", ["stop", "skip", "isolate"])
async def test_a_step_that_failed_for_good_leaves_no_trace(failures: int, on_error: str) -> None:
    """Whether its handler continues at once or runs again from the top makes no difference."""
    calls: list[str] = []

    async def work(ctx: Context) -> str:
        async def act() -> None:
            calls.append("acted")
            await everything(ctx)
            raise Boom

        try:
            await ctx.step(act, on_error=on_error)
        except Boom:
            pass
        return f"{ctx.get_state('set')} {dict(ctx.private)}"

    result = await once_failing(work, Flaky(failures)).run("x")
    assert result.get_outputs() == ["None {}"]
    assert calls == ["acted"]


@pytest.mark.parametrize("failures", [0, 2], ids=["undisturbed", "replayed"])
async def test_effects_of_a_fallback_function_count(failures: int) -> None:
    calls: list[str] = []

    async def work(ctx: Context) -> str:
        async def act(word: str) -> str:
            raise Boom

        async def instead(word: str) -> str:
            calls.append(word)
            await everything(ctx)
            return f"instead {word}"

        return str(await ctx.step(act, "a", on_error=instead))

    storage = InMemoryCheckpointStorage()
    result = await once_failing(work, Flaky(failures), storage).run("x", thread_id="t")
    assert calls == ["a"]
    assert result.get_outputs() == ["yielded", "instead a", "sent"]
    head = await storage.get_latest(thread_id="t")
    assert head is not None and head.state == {"log": ["line"], "set": [1, "in place"]}


# ---------------------------------------------------------------- other workflows


async def test_a_workflow_that_is_run_in_a_step_keeps_its_own_effects() -> None:
    async def inner_work(message: str, ctx: Context) -> None:
        await ctx.step(str.upper, message)
        ctx.set_state("inner", "state")
        await ctx.send_message("inner message")
        await ctx.yield_output(f"inner {message} {ctx.idempotency_key}")

    inner_start = worker("inner", inner_work)
    inner = WorkflowBuilder(start_executor=inner_start).add_edge(inner_start, sink()).build()

    async def work(ctx: Context) -> str:
        async def nested() -> str:
            outputs = (await inner.run("x", thread_id="inner")).get_outputs()
            return str(outputs[-1])

        return str(await ctx.step(nested))

    storage = InMemoryCheckpointStorage()
    result = await once_failing(work, Flaky(1), storage).run("x", thread_id="t")
    assert result.get_outputs() == ["inner message"]
    head = await storage.get_latest(thread_id="t")
    assert head is not None and head.state == {}


async def test_idempotency_key_of_a_nested_run_is_independent_of_its_step() -> None:
    keys: list[str] = []

    async def inner_work(message: str, ctx: Context) -> None:
        await ctx.step(str.upper, message)
        keys.append(ctx.idempotency_key)

    async def outer_work(message: str, ctx: Context) -> None:
        await ctx.step(run_inner)

    async def run_inner() -> None:
        await alone(inner_work).run("x", thread_id="inner")

    await alone(outer_work).run("x")
    await run_inner()
    assert keys[0] == keys[1]


@pytest.mark.parametrize("failures", [0, 2], ids=["undisturbed", "replayed"])
@pytest.mark.parametrize("fails_last", [False, True])
async def test_a_failing_step_takes_nothing_of_the_step_beside_it_along(failures: int, fails_last: bool) -> None:
    async def work(ctx: Context) -> list[Any]:
        async def act(name: str) -> None:
            ctx.set_state("log", name)
            ctx.set_state(name, "written")
            ctx.private[name] = "written"
            await ctx.send_message(name)
            await turns(9 if fails_last == (name == "bad") else 3)
            ctx.set_state("log", f"{name} again")
            if name == "bad":
                raise Boom

        await asyncio.gather(ctx.step(act, "good"), ctx.step(act, "bad"), return_exceptions=True)
        return [ctx.get_state("good"), ctx.get_state("bad"), dict(ctx.private)]

    storage = InMemoryCheckpointStorage()
    result = await once_failing(work, Flaky(failures), storage).run("x", thread_id="t")
    assert result.get_outputs() == [["written", None, {"good": "written"}], "good"]
    head = await storage.get_latest(thread_id="t")
    assert head is not None and head.state == {"good": "written", "log": ["good", "good again"]}
