"""Runs that clients request: with an input, with answers or to resume; and their results as JSON."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any, Union

from perdure.agents.conversation.message import Message
from perdure.checkpoints.any_storage import read_events
from perdure.engine.thread.inputs import accepts
from perdure.errors import CheckpointNotFound, PerdureError, RunInterrupted, ThreadBusy, ThreadNotIdle, type_name
from perdure.events import WorkflowErrorDetails, WorkflowEvent, WorkflowRunState
from perdure.graph.types.coercion import coerce
from perdure.server.auth.principal import check_id
from perdure.server.problems import HttpProblem, problem_of
from perdure.server.runs.runs import ServedRun
from perdure.server.threads.conversation import EVENTS_PER_TURN
from perdure.server.threads.threads import Threads
from perdure.server.threads.to_json import error_to_json, request_to_json, to_json
from perdure.workflows.workflow import Workflow

MAX_CHECKPOINTS_SEARCHED = 1000
"""Checkpoints of a thread that are searched for a run id that a client chose."""
_AT_REST = frozenset({"IDLE", "IDLE_WITH_PENDING_REQUESTS", "FAILED", "CANCELLED"})


async def start(
    threads: Threads,
    workflow: Workflow,
    stored_id: str,
    message: Any = None,
    *,
    responses: Mapping[str, Any] | None = None,
    on_busy: str = "reject",
    **more: Any,
) -> ServedRun:
    """Start a run and return it once its input is stored. `more`: options of `Runs.start`.

    A message to an interrupted thread is queued until the interrupted work has finished. Raises the error that
    rejected the run.
    """
    runs = threads.service.runs
    if more.get("run_id") is not None:
        await _refuse_known_run(threads, stored_id, more["run_id"])
    by = threads.space.user_id
    options: dict[str, Any] = {"responses": responses, "answered_by": by, **more}
    served = await _wait_begun(threads, runs.start(workflow, stored_id, message, on_busy=on_busy, **options))
    if served.is_refused and isinstance(served.error, ThreadNotIdle) and message is not None:
        served = await _wait_begun(threads, runs.start(workflow, stored_id, message, on_busy="enqueue", **options))
    if served.is_refused and served.error is not None:
        raise served.error
    return served


async def _refuse_known_run(threads: Threads, stored_id: str, run_id: str) -> None:
    """Raises HttpProblem if the run exists: a client repeats a request whose connection broke."""
    infos = await threads.storage.list_checkpoint_infos(thread_id=stored_id, limit=MAX_CHECKPOINTS_SEARCHED)
    if any(info.run_id == run_id for info in infos):
        raise HttpProblem(409, "run_exists", f"Run {run_id!r} exists already. Nothing was started.", field="run_id")


async def _wait_begun(threads: Threads, served: ServedRun) -> ServedRun:
    """Wait until the input is stored. Raises HttpProblem if the run is queued for too long."""
    if served.begun.is_set():
        return served
    seconds = threads.service.config.limits.request_seconds
    try:
        async with asyncio.timeout(seconds):
            await served.begun.wait()
    except TimeoutError:
        thread_id = threads.space.public_id(served.thread_id)
        raise HttpProblem(
            504,
            "run_waits_longer",
            f"Run {served.run_id} of thread {thread_id!r} has been queued for more than {seconds:g} s. It has not "
            f"begun. GET /v1/threads/{thread_id}/runs/{served.run_id} returns its state.",
            headers={"X-Run-Id": served.run_id},
            thread_id=thread_id,
        ) from None
    return served


async def start_run(
    threads: Threads,
    thread_id: str,
    *,
    value: Any,
    has_input: bool,
    responses: Mapping[str, Any] | None,
    workflow_name: str | None = None,
    on_busy: str = "reject",
    run_id: str | None = None,
) -> ServedRun:
    """`POST /v1/threads/{id}/runs`. Raises HttpProblem and the error that rejected the run."""
    stored_id = threads.space.stored_id(thread_id)
    if run_id is not None:
        check_id("run_id", run_id)
    info = await threads.look_up(stored_id)
    if info is None and not has_input:
        raise HttpProblem(404, "thread_not_found", f"No thread {thread_id!r} exists. Begin it with an input.")
    workflow = threads.service.workflow(workflow_name) if info is None else threads.service.workflow_of(info)
    if info is not None and workflow_name is not None and threads.service.workflow(workflow_name) is not workflow:
        raise HttpProblem(
            409,
            "other_workflow",
            f"Thread {thread_id!r} belongs to workflow {info.workflow_name!r}. Nothing was started.",
            field="workflow",
        )
    if responses is not None:
        answers = await threads.answers_for(thread_id, responses)
        return await start(threads, workflow, stored_id, responses=answers, on_busy=on_busy, run_id=run_id)
    message = input_from_json(workflow, value) if has_input else None
    return await start(threads, workflow, stored_id, message, on_busy=on_busy, run_id=run_id)


# ---------------------------------------------------------------- results


async def run_to_json(threads: Threads, served: ServedRun) -> dict[str, Any]:
    """A run of this process as JSON. The result of a failed run is read from its log."""
    if served.error is not None and served.has_begun:
        return await run_to_json_from_log(threads, threads.space.public_id(served.thread_id), served.run_id)
    space, result = threads.space, served.result
    body = _empty_run(served.run_id, space.public_id(served.thread_id), served.workflow.name, served.state)
    if result is not None:
        body["outputs"] = [to_json(output) for output in result.get_outputs()]
        body["requests"] = [request_to_json(event, space) for event in result.get_request_info_events()]
        body["checkpoint_id"] = result.checkpoint_id
        body["usage"] = to_json(result.usage)
    elif served.error is not None and not isinstance(served.error, RunInterrupted):
        body["error"] = error_to_json(
            WorkflowErrorDetails.from_exception(served.error), hides=threads.service.hides_errors
        )
    return body


def _empty_run(run_id: str, thread_id: str, workflow_name: str, state: str | None) -> dict[str, Any]:
    """A run as JSON without results."""
    body: dict[str, Any] = {"run_id": run_id, "thread_id": thread_id, "workflow_name": workflow_name, "state": state}
    return {**body, "outputs": [], "requests": [], "checkpoint_id": None, "usage": {}, "error": None}


async def run_to_json_from_log(threads: Threads, thread_id: str, run_id: str) -> dict[str, Any]:
    """A run of any process as JSON, read from the log of its thread. Raises HttpProblem if the log has no such run."""
    info, workflow = await threads.find_workflow(thread_id)
    declared = None if workflow is None else workflow.declared_types
    space = threads.space
    body = _empty_run(run_id, thread_id, info.workflow_name, None)
    async for event in read_events(threads.storage, info.thread_id, None, declared):
        if event.run_id == run_id:
            _add_event(body, event, threads)
        if (event.seq or 0) % EVENTS_PER_TURN == 0:
            await asyncio.sleep(0)  # lets other tasks run
    if body["state"] is None:
        raise HttpProblem(404, "run_not_found", f"Thread {thread_id!r} has no run {run_id!r}.", field="run_id")
    body["usage"] = await _usage(threads, body["checkpoint_id"])
    if body["state"] not in _AT_REST and info.run_id != run_id:
        body["state"] = "INTERRUPTED"
    if info.status == WorkflowRunState.IDLE_WITH_PENDING_REQUESTS.value and body["state"] == info.status:
        pending = await threads.load_requests(thread_id)
        body["requests"] = [request_to_json(event, space) for event in pending.values()]
    return body


async def _usage(threads: Threads, checkpoint_id: str | None) -> Any:
    """The usage of the thread's agents at the end of the run; empty if that checkpoint was pruned."""
    try:
        checkpoint = None if checkpoint_id is None else await threads.storage.load(checkpoint_id)
    except CheckpointNotFound:
        checkpoint = None
    return {} if checkpoint is None else to_json(checkpoint.metadata.get("usage", {}))


