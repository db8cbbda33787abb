"""Checkpoints that a program makes itself: what a storage saves it also loads, and refuses the rest by its path."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from tests.promises.processes import STORAGES
from tests.unit.engine.flows import shouting

from perdure import (
    DamagedCheckpoint,
    UnsavableValue,
    WorkflowCheckpoint,
    WorkflowCheckpointException,
    WorkflowEvent,
    WorkflowMessage,
)


@pytest.fixture(params=STORAGES)
async def storage(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Any]:
    async with STORAGES[request.param](tmp_path) as opened:
        yield opened


def made(**fields: Any) -> WorkflowCheckpoint:
    return WorkflowCheckpoint(**{"workflow_name": "w", "graph_signature_hash": "hash", **fields})


MESSAGES: dict[str, list[Any]] = {
    "a": [
        WorkflowMessage("due", "a", "b"),
        WorkflowMessage("to all", "a"),
        WorkflowMessage(1, "other", "b"),
        {"k": [1]},
    ],
    "b": ["text", None],
    "c": [],
}


async def test_messages_of_any_form_load_as_they_were_saved(storage: Any) -> None:
    saved = await storage.save(made(messages=MESSAGES))
    assert (await storage.load(saved)).messages == MESSAGES
    [listed] = await storage.list_checkpoints(workflow_name="w")
    assert listed.messages == MESSAGES


async def test_a_loaded_checkpoint_shares_nothing_with_the_saved_one(storage: Any) -> None:
    state = {"list": [1]}
    saved = await storage.save(made(state=state, messages={"a": [{"k": [1]}]}))
    state["list"].append(2)
    loaded: Any = await storage.load(saved)
    loaded.messages["a"][0]["k"].append(2)
    again: Any = await storage.load(saved)
    assert again.state == {"list": [1]} and again.messages == {"a": [{"k": [1]}]}


@pytest.mark.parametrize(
    ("fields", "path"),
    [
        ({"messages": {"a": "text"}}, r"checkpoint: .*`\$\.messages\[...\]`"),
        ({"messages": [1]}, r"checkpoint: .*`\$\.messages`"),
        ({"messages": {"a": [{"k": print}]}}, r"messages\['a'\]\[0\]"),
        ({"state": {1: "x"}}, r"checkpoint: .*`key` in `\$\.state`"),
        ({"state": {"k": {"deep": print}}}, r"state\['k'\]\['deep'\]"),
        ({"metadata": None}, r"checkpoint: .*`\$\.metadata`"),
        ({"iteration_count": "2"}, r"checkpoint: .*`\$\.iteration_count`"),
        ({"version": "2.0"}, "version: the format of stored checkpoints is '1.0'"),
        (
            {"pending_request_info_events": {"r": {"data": 1}}},
            r"pending_request_info_events\['r'\]: expected a request",
        ),
        (
            {"pending_request_info_events": {"r": WorkflowEvent.request_info("q", "a", "?", str)}},
            r"pending_request_info_events\['r'\]: the request has the id 'q'",
        ),
    ],
)
async def test_a_part_that_could_not_be_loaded_is_refused_by_its_path(
    storage: Any, fields: dict[str, Any], path: str
) -> None:
    with pytest.raises(UnsavableValue, match=f"Cannot save {path}"):
        await storage.save(made(**fields))
    assert await storage.list_checkpoint_ids(workflow_name="w") == []


async def test_a_workflow_refuses_a_checkpoint_with_a_message_for_no_one(storage: Any) -> None:
    workflow = shouting(checkpoint_storage=storage)
    fields = {"workflow_name": workflow.name, "graph_signature_hash": workflow.graph_signature_hash}
    saved = await storage.save(made(**fields, messages={"shout": [{"data": "x"}]}))
    with pytest.raises(DamagedCheckpoint, match=r"messages\['shout'\]\[0\] is not a WorkflowMessage"):
        await workflow.run(checkpoint_id=saved)


async def test_a_workflow_continues_from_a_delivery_that_was_made_by_hand(storage: Any) -> None:
    workflow = shouting(checkpoint_storage=storage)
    fields = {"workflow_name": workflow.name, "graph_signature_hash": workflow.graph_signature_hash}
    saved = await storage.save(made(**fields, messages={"shout": [WorkflowMessage("BY HAND", "shout", "deliver")]}))
    assert (await workflow.run(checkpoint_id=saved)).get_outputs() == ["<BY HAND>"]


def test_fields_of_a_checkpoint_make_one_and_other_keys_are_refused() -> None:
    fields = {"workflow_name": "w", "graph_signature_hash": "h", "state": {"k": 1}, "checkpoint_id": "id"}
    checkpoint = WorkflowCheckpoint.from_dict(fields)
    assert (checkpoint.state, checkpoint.checkpoint_id) == ({"k": 1}, "id")
    with pytest.raises(WorkflowCheckpointException, match="not a stored checkpoint"):
        WorkflowCheckpoint.from_dict({**fields, "colour": "red"})


def test_message_survives_the_way_through_a_dict() -> None:
    message = WorkflowMessage({"k": 1}, "a", "b")
    assert WorkflowMessage.from_dict(message.to_dict()) == message
    with pytest.raises(KeyError, match="source_id"):
        WorkflowMessage.from_dict({"data": 1})
