"""Runs as clients ask for them: a message, answers, or just going on; and what came of them."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any

from perdure.checkpoints.any_storage import read_events
from perdure.errors import CheckpointNotFound, PerdureError, RunInterrupted, ThreadBusy, ThreadNotIdle
from perdure.events import WorkflowErrorDetails, WorkflowEvent, WorkflowRunState
from perdure.server.problems import HttpProblem, problem_of
from perdure.server.runs.runs import ServedRun
from perdure.server.threads.conversation import AT_ONCE
from perdure.server.threads.inputs import message_from
from perdure.server.threads.tenancy import check_id
from perdure.server.threads.threads import Threads
from perdure.server.threads.to_json import plain, plain_error, plain_request
from perdure.workflows.workflow import Workflow

LOOKED_BACK = 1000
"""Checkpoints of a thread among which a run of a client's id is looked for."""
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
    """A run that was accepted; `more` is what `Runs.start` takes. Raises what refused it.

    A message to a thread that was interrupted, by a crash for one, waits until that has come to rest.
    """
    runs = threads.service.runs
    if more.get("run_id") is not None:
        await _refuse_known_run(threads, stored_id, more["run_id"])
    by = threads.space.user_id
    options: dict[str, Any] = {"responses": responses, "answered_by": by, **more}
    served = await _begun(threads, runs.start(workflow, stored_id, message, on_busy=on_busy, **options))
    if served.is_refused and isinstance(served.error, ThreadNotIdle) and message is not None:
        served = await _begun(threads, runs.start(workflow, stored_id, message, on_busy="enqueue", **options))
    if served.is_refused and served.error is not None:
        raise served.error
    return served


async def _refuse_known_run(threads: Threads, stored_id: str, run_id: str) -> None:
    """A client that chose the id sends a request again that broke: what it began, here or elsewhere, is not begun
    twice. Raises HttpProblem."""
    infos = await threads.storage.list_checkpoint_infos(thread_id=stored_id, limit=LOOKED_BACK)
    if any(info.run_id == run_id for info in infos):
        raise HttpProblem(409, "run_exists", f"There is a run {run_id!r} already. Nothing was started.", field="run_id")


async def _begun(threads: Threads, served: ServedRun) -> ServedRun:
    """Once what was sent is stored. Raises HttpProblem if it waits for other runs for too long."""
    if served.begun.is_set():
        return served
    seconds = threads.service.config.limits.request_seconds
    try:
        async with asyncio.timeout(seconds):
            await served.begun.wait()
    except TimeoutError:
        thread_id = threads.space.outside(served.thread_id)
        raise HttpProblem(
            504,
            "run_waits_longer",
            f"Run {served.run_id} of thread {thread_id!r} waits for others, longer than {seconds:g} s. It is not begun "
            f"yet; GET /v1/threads/{thread_id}/runs/{served.run_id} tells how it does.",
            headers={"X-Run-Id": served.run_id},
            thread_id=thread_id,
        ) from None
    return served


async def start_run(
    threads: Threads,
    thread_id: str,
    *,
    given: Any,
    has_input: bool,
    responses: Mapping[str, Any] | None,
    workflow_name: str | None = None,
    on_busy: str = "reject",
    run_id: str | None = None,
) -> ServedRun:
    """`POST /v1/threads/{id}/runs`. Raises HttpProblem, and what refuses a run."""
    stored_id = threads.space.inside(thread_id)
    if run_id is not None:
        check_id("run_id", run_id)
    info = await threads.look_up(stored_id)
    if info is None and not has_input:
        raise HttpProblem(404, "thread_not_found", f"There is no thread {thread_id!r}: begin it with an input.")
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
    message = message_from(workflow, given) if has_input else None
    return await start(threads, workflow, stored_id, message, on_busy=on_busy, run_id=run_id)


# ---------------------------------------------------------------- what came of it