def _add_event(body: dict[str, Any], event: WorkflowEvent, threads: Threads) -> None:
    if event.type == "status" and event.state is not None:
        body["state"] = event.state.value
    elif event.type == "output":
        body["outputs"].append(to_json(event.data))
    elif event.type == "failed" and event.details is not None:
        body["error"] = error_to_json(event.details, hides=threads.service.hides_errors)
    if event.checkpoint is not None:
        body["checkpoint_id"] = event.checkpoint.checkpoint_id


def failure_of(threads: Threads, served: ServedRun) -> HttpProblem:
    """The problem to answer for a run that began and failed."""
    thread_id = threads.space.public_id(served.thread_id)
    error = served.error
    headers = {"X-Run-Id": served.run_id}
    if isinstance(error, RunInterrupted):
        return HttpProblem(
            503,
            "run_interrupted",
            f"Run {served.run_id} of thread {thread_id!r} was interrupted because the server stops. "
            "It resumes from its last checkpoint.",
            headers={**headers, "Retry-After": "5"},
            thread_id=thread_id,
        )
    problem = problem_of(error) if isinstance(error, PerdureError) else None
    if problem is not None and problem.status in (409, 503) and not isinstance(error, ThreadBusy):
        return problem
    body = (
        error_to_json(WorkflowErrorDetails.from_exception(error), hides=threads.service.hides_errors) if error else {}
    )
    why = "" if threads.service.hides_errors else f": {body.get('error_type')}: {body.get('message')}"
    return HttpProblem(
        502,
        "run_failed",
        f"Run {served.run_id} of thread {thread_id!r} failed{why}. Committed work is kept. Resume the thread "
        f"with POST /v1/threads/{thread_id}/runs.",
        headers=headers,
        thread_id=thread_id,
    )


def input_from_json(workflow: Workflow, value: Any) -> Any:
    """Convert JSON to the input type of the workflow's start executor. Raises HttpProblem."""
    if accepts(workflow.graph, value) and not isinstance(value, dict | list):
        return value
    types = workflow.input_types
    try:
        return coerce(value, Union[tuple(types)])  # noqa: UP007  # a union of types known only now
    except (ValueError, TypeError) as error:
        expected = " or ".join(type_name(kind) for kind in types)
        raise HttpProblem(
            422, "wrong_input_type", f"{workflow.name!r} takes {expected}: {error} Nothing was started.", field="input"
        ) from error


def input_from_messages(workflow: Workflow, messages: list[Message]) -> Any:
    """The input for the workflow's start executor: all messages, the last one, or its text. Raises HttpProblem."""
    last = messages[-1]
    for candidate in (messages, last, last.text):
        if accepts(workflow.graph, candidate):
            return candidate
    expected = " or ".join(type_name(kind) for kind in workflow.input_types)
    raise HttpProblem(
        422,
        "wrong_input_type",
        f"{workflow.name!r} takes {expected}, not messages. Use POST /v1/threads/{{thread_id}}/runs. "
        "Nothing was started.",
        field="messages",
    )
