"""Storages and checkpoints used directly: saved, loaded, listed, deleted, made by hand."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from flows import (
    FileCheckpointStorage,
    InMemoryCheckpointStorage,
    WorkflowCheckpoint,
    WorkflowCheckpointException,
    WorkflowEvent,
    WorkflowMessage,
)

FOLDER = Path()


@dataclass
class Order:
    name: str
    amount: int


def checkpoint(name: str = "w", **fields: Any) -> WorkflowCheckpoint:
    return WorkflowCheckpoint(workflow_name=name, graph_signature_hash="hash", **fields)


async def attempt(work: Any) -> Any:
    try:
        return await work
    except WorkflowCheckpointException:
        return "WorkflowCheckpointException"


def show(each: Any) -> Any:
    messages = {
        source: [
            [message.data, message.source_id, message.target_id, message.type.value]
            if isinstance(message, WorkflowMessage)
            else message
            for message in sent
        ]
        for source, sent in each.messages.items()
    }
    requests = {
        key: [event.type, event.data, event.source_executor_id, event.request_type.__name__]
        for key, event in each.pending_request_info_events.items()
    }
    parts = [each.workflow_name, each.graph_signature_hash, each.previous_checkpoint_id, each.iteration_count]
    return [*parts, messages, requests, each.state, each.metadata, each.version]


def storages(folder: str) -> dict[str, Any]:
    return {"memory": InMemoryCheckpointStorage(), "file": FileCheckpointStorage(FOLDER / folder)}


async def by_hand() -> Any:
    messages = {
        "a": [
            WorkflowMessage(data="one", source_id="a", target_id="b"),
            WorkflowMessage(data=[1, {"x": None}], source_id="a"),
        ],
        "b": [WorkflowMessage(data=2.5, source_id="b", target_id="c")],
    }
    request = WorkflowEvent.request_info("r", "a", "why?", str)
    made = checkpoint(
        messages=messages,
        state={"key": "value", "list": [1, 2], "_executor_state": {"a": {"count": 1}}},
        pending_request_info_events={"r": request},
        iteration_count=4,
        metadata={"about": "test", "n": 1},
        previous_checkpoint_id="before",
    )
    results: dict[str, Any] = {}
    for name, storage in storages("by_hand").items():
        saved = await storage.save(made)
        results[name] = [saved == made.checkpoint_id, show(await storage.load(saved))]
    return results


async def with_dicts() -> Any:
    made = checkpoint(messages={"a": [{"data": "test"}, {"data": 1, "source_id": "a"}], "b": []}, state={})
    return {
        name: show(await storage.load(await storage.save(made))) for name, storage in storages("with_dicts").items()
    }


async def listing() -> Any:
    results: dict[str, Any] = {}
    for name, storage in storages("listing").items():
        made = [checkpoint("w", iteration_count=n) for n in range(3)] + [checkpoint("other")]
        for each in made:
            await storage.save(each)
        ids = [each.checkpoint_id for each in made]
        latest = await storage.get_latest(workflow_name="w")
        results[name] = [
            sorted(ids.index(each) for each in await storage.list_checkpoint_ids(workflow_name="w")),
            sorted(each.iteration_count for each in await storage.list_checkpoints(workflow_name="w")),
            None if latest is None else latest.iteration_count,
            await storage.get_latest(workflow_name="none"),
            await storage.list_checkpoints(workflow_name="none"),
            await storage.list_checkpoint_ids(workflow_name="none"),
            [await storage.delete(ids[0]), await storage.delete(ids[0]), await storage.delete("none")],
            [await attempt(storage.load(ids[0])), await attempt(storage.load("none"))],
            len(await storage.list_checkpoints(workflow_name="w")),
        ]
    return results


async def saved_again() -> Any:
    results: dict[str, Any] = {}
    for name, storage in storages("saved_again").items():
        first = checkpoint(checkpoint_id="same", state={"n": 1})
        second = checkpoint(checkpoint_id="same", state={"n": 2})
        await storage.save(first)
        await storage.save(second)
        first.state["n"] = 3
        loaded = await storage.load("same")
        results[name] = [loaded.state, len(await storage.list_checkpoints(workflow_name="w"))]
    return results


async def as_dicts() -> Any:
    made = checkpoint(state={"k": [1]}, metadata={"m": 1}, iteration_count=2, checkpoint_id="c", timestamp="t")
    tree = made.to_dict()
    names = ("checkpoint_id", "workflow_name", "graph_signature_hash", "previous_checkpoint_id", "timestamp")
    more = ("messages", "state", "pending_request_info_events", "iteration_count", "metadata", "version")
    again = WorkflowCheckpoint.from_dict(tree)
    fields = {"workflow_name": "x", "graph_signature_hash": "h", "state": {"a": 1}, "iteration_count": 3}
    short = WorkflowCheckpoint.from_dict({**fields, "messages": {}, "checkpoint_id": "id"})
    return [
        {name: tree[name] for name in (*names, *more)},
        show(again),
        [short.state, short.checkpoint_id],
        again == made,
    ]


async def defaults() -> Any:
    made = checkpoint()
    empty = [made.messages, made.state, made.pending_request_info_events, made.metadata]
    return [empty, made.iteration_count, made.version, made.previous_checkpoint_id, len(made.checkpoint_id) > 8]


async def folders() -> Any:
    path = FOLDER / "deep" / "er"
    storage = FileCheckpointStorage(path)
    text = FileCheckpointStorage(str(path))
    return [storage.storage_path == path, isinstance(text.storage_path, Path), text.storage_path == path]


async def messages() -> Any:
    plain = WorkflowMessage(data="x", source_id="a")
    tree = WorkflowMessage(data={"k": 1}, source_id="a", target_id="b").to_dict()
    again = WorkflowMessage.from_dict(json.loads(json.dumps(tree)))
    return [
        [plain.target_id, plain.type.value, plain.original_request_info_event],
        tree["data"],
        tree["source_id"],
        tree["target_id"],
        tree["type"],
        again.data,
        again.target_id,
    ]


async def own_types() -> Any:
    made = checkpoint(messages={"a": [WorkflowMessage(data=Order("tea", 2), source_id="a", target_id="b")]})
    results: dict[str, Any] = {}
    for name, storage in {
        "file": FileCheckpointStorage(FOLDER / "own", allowed_checkpoint_types=[f"{Order.__module__}:Order"]),
    }.items():
        loaded = await storage.load(await storage.save(made))
        data = loaded.messages["a"][0].data
        results[name] = [type(data).__name__, data.name, data.amount] if isinstance(data, Order) else repr(data)
    return results


async def main() -> Any:
    parts = (by_hand, with_dicts, listing, saved_again, as_dicts, defaults, folders, messages, own_types)
    return {part.__name__: await part() for part in parts}
