"""Promise 4: fan-in buffers, requests, answers, run arguments, outputs and counters are part of the checkpoint."""

from __future__ import annotations

import json
from datetime import UTC
from typing import Any

import pytest
from tests.promises.stages import Again, Asker, Boom, Does, Join, Relay, Stage, alone, chain

from perdure import (
    AlreadyAnswered,
    Case,
    CheckpointInfo,
    Default,
    Workflow,
    WorkflowBuilder,
    WorkflowCheckpoint,
    WorkflowContext,
    WorkflowConvergenceException,
    WorkflowRunState,
    response_handler,
)
from perdure.checkpoints.storage import StoreCheckpointStorage


def uneven_fan(stage: Stage, storage: Any = None) -> Workflow:
    """source -> fast and slow1 -> slow2; fast and slow2 join: fast's message waits in the fan-in for a superstep."""
    source, fast, slow1, slow2 = (Relay(name, stage) for name in ("source", "fast", "slow1", "slow2"))
    return (
        WorkflowBuilder(name="uneven", start_executor=source, checkpoint_storage=storage)
        .add_fan_out_edges(source, [fast, slow1])
        .add_edge(slow1, slow2)
        .add_fan_in_edges([fast, slow2], Join("join", stage))
        .build()
    )


JOINED = ["x-source-fast+x-source-slow1-slow2"]


async def test_every_checkpoint_resumes_to_the_same_outputs(any_storage: Any, again: Again) -> None:
    """Also the one that was made while a branch waits in the fan-in."""
    workflow = uneven_fan(Stage(), any_storage)
    assert (await workflow.run("x")).get_outputs() == JOINED
    checkpoints = await any_storage.list_checkpoints(workflow_name="uneven")
    assert [bool(checkpoint.buffers) for checkpoint in checkpoints] == [False, False, True, False, False]
    for checkpoint in checkpoints:
        resumed = again(workflow, lambda: uneven_fan(Stage(), any_storage))
        assert (await resumed.run(checkpoint_id=checkpoint.checkpoint_id)).get_outputs() == JOINED


async def test_restoring_into_the_same_object_after_a_failure_gives_no_duplicate(any_storage: Any) -> None:
    stage = Stage()
    stage.failing = {"slow2"}
    workflow = uneven_fan(stage, any_storage)
    with pytest.raises(Boom):
        await workflow.run("x")
    stage.failing = set()
    for checkpoint in await any_storage.list_checkpoints(workflow_name="uneven"):
        result = await workflow.run(checkpoint_id=checkpoint.checkpoint_id)
        assert result.get_outputs() == JOINED


async def test_fan_in_continues_filling_after_a_failure(any_storage: Any, again: Again) -> None:
    stage = Stage()
    stage.failing = {"slow2"}
    workflow = uneven_fan(stage, any_storage)
    with pytest.raises(Boom):
        await workflow.run("x", thread_id="t")
    stage.failing = set()
    result = await again(workflow, lambda: uneven_fan(stage, any_storage)).run(thread_id="t")
    assert result.get_outputs() == JOINED
    assert stage.called("fast") == 1


# ---------------------------------------------------------------- outputs


def early_and_late(stage: Stage, storage: Any) -> Workflow:
    """Yields one output before the superstep that may fail, and one in it."""

    def yielding(name: str) -> Does:
        async def yield_text(message: str, ctx: WorkflowContext[Any, Any]) -> None:
            await stage.play(name, message)
            await ctx.yield_output(f"{message} {name}")
            await ctx.send_message(message)

        return Does(name, yield_text)

    async def end(message: str, ctx: WorkflowContext[Any, Any]) -> None: ...

    return chain(yielding("early"), yielding("late"), Does("end", end), storage=storage)


async def test_outputs_from_before_an_interruption_are_returned(any_storage: Any, again: Again) -> None:
    stage = Stage()
    workflow = early_and_late(stage, any_storage)
    await workflow.run("before", thread_id="t")
    stage.failing = {"late"}
    with pytest.raises(Boom):
        await workflow.run("x", thread_id="t")
    stage.failing = set()
    result = await again(workflow, lambda: early_and_late(stage, any_storage)).run(thread_id="t")
    assert result.get_outputs() == ["x early", "x late"], "those since the last outside input, each once"
    assert [event.replayed for event in result if event.type == "output"] == [True, False]


