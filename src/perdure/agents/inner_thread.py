"""The thread of a workflow that is an agent in another one: found again after a crash, left behind by a rewind.

The run of each turn is named by the idempotency key of the step that it is: the same after a crash, and another after a
fork or rewind of the workflow around it.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

from perdure.agents.recording import working_for
from perdure.engine.run_arguments import Secret
from perdure.engine.workflow import Workflow
from perdure.errors import ThreadNotFound
from perdure.records import CheckpointInfo

INSIDE = "inside-"
"""How the ids of such runs begin."""


class InnerRun(NamedTuple):
    options: dict[str, Any]
    """Of the workflow's `run`."""
    is_resumed: bool
    """Whether what is said now was said already, before an interruption."""


async def inner_run(
    workflow: Workflow, session_id: str, kept: Mapping[str, Any], options: Mapping[str, Any], *, is_answer: bool
) -> InnerRun:
    """How to run the turn of the step that is made now. `kept` is what the turn before left, `is_answer` whether its
    requests are answered now."""
    context = working_for()
    assert context is not None  # noqa: S101  # asked only in a workflow
    key = f"{INSIDE}{context.idempotency_key}"
    thread_id = str(kept.get("thread_id", session_id))
    # A workflow without a storage lives where the workflow around it does.
    around = context.delivery.lane.scope.storage
    storage = options.get("checkpoint_storage") or workflow.checkpoint_storage or around
    # Whoever moves the thread around it may move this one: an owner before is gone, or lost that one too.
    given = {"takeover": True, **_not_kept(options), "thread_id": thread_id, "run_id": key}
    if storage is None:
        return InnerRun(given, is_resumed=False)
    given["checkpoint_storage"] = storage
    head = await _head(workflow, storage, thread_id)
    stands_at = None if head is None else head.checkpoint_id
    if head is not None and head.run_id == key:
        return InnerRun(given, is_resumed=True)
    if stands_at == kept.get("checkpoint_id"):
        return InnerRun(given, is_resumed=False)
    if is_answer and head is not None and not str(head.run_id).startswith(INSIDE):
        return InnerRun(given, is_resumed=True)  # somebody answered in this thread itself, and was the first to do so
    # It has gone on since: in a life of the workflow around it that was left behind, and may still be wanted there.
    thread_id = given["thread_id"] = f"{session_id}/{context.idempotency_key[:12]}"
    head = await _head(workflow, storage, thread_id)
    if head is None and kept.get("checkpoint_id") is not None:
        await workflow.fork(kept["checkpoint_id"], thread_id=thread_id, checkpoint_storage=storage)
    return InnerRun(given, is_resumed=head is not None and head.run_id == key)


def _not_kept(options: Mapping[str, Any]) -> dict[str, Any]:
    """Run arguments come from the workflow around it, each time: some are secrets there, so none is stored here."""
    arguments = ("function_invocation_kwargs", "client_kwargs")
    hidden = {name: {key: Secret(one) for key, one in options[name].items()} for name in arguments if name in options}
    return {**options, **hidden}


async def _head(workflow: Workflow, storage: Any, thread_id: str) -> CheckpointInfo | None:
    try:
        found = await workflow.history(thread_id, limit=1, checkpoint_storage=storage)
    except ThreadNotFound:
        return None
    return found[0] if found else None
