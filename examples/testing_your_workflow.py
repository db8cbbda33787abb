"""Tests of a workflow with the helpers of perdure.testing: scripts, faults, a fake clock, and a crash at every write.

The tests are for pytest, which loads the fixtures of perdure automatically. The file is also a script:

    pytest examples/testing_your_workflow.py
    python examples/testing_your_workflow.py
"""

# ruff: noqa: S101  # tests use asserts

from typing import Any, Never

from perdure import (
    Executor,
    InMemoryCheckpointStorage,
    RetryPolicy,
    StorageFailed,
    Workflow,
    WorkflowBuilder,
    WorkflowContext,
    executor,
    run_sync,
)
from perdure.testing import Ask, EventRecorder, FakeClock, Faults, ScriptedExecutor, assert_survives_crash

# ---------------------------------------------------------------- the workflow under test


@executor
async def draft(topic: str, ctx: WorkflowContext[str]) -> None:
    await ctx.send_message(f"a text on {topic}")


@executor
async def publish(text: str, ctx: WorkflowContext[Never, str]) -> None:
    await ctx.yield_output(f"published: {text}")


def newsroom(reviewer: Executor, storage: Any = None, clock: Any = None) -> Workflow:
    """In production the reviewer is an agent. A test passes an executor that follows a script."""
    builder = WorkflowBuilder(name="newsroom", start_executor=draft, checkpoint_storage=storage, clock=clock)
    return builder.add_chain([draft, reviewer, publish]).build()


# ---------------------------------------------------------------- the tests


def test_workflow_publishes_the_text_of_the_reviewer() -> None:
    reviewer = ScriptedExecutor("reviewer", ["a better text"], input=str)
    result = run_sync(newsroom(reviewer).run("tides"))
    assert result.get_outputs() == ["published: a better text"]
    assert reviewer.received == ["a text on tides"]


def test_workflow_retries_a_busy_reviewer(fake_clock: FakeClock, event_recorder: EventRecorder) -> None:
    replies = [ConnectionError("busy"), "a better text"]
    reviewer = ScriptedExecutor("reviewer", replies, input=str, output=str, retry=RetryPolicy(2, initial_delay=60))

    async def run() -> None:
        async with fake_clock.skipping():
            await event_recorder.collect(newsroom(reviewer, clock=fake_clock).run("tides", stream=True))

    run_sync(run())
    assert event_recorder.outputs == ["published: a better text"]
    assert len(event_recorder.of_type("executor_retrying", executor_id="reviewer")) == 1
    assert fake_clock.monotonic() == 60  # and no real time passed


def test_run_resumes_after_its_storage_failed(memory_storage: InMemoryCheckpointStorage, faults: Faults) -> None:
    faults.fail("commit", nth=2)
    storage = faults.wrap(memory_storage)
    failure: StorageFailed | None = None
    try:
        run_sync(newsroom(ScriptedExecutor("reviewer", ["fine"], input=str), storage).run("tides", thread_id="t"))
    except StorageFailed as error:  # with pytest: pytest.raises(StorageFailed)
        failure = error
    assert failure is not None
    again = newsroom(ScriptedExecutor("reviewer", ["fine"], input=str), storage)
    assert run_sync(again.run(thread_id="t")).get_outputs() == ["published: fine"]


def test_workflow_survives_a_crash_at_every_write() -> None:
    def make(storage: Any) -> Workflow:  # called for each new "process"
        return newsroom(ScriptedExecutor("reviewer", [Ask("Publish it?", str)], input=str, output=str), storage)

    survival = run_sync(assert_survives_crash(make, "tides", answers={"Publish it?": "yes, this text"}))
    print(f"   survived {len(survival.points)} crashes, such as {survival.points[-1]}")


if __name__ == "__main__":
    for test, fixtures in (
        (test_workflow_publishes_the_text_of_the_reviewer, ()),
        (test_workflow_retries_a_busy_reviewer, (FakeClock(), EventRecorder())),
        (test_run_resumes_after_its_storage_failed, (InMemoryCheckpointStorage(), Faults())),
        (test_workflow_survives_a_crash_at_every_write, ()),
    ):
        print(test.__name__)
        test(*fixtures)
    print("all of them hold")
