"""Checkpoints of a function workflow: gone back to, forked and resumed, also in the middle of a paused function."""

from __future__ import annotations

from typing import Any

import pytest
from tests.unit.engine.function_flows import THREAD, Calls, answer, begin, questions, resume

from perdure import InMemoryCheckpointStorage, NoStorage, RunContext, get_run_context, workflow


def trip() -> Any:
    @workflow(name="trip")
    async def flow(_: str, ctx: RunContext) -> list[str]:
        answers = []
        for question in ("where?", "when?", "who?"):
            answers.append(await ctx.request_info(question, str))
            ctx.set_state(question, answers[-1])
        return answers

    return flow


async def answered_twice(flow: Any, storage: Any) -> tuple[list[str], Any]:
    """The checkpoints at which each of the three questions was open, and the last result."""
    asked = await begin(flow, storage)
    rests = [str(asked.checkpoint_id)]
    for question, reply in (("where?", "york"), ("when?", "now")):
        asked = await answer(flow, storage, asked, {question: reply})
        rests.append(str(asked.checkpoint_id))
    return rests, asked


async def test_paused_function_is_rewound_to_a_question_and_answered_differently() -> None:
    flow, storage = trip(), InMemoryCheckpointStorage()
    rests, _ = await answered_twice(flow, storage)
    back = await resume(flow, storage, thread_id=None, checkpoint_id=rests[1])
    assert list(questions(back)) == ["when?"]
    assert back.thread_id == THREAD
    asked = await answer(flow, storage, back, {"when?": "never"})
    assert list(questions(asked)) == ["who?"]
    result = await answer(flow, storage, asked, {"who?": "us"})
    assert result.get_outputs() == [["york", "never", "us"]]


async def test_paused_function_is_rewound_and_answered_in_one_call() -> None:
    flow, storage = trip(), InMemoryCheckpointStorage()
    asked = await begin(flow, storage)
    at = asked.checkpoint_id
    await answer(flow, storage, asked, {"where?": "york"})
    again = await answer(flow, storage, asked, {"where?": "bath"}, checkpoint_id=at, thread_id=None)
    again = await answer(flow, storage, again, {"when?": "now"})
    assert (await answer(flow, storage, again, {"who?": "us"})).get_outputs() == [["bath", "now", "us"]]


async def test_paused_function_and_its_fork_continue_independently() -> None:
    flow, storage = trip(), InMemoryCheckpointStorage()
    rests, asked = await answered_twice(flow, storage)
    fork = await resume(flow, storage, checkpoint_id=rests[1], fork=True, thread_id="other")
    assert list(questions(fork)) == ["when?"]
    fork = await answer(flow, storage, fork, {"when?": "later"}, thread_id="other")
    ended = await answer(flow, storage, fork, {"who?": "them"}, thread_id="other")
    assert ended.get_outputs() == [["york", "later", "them"]]
    assert (await answer(flow, storage, asked, {"who?": "us"})).get_outputs() == [["york", "now", "us"]]


async def test_any_checkpoint_of_a_finished_function_can_be_resumed() -> None:
    flow, storage = trip(), InMemoryCheckpointStorage()
    _, asked = await answered_twice(flow, storage)
    await answer(flow, storage, asked, {"who?": "us"})
    replies = {"where?": "york", "when?": "now", "who?": "us"}
    for place, info in enumerate(await storage.list_checkpoints(thread_id=THREAD)):
        result = await resume(flow, storage, checkpoint_id=info.checkpoint_id, fork=True, thread_id=f"fork {place}")
        while questions(result):
            answers = {question: replies[question] for question in questions(result)}
            result = await answer(flow, storage, result, answers, thread_id=f"fork {place}")
        assert result.get_outputs() == [["york", "now", "us"]], f"from checkpoint {place}"


async def test_steps_after_a_rewind_run_again_with_other_idempotency_keys() -> None:
    calls, storage = Calls(), InMemoryCheckpointStorage()

    def look(_: Any) -> str:
        context = get_run_context()
        assert context is not None
        return context.idempotency_key

    pay = calls.step(look, name="pay")

    @workflow
    async def flow(_: str, ctx: RunContext) -> Any:
        await ctx.request_info("pay?", str)
        return await pay("pay")

    asked = await begin(flow, storage)
    first = await answer(flow, storage, asked, {"pay?": "y"})
    again = await answer(flow, storage, asked, {"pay?": "y"}, checkpoint_id=asked.checkpoint_id)
    assert len(calls) == 2
    assert first.get_outputs() != again.get_outputs()


async def test_checkpoint_id_without_a_storage_is_rejected() -> None:
    with pytest.raises(NoStorage):
        await trip().run(checkpoint_id="some")


async def test_handle_restores_a_checkpoint_of_a_paused_function() -> None:
    flow, storage = trip(), InMemoryCheckpointStorage()
    rests, _ = await answered_twice(flow, storage)
    async with flow.build(storage).open(thread_id=THREAD) as run:
        await run.restore(rests[0])
        result = await run.wait()
    assert result is not None and list(questions(result)) == ["where?"]
