"""What type checkers say about running a workflow. Checked by tests/typing/test_cases.py, never run."""

from typing_extensions import assert_type

from perdure import ResponseStream, Workflow, WorkflowEvent, WorkflowRunResult


async def right(workflow: Workflow) -> None:
    assert_type(await workflow.run("go"), WorkflowRunResult)
    assert_type(await workflow.run(responses={"request": True}, checkpoint_id="c1"), WorkflowRunResult)
    stream = assert_type(workflow.run("go", stream=True), ResponseStream[WorkflowEvent, WorkflowRunResult])
    async for event in stream:
        assert_type(event, WorkflowEvent)
    assert_type(await stream.get_final_response(), WorkflowRunResult)


async def wrong(workflow: Workflow) -> None:
    workflow.run("go")  # expect: error [unused-coroutine, unused-awaitable]
    await workflow.run("go", responses=["yes"])  # expect: error [call-overload, arg-type]
    await workflow.run("go", chekpoint_id="c1")  # expect: error [call-overload, call-arg]
    async for event in workflow.run("go"):  # expect: error [attr-defined]
        print(event)
