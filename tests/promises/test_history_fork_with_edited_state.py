"""Forks with edited state: checked against what is stored, refused without a trace, and continued."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import pytest
from tests.promises.stages import Does, alone
from tests.promises.test_history_fork import threads

from perdure import (
    InMemoryCheckpointStorage,
    InvalidRun,
    Opaque,
    UnsavableValue,
    Workflow,
    WorkflowCheckpoint,
    WorkflowContext,
    WrongStateType,
)
from perdure.checkpoints.storage import StoreCheckpointStorage


@dataclass
class Note:
    text: str


class Undeclared:
    """No data type, so it cannot be saved."""


def editor(storage: Any) -> Workflow:
    async def write(message: Any, ctx: WorkflowContext[Any, Any]) -> None:
        if message == "begin":
            ctx.state.update({"n": 1, "f": 1.5, "b": True, "s": "a", "l": [1], "none": None, "note": Note("x")})
        await ctx.yield_output(dict(ctx.state))

    return alone(Does("write", write), storage, allowed_types=[Note])


async def begun(storage: Any) -> tuple[Workflow, str]:
    workflow = editor(storage)
    return workflow, str((await workflow.run("begin", thread_id="t")).checkpoint_id)


async def test_fork_with_edited_state_continues_from_it(any_storage: Any) -> None:
    workflow, source = await begun(any_storage)
    edits: dict[str, Any] = {"n": 2, "f": 2, "s": None, "none": [1], "note": Note("y"), "new": {"k": (1, 2)}}
    made = await workflow.fork(source, thread_id="f", update_state=edits, remove_state=["l"])
    edits["new"]["k"] = "changed afterwards"
    [state] = (await workflow.run("go on", thread_id="f")).get_outputs()
    assert state == {"n": 2, "f": 2, "b": True, "s": None, "none": [1], "note": Note("y"), "new": {"k": (1, 2)}}
    assert type(state["f"]) is int
    [unchanged] = (await workflow.run("go on", thread_id="t")).get_outputs()
    assert unchanged["note"] == Note("x") and "new" not in unchanged
    changed = {change.path for change in await workflow.diff(source, made)}
    assert changed == {f"state['{key}']" for key in ("n", "f", "s", "none", "new", "l")} | {"state['note'].text"}


@pytest.mark.parametrize(
    ("key", "value", "expected", "got"),
    [
        ("n", "1", "int", "str"),
        ("n", True, "int", "bool"),
        ("n", 1.0, "int", "float"),
        ("b", 1, "bool", "int"),
        ("s", b"a", "str", "bytes"),
        ("l", (1,), "list", "tuple"),
        ("note", {"text": "y"}, "Note", "dict"),
        ("f", "1.5", "float", "str"),
        ("f", True, "float", "bool"),
    ],
)
async def test_edited_state_of_a_wrong_type_is_refused(key: str, value: Any, expected: str, got: str) -> None:
    storage = InMemoryCheckpointStorage()
    workflow, source = await begun(storage)
    message = rf"state\['{key}'\].* is .*{expected}, and the new value is {got}. Nothing was written"
    for place in (workflow, storage):
        with pytest.raises(WrongStateType, match=message):
            await place.fork(source, thread_id="f", update_state={key: value})
    assert await threads(storage) == {"t"}


@pytest.mark.parametrize(
    ("edit", "reason"),
    [
        ({"update_state": [("n", 1)]}, "update_state must map keys"),
        ({"update_state": {1: 1}}, "update_state must map keys"),
        ({"remove_state": "n"}, "remove_state must be a list"),
        ({"remove_state": [1]}, "remove_state must be a list"),
        ({"remove_state": 5}, "remove_state must be a list"),
        ({"remove_state": ["nte"]}, r"'nte', which is not in the state .*did you mean 'note'"),
        ({"remove_state": ["n"], "update_state": {"n": 2}}, "both name 'n'"),
        ({"thread_id": ""}, "thread_id must be a non-empty string"),
        ({"thread_id": 5}, "thread_id must be a non-empty string"),
    ],
)
async def test_invalid_edits_are_refused(edit: dict[str, Any], reason: str) -> None:
    storage = InMemoryCheckpointStorage()
    workflow, source = await begun(storage)
    for place in (workflow, storage):
        with pytest.raises(InvalidRun, match=reason):
            await place.fork(source, **{"thread_id": "f", **edit})
    assert await threads(storage) == {"t"}


async def test_state_that_cannot_be_saved_is_refused_and_leaves_no_thread(any_storage: Any) -> None:
    workflow, source = await begun(any_storage)
    with pytest.raises(UnsavableValue, match=r"state\['new'\]\[0\]"):
        await workflow.fork(source, thread_id="f", update_state={"new": [Undeclared()]})
    assert await threads(any_storage) == {"t"}
    assert (await workflow.fork(source, thread_id="f")).number == 1


# ---------------------------------------------------------------- without a workflow


async def test_undeclared_types_pass_through_a_fork_unchanged(storage: StoreCheckpointStorage) -> None:
    note, other = Opaque("gone:Note", {"text": "x"}), Opaque("gone:Other", {"text": "x"})
    await storage.save(WorkflowCheckpoint("w", "h", checkpoint_id="source", thread_id="t", state={"n": note, "k": 1}))
    made = await storage.fork("source", thread_id="f", update_state={"k": 2})
    assert (await storage.load(made)).state == {"n": note, "k": 2}
    newer = Opaque("gone:Note", {"text": "y"})
    assert (await storage.load(await storage.fork("source", update_state={"n": newer}))).state["n"] == newer
    with pytest.raises(WrongStateType, match="is gone:Note, and the new value is gone:Other"):
        await storage.fork("source", update_state={"n": other})