async def test_resuming_a_finished_thread_gives_its_outputs(any_storage: Any, again: Again) -> None:
    workflow = early_and_late(Stage(), any_storage)
    await workflow.run("before", thread_id="t")
    done = await workflow.run("x", thread_id="t")
    stage = Stage()
    for _ in range(2):
        result = await again(workflow, lambda: early_and_late(stage, any_storage)).run(thread_id="t")
        assert result.get_outputs() == done.get_outputs() == ["x early", "x late"]
        assert result.get_final_state() is WorkflowRunState.IDLE
    by_id = await again(workflow, lambda: early_and_late(stage, any_storage)).run(checkpoint_id=done.checkpoint_id)
    assert by_id.get_outputs() == ["x early", "x late"]
    assert stage.calls == []


async def test_a_resumed_run_returns_its_outputs_whole_or_as_a_stream(any_storage: Any, again: Again) -> None:
    """What an agent over a workflow answers with is built on these."""
    stage = Stage()
    stage.failing = {"late"}
    workflow = early_and_late(stage, any_storage)
    with pytest.raises(Boom):
        await workflow.run("x", thread_id="t")
    stage.failing = set()
    stream = again(workflow, lambda: early_and_late(stage, any_storage)).run(thread_id="t", stream=True)
    streamed = [event.data async for event in stream if event.type == "output"]
    assert streamed == (await stream.get_final_response()).get_outputs() == ["x early", "x late"]


# ---------------------------------------------------------------- requests and answers


async def test_pending_requests_and_given_answers_survive(any_storage: Any, again: Again) -> None:
    def build() -> Workflow:
        return alone(Asker("asker"), any_storage)

    workflow = build()
    await workflow.run("colour size", thread_id="t")
    workflow = again(workflow, build)
    first = await workflow.run(responses={"colour": "red"}, thread_id="t")
    assert first.get_outputs() == ["colour=red"]
    workflow = again(workflow, build)
    with pytest.raises(AlreadyAnswered, match="'colour'"):
        await workflow.run(responses={"colour": "blue"}, thread_id="t")
    asked = (await workflow.run(thread_id="t")).get_request_info_events()
    assert [(request.request_id, request.data, request.response_type, request.replayed) for request in asked] == [
        ("size", "size", str, True)
    ]
    last = await again(workflow, build).run(responses={"size": "L"}, thread_id="t")
    assert last.get_outputs() == ["size=L"]
    assert last.get_final_state() is WorkflowRunState.IDLE


async def test_an_answer_is_kept_though_its_handler_fails(any_storage: Any, again: Again) -> None:
    """The answer was acknowledged: the question is not asked again, and the handler gets the answer on resume."""
    stage = Stage()

    class Careful(Asker):
        @response_handler
        async def answered(self, question: str, answer: str, ctx: WorkflowContext[None, str]) -> None:
            await stage.play("answered", answer)
            await super().answered(question, answer, ctx)

    def build() -> Workflow:
        return alone(Careful("asker"), any_storage)

    workflow = build()
    await workflow.run("colour", thread_id="t")
    stage.failing = {"answered"}
    with pytest.raises(Boom):
        await workflow.run(responses={"colour": "red"}, thread_id="t")
    stage.failing = set()
    result = await again(workflow, build).run(thread_id="t")
    assert result.get_outputs() == ["colour=red"]
    assert stage.calls == ["answered(red)", "answered(red)"]
    assert result.get_request_info_events() == []


async def test_time_of_an_answer_is_kept(storage: StoreCheckpointStorage) -> None:
    workflow = alone(Asker("asker"), storage)
    await workflow.run("colour", thread_id="t")
    result = await workflow.run(responses={"colour": "red"}, thread_id="t")
    assert result.checkpoint_id is not None
    answer = (await storage.load(result.checkpoint_id)).answered["colour"]
    assert answer.answered_at.tzinfo is UTC


# ---------------------------------------------------------------- run arguments


