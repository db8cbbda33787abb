"""Lists of a thread's checkpoints, from any storage."""

from __future__ import annotations

from typing import Any

from perdure.checkpoints.checkpoint import WorkflowCheckpoint
from perdure.checkpoints.history_methods import check_limit
from perdure.checkpoints.keepers import storage_errors
from perdure.checkpoints.storage import StoreCheckpointStorage
from perdure.errors import CheckpointNotFound, StorageFailed, ThreadNotFound
from perdure.names import checkpoint_id_of
from perdure.records import CheckpointInfo


async def read_history(
    storage: Any,
    thread_id: str,
    workflow_name: str,
    *,
    limit: int | None = None,
    before: str | CheckpointInfo | None = None,
) -> list[CheckpointInfo]:
    """Newest first. A storage of six methods has no lists without payload, so all of the workflow's is read."""
    if isinstance(storage, StoreCheckpointStorage):
        return await storage.history(thread_id, limit=limit, before=before)
    check_limit(limit)
    with storage_errors(storage, "list_checkpoints"):
        found = await storage.list_checkpoints(workflow_name=workflow_name)
    for one in found:
        if not isinstance(one, WorkflowCheckpoint):
            reason = f"it gave {type(one).__name__}, expected a WorkflowCheckpoint"
            raise StorageFailed(type(storage).__name__, "list_checkpoints", reason)
    mine = sorted((one for one in found if one.thread_id == thread_id), key=lambda one: one.number, reverse=True)
    if not mine:
        raise ThreadNotFound(thread_id)
    infos = [one.info for one in mine]
    if before is not None:
        ids = [one.checkpoint_id for one in infos]
        if (wanted := checkpoint_id_of(before)) not in ids:
            raise CheckpointNotFound(wanted)
        infos = infos[ids.index(wanted) + 1 :]
    return infos[:limit]
