"""A storage of a third party, shared by all families of tests."""

from __future__ import annotations

from perdure import CheckpointNotFound, WorkflowCheckpoint


class SixMethods:
    """A storage as a third party would write it in ten minutes: it keeps the very objects that it is handed."""

    def __init__(self) -> None:
        self.kept: dict[str, WorkflowCheckpoint] = {}

    async def save(self, checkpoint: WorkflowCheckpoint) -> str:
        self.kept[checkpoint.checkpoint_id] = checkpoint
        return checkpoint.checkpoint_id

    async def load(self, checkpoint_id: str) -> WorkflowCheckpoint:
        if checkpoint_id not in self.kept:
            raise CheckpointNotFound(checkpoint_id)
        return self.kept[checkpoint_id]

    async def list_checkpoints(self, *, workflow_name: str) -> list[WorkflowCheckpoint]:
        return [checkpoint for checkpoint in self.kept.values() if checkpoint.workflow_name == workflow_name]

    async def delete(self, checkpoint_id: str) -> bool:
        return self.kept.pop(checkpoint_id, None) is not None

    async def get_latest(self, *, workflow_name: str) -> WorkflowCheckpoint | None:
        return next(reversed(await self.list_checkpoints(workflow_name=workflow_name)), None)

    async def list_checkpoint_ids(self, *, workflow_name: str) -> list[str]:
        return [checkpoint.checkpoint_id for checkpoint in await self.list_checkpoints(workflow_name=workflow_name)]
