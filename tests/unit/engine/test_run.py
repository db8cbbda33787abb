"""The combinations of arguments of `run`: which are valid, and what they do."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from tests.unit.engine.flows import (
    Verdict,
    Weather,
    alone,
    asking,
    countdown,
    crossing,
    kinds,
    relay,
    shouting,
    sink,
    warnings_of,
)

from perdure import (
    IncompatibleWorkflow,
    InMemoryCheckpointStorage,
    InvalidRun,
    NoPendingRequests,
    NoStorage,
    ThreadNotFound,
    ThreadNotIdle,
    Workflow,
    WorkflowBuilder,
    WorkflowConvergenceException,
    WorkflowRunState,
)


async def ids_of(storage: InMemoryCheckpointStorage, **where: str) -> list[str]:
    return await storage.list_checkpoint_ids(**where)


async def interrupted(workflow: Workflow, message: Any, **where: Any) -> None:
    with pytest.raises(ConnectionError):
        await workflow.run(message, **where)


# ---------------------------------------------------------------- message


async def test_a_message_alone_starts_a_run() -> None:
    assert (await shouting().run("hi")).get_outputs() == ["<HI>"]


async def test_state_lives_on_from_message_to_message_on_the_objects_own_thread() -> None:
    def count(message: str, ctx: Any) -> Any:
        ctx.set_state("seen", ctx.get_state("seen", 0) + 1)
        return ctx.yield_output(ctx.get_state("seen"))

    workflow = alone(count)
    results = [await workflow.run("x") for _ in range(3)]
    assert [result.get_outputs() for result in results] == [[1], [2], [3]]
    assert len({result.thread_id for result in results}) == 1


async def test_each_named_thread_has_a_state_of_its_own() -> None:
    def remember(message: str, ctx: Any) -> Any:
        ctx.set_state("all", ctx.get_state("all", "") + message)
        return ctx.yield_output(ctx.get_state("all"))

    workflow = alone(remember)
    *_, last = [await workflow.run(thread_id, thread_id=thread_id) for thread_id in ("a", "b", "a")]
    assert last.thread_id == "a" and last.get_outputs() == ["aa"]


async def test_a_message_to_an_interrupted_thread_is_refused_and_a_resume_is_not() -> None:
    weather = Weather()
    workflow = crossing(weather, checkpoint_storage=InMemoryCheckpointStorage())
    await interrupted(workflow, "first", thread_id="t")
    with pytest.raises(ThreadNotIdle, match=r"still has 1 message\(s\) to deliver.*Resume it first"):
        await workflow.run("second", thread_id="t")
    weather.is_bad = False
    assert (await workflow.run(thread_id="t")).get_outputs() == ["first"]
    assert (await workflow.run("second", thread_id="t")).get_outputs() == ["second"]


async def test_enqueued_message_resumes_an_interrupted_thread_first() -> None:
    weather = Weather()
    workflow = crossing(weather, checkpoint_storage=InMemoryCheckpointStorage())
    await interrupted(workflow, "first", thread_id="t")
    weather.is_bad = False
    await workflow.run("second", thread_id="t", on_busy="enqueue")
    assert weather.seen == ["first", "first", "second"]


async def test_a_message_while_a_request_is_pending_warns_and_the_request_stays() -> None:
    workflow = asking()
    await workflow.run("one")
    result = await workflow.run("two")
    assert "requests are pending ('one'); they stay pending" in warnings_of(result)[0]
    assert (await workflow.run(responses={"one": Verdict(True)})).get_outputs() == ["one: True []"]


# ---------------------------------------------------------------- nothing at all


async def test_run_with_nothing_starts_a_workflow_that_accepts_none() -> None:
    workflow = WorkflowBuilder(start_executor=sink("start", accepts=type(None))).build()
    assert (await workflow.run()).get_outputs() == [("start", None)]


async def test_run_without_input_resumes_an_interrupted_run_without_a_storage() -> None:
    weather = Weather()
    workflow = crossing(weather)
    await interrupted(workflow, "cart")
    weather.is_bad = False
    assert (await workflow.run()).get_outputs() == ["cart"]


async def test_run_without_input_resumes_before_it_starts_a_new_run() -> None:
    weather = Weather()
    workflow = crossing(weather)
    await interrupted(workflow, "cart")
    weather.is_bad = False
    await workflow.run()
    assert weather.seen == ["cart", "cart"]
    await workflow.run()
    assert weather.seen == ["cart", "cart", None]


async def test_run_without_input_is_rejected_when_there_is_nothing_to_resume() -> None:
    workflow = shouting()
    with pytest.raises(InvalidRun, match="nothing to resume, and the start executor 'shout' does not accept None"):
        await workflow.run()
    assert (await workflow.run("hi")).get_outputs() == ["<HI>"]


async def test_run_without_input_emits_pending_requests_again() -> None:
    workflow = asking()
    await workflow.run("one two")
    again = (await workflow.run()).get_request_info_events()
    assert [(event.request_id, event.replayed) for event in again] == [("one", True), ("two", True)]


# ---------------------------------------------------------------- thread_id


async def test_resuming_a_finished_thread_gives_its_outputs_and_runs_nothing() -> None:
    workflow = shouting(checkpoint_storage=InMemoryCheckpointStorage())
    await workflow.run("hi", thread_id="t")
    result = await workflow.run(thread_id="t")
    assert result.get_outputs() == ["<HI>"] and result.get_final_state() is WorkflowRunState.IDLE
    assert "superstep_started" not in kinds(result)
    assert [event.replayed for event in result if event.type == "output"] == [True]


async def test_resuming_a_finished_thread_works_in_a_new_workflow_object() -> None:
    storage = InMemoryCheckpointStorage()
    await shouting(checkpoint_storage=storage).run("hi", thread_id="t")
    assert (await shouting(checkpoint_storage=storage).run(thread_id="t")).get_outputs() == ["<HI>"]


@pytest.mark.parametrize("make_storage", [lambda: None, InMemoryCheckpointStorage], ids=["no storage", "memory"])
async def test_resuming_an_unknown_thread_is_refused_and_leaves_no_thread_behind(
    make_storage: Callable[[], Any],
) -> None:
    workflow = shouting(checkpoint_storage=make_storage())
    for _ in range(2):
        with pytest.raises(ThreadNotFound, match=r"No thread 'nobody' exists here. Check the id .* run\(message"):
            await workflow.run(thread_id="nobody")
    assert (await workflow.run("hi", thread_id="nobody")).get_outputs() == ["<HI>"]


async def test_resume_by_thread_id_in_a_new_object_gives_the_same_outputs() -> None:
    storage, weather = InMemoryCheckpointStorage(), Weather()
    await interrupted(crossing(weather, checkpoint_storage=storage), "cart", thread_id="t")
    weather.is_bad = False
    result = await crossing(weather, checkpoint_storage=storage).run(thread_id="t")
    assert result.get_outputs() == ["cart"] and result.thread_id == "t"


# ---------------------------------------------------------------- responses


async def test_responses_alone_answer_the_objects_own_thread() -> None:
    workflow = asking()
    await workflow.run("one")
    result = await workflow.run(responses={"one": Verdict(True, [1])})
    assert result.get_outputs() == ["one: True [1]"] and result.get_final_state() is WorkflowRunState.IDLE


async def test_responses_answer_a_named_thread_in_another_object() -> None:
    storage = InMemoryCheckpointStorage()
    await asking(checkpoint_storage=storage).run("one", thread_id="t")
    other = asking(checkpoint_storage=storage)
    assert (await other.run(responses={"one": Verdict(False)}, thread_id="t")).get_outputs() == ["one: False []"]


async def test_responses_to_a_thread_that_never_ran_are_refused() -> None:
    with pytest.raises(NoPendingRequests, match="No pending requests found in workflow context") as raised:
        await asking().run(responses={"one": Verdict(True)})
    assert isinstance(raised.value, RuntimeError)


# ---------------------------------------------------------------- checkpoint_id


async def test_a_checkpoint_is_restored_and_run_on_from() -> None:
    storage = InMemoryCheckpointStorage()
    workflow = shouting(checkpoint_storage=storage)
    await workflow.run("hi", thread_id="t")
    entry, after_first, end = await ids_of(storage)
    for checkpoint_id, supersteps in ((entry, 2), (after_first, 1), (end, 0)):
        result = await shouting(checkpoint_storage=storage).run(checkpoint_id=checkpoint_id)
        assert result.get_outputs() == ["<HI>"] and kinds(result).count("superstep_completed") == supersteps


async def test_checkpoint_is_restored_into_its_own_thread_and_live_object() -> None:
    storage = InMemoryCheckpointStorage()
    workflow = shouting(checkpoint_storage=storage)
    await workflow.run("hi", thread_id="t")
    entry, *_ = await ids_of(storage)
    result = await workflow.run(checkpoint_id=entry)
    assert (result.thread_id, result.get_outputs()) == ("t", ["<HI>"])


async def test_a_storage_given_to_run_is_used_for_loading_and_saving() -> None:
    storage = InMemoryCheckpointStorage()
    workflow = shouting()
    await workflow.run("hi", checkpoint_storage=storage)
    entry, *_ = before = await ids_of(storage)
    await shouting().run(checkpoint_id=entry, checkpoint_storage=storage)
    assert len(await ids_of(storage)) > len(before)


async def test_a_checkpoint_info_is_accepted_where_an_id_is() -> None:
    storage = InMemoryCheckpointStorage()
    workflow = shouting(checkpoint_storage=storage)
    await workflow.run("hi")
    infos = await storage.list_checkpoint_infos()
    assert (await workflow.run(checkpoint_id=infos[0])).get_outputs() == ["<HI>"]


async def test_responses_with_a_checkpoint_restore_it_and_then_answer() -> None:
    storage = InMemoryCheckpointStorage()
    asked = await asking(checkpoint_storage=storage).run("one two")
    result = await asking(checkpoint_storage=storage).run(
        checkpoint_id=asked.checkpoint_id, responses={"one": Verdict(True)}
    )
    assert result.get_outputs() == ["one: True []"]
    assert [event.request_id for event in result.get_request_info_events()] == ["two"]
    assert result.get_final_state() is WorkflowRunState.IDLE_WITH_PENDING_REQUESTS


async def test_the_older_names_restore_checkpoints_too() -> None:
    storage = InMemoryCheckpointStorage()
    await shouting(checkpoint_storage=storage).run("hi")
    entry, *_ = await ids_of(storage)
    streamed = [event async for event in shouting().run_stream_from_checkpoint(entry, storage)]
    assert [event.data for event in streamed if event.type == "output"] == ["<HI>"]
    assert (await shouting().run_from_checkpoint(entry, storage)).get_outputs() == ["<HI>"]


def test_a_checkpoint_without_any_storage_is_refused_at_once() -> None:
    with pytest.raises(
        NoStorage, match=r"Running from a checkpoint needs a checkpoint storage.*Pass checkpoint_storage="
    ):
        _ = shouting().run(checkpoint_id="c", stream=True)


# ---------------------------------------------------------------- fork and force


async def test_a_fork_runs_in_a_new_thread_and_leaves_the_first_as_it_was() -> None:
    storage = InMemoryCheckpointStorage()
    workflow = shouting(checkpoint_storage=storage)
    await workflow.run("hi", thread_id="first")
    before = await ids_of(storage, thread_id="first")
    forked = await workflow.run(checkpoint_id=before[0], fork=True, thread_id="second")
    assert (forked.thread_id, forked.get_outputs()) == ("second", ["<HI>"])
    assert await ids_of(storage, thread_id="first") == before
    assert len(await ids_of(storage, thread_id="second")) == 3


async def test_a_fork_without_a_name_makes_a_thread_of_its_own() -> None:
    storage = InMemoryCheckpointStorage()
    workflow = shouting(checkpoint_storage=storage)
    first = await workflow.run("hi")
    forks = [await workflow.run(checkpoint_id=first.checkpoint_id, fork=True) for _ in range(2)]
    assert len({first.thread_id, *(fork.thread_id for fork in forks)}) == 3


async def test_a_fork_of_a_question_is_answered_on_its_own() -> None:
    storage = InMemoryCheckpointStorage()
    workflow = asking(checkpoint_storage=storage)
    asked = await workflow.run("one", thread_id="t")
    forked = await workflow.run(checkpoint_id=asked.checkpoint_id, fork=True, responses={"one": Verdict(True)})
    assert forked.get_outputs() == ["one: True []"]
    assert (await workflow.run(responses={"one": Verdict(False)}, thread_id="t")).get_outputs() == ["one: False []"]


async def test_a_fork_into_a_thread_that_exists_is_refused_and_changes_nothing() -> None:
    storage = InMemoryCheckpointStorage()
    workflow = shouting(checkpoint_storage=storage)
    first = await workflow.run("a", thread_id="t")
    await workflow.run("b", thread_id="u")
    before = await ids_of(storage)
    with pytest.raises(InvalidRun, match="Thread 'u' exists already, so a fork cannot become it"):
        await workflow.run(checkpoint_id=first.checkpoint_id, fork=True, thread_id="u")
    assert await ids_of(storage) == before
    assert (await workflow.run(thread_id="u")).get_outputs() == ["<B>"]


async def test_a_checkpoint_of_another_thread_is_refused_unless_it_is_forked() -> None:
    storage = InMemoryCheckpointStorage()
    workflow = shouting(checkpoint_storage=storage)
    first = await workflow.run("a", thread_id="t")
    with pytest.raises(InvalidRun, match=r"belongs to thread 't', not to 'u'.*or pass fork=True"):
        await workflow.run(checkpoint_id=first.checkpoint_id, thread_id="u")
    assert await ids_of(storage, thread_id="u") == []


async def test_force_continues_with_a_changed_workflow_and_warns() -> None:
    storage = InMemoryCheckpointStorage()
    await shouting(checkpoint_storage=storage).run("hi", thread_id="t")
    other = WorkflowBuilder(name="quiet", start_executor=sink("quiet"), checkpoint_storage=storage).build()
    head = await storage.get_latest(thread_id="t")
    assert head is not None
    result = await other.run(checkpoint_id=head.checkpoint_id, force=True)
    assert result.get_outputs() == ["<HI>"]
    assert "the workflow was called 'shouting' and is called 'quiet'" in warnings_of(result)[0]


async def test_message_due_to_a_removed_executor_stops_a_resume_unless_forced() -> None:
    storage = InMemoryCheckpointStorage()
    await interrupted(crossing(Weather(), checkpoint_storage=storage), "cart", thread_id="t")
    start = relay("relay")
    shrunk = WorkflowBuilder(name="crossing", start_executor=start, checkpoint_storage=storage).build()
    with pytest.raises(IncompatibleWorkflow, match="something is due to executor 'bridge', which is gone"):
        await shrunk.run(thread_id="t")
    result = await shrunk.run(thread_id="t", force=True)
    assert result.get_final_state() is WorkflowRunState.IDLE and "'bridge' is gone" in warnings_of(result)[0]


async def test_executors_and_edges_that_were_only_added_do_not_stop_a_resume() -> None:
    storage = InMemoryCheckpointStorage()
    first = shouting(checkpoint_storage=storage)
    await first.run("hi", thread_id="t")
    executors = first.executors
    grown = WorkflowBuilder(name="shouting", start_executor=executors["shout"], checkpoint_storage=storage)
    grown.add_edge(executors["shout"], executors["deliver"]).add_edge(executors["shout"], sink("extra"))
    result = await grown.build().run("ho", thread_id="t")
    assert result.get_outputs() == ["<HO>", ("extra", "HO")]
    assert "executor 'extra' is new" in warnings_of(result)[0]


# ---------------------------------------------------------------- without a meaning


@pytest.mark.parametrize(
    ("options", "problem"),
    [
        ({"message": "m", "responses": {"r": 1}}, "'message' and 'responses'. Use one or the other"),
        ({"message": "m", "checkpoint_id": "c"}, "'message' and 'checkpoint_id'. Use one or the other"),
        ({"message": "m", "responses": {"r": 1}, "checkpoint_id": "c"}, "Use one or the other"),
        ({"message": "m", "fork": True}, "fork=True\\) needs the checkpoint_id"),
        ({"responses": {}}, "responses is empty"),
        ({"responses": ["r"]}, "responses must map request ids to answers, got list"),
        ({"message": "m", "durability": "synch"}, "durability must be one of .*did you mean 'sync'"),
        ({"message": "m", "on_busy": "wait"}, "on_busy must be one of 'reject', 'enqueue', 'interrupt', got 'wait'"),
        ({"message": "m", "max_lag": 0}, "max_lag must be a positive integer, got 0"),
        ({"message": "m", "thread_id": ""}, "thread_id must be a non-empty string"),
        ({"message": "m", "thread_id": 7}, "thread_id must be a non-empty string, got 7"),
    ],
)
def test_invalid_call_is_rejected_before_anything_happens(options: dict[str, Any], problem: str) -> None:
    workflow = shouting(checkpoint_storage=InMemoryCheckpointStorage())
    message = options.pop("message", None)
    with pytest.raises(InvalidRun, match=problem) as raised:
        workflow.run(message, **options)
    assert isinstance(raised.value, ValueError)


# ---------------------------------------------------------------- limits


async def test_run_beyond_the_superstep_limit_stops_and_keeps_its_commits() -> None:
    storage = InMemoryCheckpointStorage()
    with pytest.raises(WorkflowConvergenceException, match="ran 3 supersteps since its last input") as raised:
        await countdown(max_iterations=3, checkpoint_storage=storage).run(3)
    assert raised.value.max_iterations == 3
    assert [info.iteration_count for info in await storage.list_checkpoint_infos()] == [0, 1, 2, 3]


async def test_a_run_that_needs_exactly_the_limit_ends_well() -> None:
    assert (await countdown(max_iterations=3).run(2)).get_outputs() == ["lift-off"]


async def test_a_higher_limit_resumes_a_thread_that_hit_its_limit() -> None:
    storage = InMemoryCheckpointStorage()
    with pytest.raises(WorkflowConvergenceException):
        await countdown(max_iterations=3, checkpoint_storage=storage).run(5, thread_id="t")
    higher = countdown(max_iterations=6, checkpoint_storage=storage)
    assert (await higher.run(thread_id="t")).get_outputs() == ["lift-off"]


async def test_the_limit_counts_from_the_last_message_or_answer() -> None:
    workflow = asking(max_iterations=1)
    for word in ("one", "two"):
        await workflow.run(word)
        assert (await workflow.run(responses={word: Verdict(True)})).get_outputs() == [f"{word}: True []"]


async def test_durability_exit_saves_the_input_and_the_end_only() -> None:
    storage = InMemoryCheckpointStorage()
    await countdown(checkpoint_storage=storage).run(5, durability="exit")
    infos = await storage.list_checkpoint_infos()
    assert [info.iteration_count for info in infos] == [0, 6]


async def test_message_changed_by_its_sender_afterwards_is_delivered_unchanged() -> None:
    message = ["as it was"]
    stream = alone(lambda received, ctx: ctx.yield_output(received), accepts=list).run(message, stream=True)
    events = aiter(stream)
    while (await anext(events)).type != "superstep_started":
        pass
    message.append("changed")
    assert (await stream.get_final_response()).get_outputs() == [["as it was"]]
