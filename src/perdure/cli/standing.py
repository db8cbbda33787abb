"""Where a thread stands, in one word for people, and as data for machines."""

from __future__ import annotations

from typing import Any

from perdure.cli.tables import exact
from perdure.events import WorkflowRunState
from perdure.records import ThreadInfo

_WORDS = {
    WorkflowRunState.IDLE: "idle",
    WorkflowRunState.IDLE_WITH_PENDING_REQUESTS: "waiting",
    WorkflowRunState.FAILED: "failed",
    WorkflowRunState.CANCELLED: "cancelled",
}


def standing(thread: ThreadInfo) -> str:
    """running: a run owns it. interrupted: none does, and its last run did not come to its end. Otherwise how the last
    run ended: idle (nothing is due or asked), waiting (for answers), failed, cancelled."""
    if thread.run_id is not None:
        return "running"
    return _WORDS.get(WorkflowRunState(thread.status), "interrupted") if thread.status else "new"


def thread_tree(thread: ThreadInfo) -> dict[str, Any]:
    return {
        "thread_id": thread.thread_id,
        "workflow_name": thread.workflow_name,
        "standing": standing(thread),
        "status": thread.status,
        "number": thread.number,
        "updated_at": thread.updated_at,
        "due_at": exact(thread.due_at),
        "checkpoint_id": thread.checkpoint_id,
        "run_id": thread.run_id,
    }