async def told_run(threads: Threads, served: ServedRun) -> dict[str, Any]:
    """A run of this process. What one that failed came to, its log says best."""
    if served.error is not None and served.has_begun:
        return await told_run_of_log(threads, threads.space.outside(served.thread_id), served.run_id)
    space, result = threads.space, served.result
    told = _blank(served.run_id, space.outside(served.thread_id), served.workflow.name, served.state)
    if result is not None:
        told["outputs"] = [plain(one) for one in result.get_outputs()]
        told["requests"] = [plain_request(one, space) for one in result.get_request_info_events()]
        told["checkpoint_id"] = result.checkpoint_id
        told["usage"] = plain(result.usage)
    elif served.error is not None and not isinstance(served.error, RunInterrupted):
        told["error"] = plain_error(
            WorkflowErrorDetails.from_exception(served.error), hides=threads.service.hides_errors
        )
    return told


def _blank(run_id: str, thread_id: str, workflow_name: str, state: str | None) -> dict[str, Any]:
    """A run of which nothing is known but where it is."""
    told: dict[str, Any] = {"run_id": run_id, "thread_id": thread_id, "workflow_name": workflow_name, "state": state}
    return {**told, "outputs": [], "requests": [], "checkpoint_id": None, "usage": {}, "error": None}


async def told_run_of_log(threads: Threads, thread_id: str, run_id: str) -> dict[str, Any]:
    """A run of any process, from the log of its thread. Raises HttpProblem if the log knows of none."""
    info, workflow = await threads.known_workflow(thread_id)
    declared = None if workflow is None else workflow.declared_types
    space = threads.space
    told = _blank(run_id, thread_id, info.workflow_name, None)
    async for event in read_events(threads.storage, info.thread_id, None, declared):
        if event.run_id == run_id:
            _add(told, event, threads)
        if (event.seq or 0) % AT_ONCE == 0:
            await asyncio.sleep(0)  # others are served meanwhile
    if told["state"] is None:
        raise HttpProblem(404, "run_not_found", f"Thread {thread_id!r} has no run {run_id!r}.", field="run_id")
    told["usage"] = await _usage(threads, told["checkpoint_id"])
    if told["state"] not in _AT_REST and info.run_id != run_id:
        told["state"] = "INTERRUPTED"
    if info.status == WorkflowRunState.IDLE_WITH_PENDING_REQUESTS.value and told["state"] == info.status:
        pending = await threads.asked(thread_id)
        told["requests"] = [plain_request(one, space) for one in pending.values()]
    return told


async def _usage(threads: Threads, checkpoint_id: str | None) -> Any:
    """What the thread's agents had used when the run ended; nothing if that was forgotten."""
    try:
        found = None if checkpoint_id is None else await threads.storage.load(checkpoint_id)
    except CheckpointNotFound:
        found = None
    return {} if found is None else plain(found.metadata.get("usage", {}))


def _add(told: dict[str, Any], event: WorkflowEvent, threads: Threads) -> None:
    if event.type == "status" and event.state is not None:
        told["state"] = event.state.value
    elif event.type == "output":
        told["outputs"].append(plain(event.data))
    elif event.type == "failed" and event.details is not None:
        told["error"] = plain_error(event.details, hides=threads.service.hides_errors)
    if event.checkpoint is not None:
        told["checkpoint_id"] = event.checkpoint.checkpoint_id


def failure_of(threads: Threads, served: ServedRun) -> HttpProblem:
    """Of a run that began and failed: its thread stands at its last checkpoint."""
    thread_id = threads.space.outside(served.thread_id)
    error = served.error
    headers = {"X-Run-Id": served.run_id}
    if isinstance(error, RunInterrupted):
        return HttpProblem(
            503,
            "run_interrupted",
            f"Run {served.run_id} of thread {thread_id!r} was left as the server stopped. Nothing is lost: it goes on.",
            headers={**headers, "Retry-After": "5"},
            thread_id=thread_id,
        )
    known = problem_of(error) if isinstance(error, PerdureError) else None
    if known is not None and known.status in (409, 503) and not isinstance(error, ThreadBusy):
        return known
    shown = plain_error(WorkflowErrorDetails.from_exception(error), hides=threads.service.hides_errors) if error else {}
    why = "" if threads.service.hides_errors else f": {shown.get('error_type')}: {shown.get('message')}"
    return HttpProblem(
        502,
        "run_failed",
        f"Run {served.run_id} of thread {thread_id!r} failed{why}. What was committed is kept; the thread can be "
        f"resumed with POST /v1/threads/{thread_id}/runs.",
        headers=headers,
        thread_id=thread_id,
    )
