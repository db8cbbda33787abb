"""What is said of a thread: its name and the like, which stays whatever becomes of its content."""

from __future__ import annotations

from typing import Any

from perdure.codec import DeclaredTypes
from perdure.errors import StorageFailed, WorkflowCheckpointException


async def load_thread_metadata(storage: Any, head_id: str | None) -> dict[str, Any] | None:
    """What the thread's head says of it. None if that cannot be read: a rewind is the way back from a damaged head."""
    from perdure.checkpoints.storage import StoreCheckpointStorage, load_checkpoint

    if head_id is None:
        return None
    try:
        if isinstance(storage, StoreCheckpointStorage):
            head = await storage.load(head_id)  # also values of types that are gone
        else:
            head = await load_checkpoint(storage, head_id, DeclaredTypes())
    except StorageFailed:
        raise
    except WorkflowCheckpointException:
        return None
    return dict(head.metadata.get("about", {}))
