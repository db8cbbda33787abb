"""Checkpoints made by hand: what both storages list, load, delete and refuse."""

import tempfile
from typing import Any

from flows import FileCheckpointStorage, InMemoryCheckpointStorage, WorkflowCheckpoint, WorkflowEvent, WorkflowMessage


def checkpoint(checkpoint_id: str, **fields: Any) -> Any:
    return WorkflowCheckpoint(
        **{"workflow_name": "w", "graph_signature_hash": "h", "checkpoint_id": checkpoint_id, **fields}
    )


async def of_storage(storage: Any) -> Any:
    first = checkpoint("c1", timestamp="2024-01-01T00:00:00+00:00", state={"a": [1, {"b": None}]}, metadata={"m": 1})
    second = checkpoint("c2", timestamp="2024-01-02T00:00:00+00:00", previous_checkpoint_id="c1", iteration_count=1)
    saved = [await storage.save(each) for each in (first, second, checkpoint("o", workflow_name="other"))]
    loaded = await storage.load("c1")
    latest = await storage.get_latest(workflow_name="w")
    event = WorkflowEvent.request_info("r", "e", "sure?", bool)
    message = WorkflowMessage(data="hi", source_id="e", target_id="t")
    full = checkpoint("full", workflow_name="f", messages={"e": [message]}, pending_request_info_events={"r": event})
    await storage.save(full)
    kept = await storage.load("full")
    [sent], asked = kept.messages["e"], kept.pending_request_info_events["r"]
    return [
        saved,
        [loaded.state, loaded.metadata, loaded.timestamp, loaded.version, loaded.iteration_count],
        [latest.checkpoint_id, latest.previous_checkpoint_id, latest.iteration_count],
        sorted(each.checkpoint_id for each in await storage.list_checkpoints(workflow_name="w")),
        [await storage.list_checkpoints(workflow_name="z"), await storage.get_latest(workflow_name="z")],
        [await storage.delete("c1"), await storage.delete("c1"), await storage.list_checkpoint_ids(workflow_name="w")],
        [sent.data, sent.source_id, sent.target_id, asked.request_id, asked.data, asked.response_type.__name__],
    ]


async def main() -> Any:
    with tempfile.TemporaryDirectory() as folder:
        return [await of_storage(storage) for storage in (InMemoryCheckpointStorage(), FileCheckpointStorage(folder))]