async def test_run_arguments_of_the_interrupted_run_are_there_after_a_resume(any_storage: Any, again: Again) -> None:
    stage, seen = Stage(), list[Any]()
    stage.failing = {"reads"}

    async def read(message: str, ctx: WorkflowContext[Any, Any]) -> None:
        await stage.play("reads", message)
        seen.append((dict(ctx.client_kwargs), dict(ctx.function_invocation_kwargs)))

    def build() -> Workflow:
        return alone(Does("reads", read), any_storage)

    workflow = build()
    with pytest.raises(Boom):
        await workflow.run(
            "x",
            thread_id="t",
            client_kwargs={"region": "eu", "tags": ["a"]},
            function_invocation_kwargs={"reads": {"limit": 3}},
        )
    stage.failing = set()
    workflow = again(workflow, build)
    await workflow.run(thread_id="t")
    assert seen == [({"region": "eu", "tags": ["a"]}, {"limit": 3})]
    await again(workflow, build).run("new", thread_id="t")
    assert seen[1] == ({}, {}), "a new message brings its own"


# ---------------------------------------------------------------- counters


def loop(stage: Stage, storage: Any, rounds: int, **options: Any) -> Workflow:
    """Sends itself a number, one more each superstep, until `rounds`."""

    async def turn(message: int, ctx: WorkflowContext[Any, Any]) -> None:
        await stage.play(str(message), "")
        if message == rounds:
            await ctx.yield_output(message)
        else:
            await ctx.send_message(message + 1)

    node = Does("turn", turn)
    builder = WorkflowBuilder(name="loop", start_executor=node, checkpoint_storage=storage, **options)
    return builder.add_edge(node, node).build()


async def test_superstep_counter_continues_after_a_resume(any_storage: Any, again: Again) -> None:
    """Otherwise a loop that fails now and then would never meet its limit."""
    stage = Stage()
    stage.failing = {"4"}
    workflow = loop(stage, any_storage, 10, max_iterations=6)
    with pytest.raises(Boom):
        await workflow.run(1, thread_id="t")
    stage.failing = set()
    workflow = again(workflow, lambda: loop(stage, any_storage, 10, max_iterations=6))
    with pytest.raises(WorkflowConvergenceException, match="ran 6 supersteps"):
        await workflow.run(thread_id="t")
    assert stage.calls == [f"{number}()" for number in (1, 2, 3, 4, 4, 5, 6)]
    raised = loop(stage, any_storage, 10, max_iterations=20)
    assert (await raised.run(thread_id="t")).get_outputs() == [10]


async def test_iterations_and_delivery_ids_match_an_undisturbed_run(any_storage: Any, again: Again) -> None:
    stage, calm = Stage(), Stage()
    stage.failing = {"3"}
    workflow = loop(stage, any_storage, 5)
    with pytest.raises(Boom):
        await workflow.run(1, thread_id="disturbed")
    stage.failing = set()
    await again(workflow, lambda: loop(stage, any_storage, 5)).run(thread_id="disturbed")
    await loop(calm, any_storage, 5).run(1, thread_id="calm")
    histories: dict[str, list[Any]] = {"disturbed": [], "calm": []}
    for checkpoint in await any_storage.list_checkpoints(workflow_name="loop"):
        histories[checkpoint.thread_id].append(
            (checkpoint.iteration_count, checkpoint.counters, [m.delivery_id for m in checkpoint.deliveries])
        )
    assert histories["disturbed"] == histories["calm"]


# ---------------------------------------------------------------- the whole


async def test_a_switch_takes_the_same_way_after_a_resume(any_storage: Any, again: Again) -> None:
    stage = Stage()
    stage.failing = {"small"}

    def build() -> Workflow:
        source, small, large = (Relay(name, stage) for name in ("source", "small", "large"))
        cases: list[Case | Default] = [Case(lambda text: len(text) < 20, small), Default(large)]
        builder = WorkflowBuilder(name="switch", start_executor=source, checkpoint_storage=any_storage)
        return builder.add_switch_case_edge_group(source, cases).build()

    workflow = build()
    with pytest.raises(Boom):
        await workflow.run("x", thread_id="t")
    stage.failing = set()
    await again(workflow, build).run(thread_id="t")
    assert stage.calls == ["source(x)", "small(x-source)", "small(x-source)"]


async def test_a_checkpoint_is_the_same_after_a_trip_through_json(storage: StoreCheckpointStorage) -> None:
    """Tools copy checkpoints as text: what they copy must still hold everything."""
    workflow = uneven_fan(Stage(), storage)
    await workflow.run("x", client_kwargs={"region": "eu"})
    for checkpoint in await storage.list_checkpoints(workflow_name="uneven"):
        again = WorkflowCheckpoint.from_dict(json.loads(json.dumps(checkpoint.to_dict())))
        assert again == checkpoint
        assert isinstance(again.info, CheckpointInfo)
