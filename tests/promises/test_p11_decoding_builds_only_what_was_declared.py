"""Promise 11: decoding imports no module and calls no constructor that was not declared."""

from __future__ import annotations

import json
import sys
import types
from collections.abc import Callable
from dataclasses import dataclass, make_dataclass
from pathlib import Path
from typing import Any

import pytest
from tests.promises.processes import STORAGES, Place
from tests.promises.stages import Boom, Does, Stage, alone, edited, rewrite_head

from perdure import (
    DamagedCheckpoint,
    FunctionExecutor,
    Opaque,
    Workflow,
    WorkflowBuilder,
    WorkflowContext,
    WorkflowRunState,
)
from perdure.checkpoints.storage import StoreCheckpointStorage

MADE: list[object] = []


@dataclass
class Counted:
    """A data type of this package that notices when it is made."""

    x: int = 1

    def __post_init__(self) -> None:
        MADE.append(self)


class NotData:
    """Of this package too, but not a data type."""

    def __init__(self, **fields: Any) -> None:
        MADE.append(self)


def reader(storage: Any, **options: Any) -> Workflow:
    async def read(message: str, ctx: WorkflowContext[Any, Any]) -> None:
        await ctx.yield_output(ctx.get_state("planted"))

    return alone(Does("read", read), storage, **options)


async def planted(storage: StoreCheckpointStorage, tree: Any) -> None:
    """A thread whose head holds this in its state, as if another program had written it."""
    await reader(storage).run("x", thread_id="t")
    await rewrite_head(storage, "t", edited(lambda root: root.setdefault("state", {}).update(planted=tree)))


@pytest.fixture
def trap(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[], bool]:
    """Two undeclared packages, one on the path and one loaded. The result is whether the first was imported."""
    bait = make_dataclass("Bait", [("x", int)])
    bait.__module__ = "loaded_elsewhere"
    monkeypatch.setitem(sys.modules, "loaded_elsewhere", types.ModuleType("loaded_elsewhere"))
    monkeypatch.setattr(sys.modules["loaded_elsewhere"], "Bait", bait, raising=False)
    (tmp_path / "sprung_trap.py").write_text(
        "from dataclasses import dataclass\n\n@dataclass\nclass Bait:\n    x: int = 1\n"
    )
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.delitem(sys.modules, "sprung_trap", raising=False)
    return lambda: sys.modules.pop("sprung_trap", None) is not None


@pytest.mark.parametrize(
    "name",
    [
        "sprung_trap:Bait",
        "subprocess:Popen",
        "builtins:eval",
        "os:system",
        "collections:namedtuple",
        "loaded_elsewhere:Bait",
        "perdure:Workflow",
        "perdure.events:WorkflowEvent",
        f"{__name__}:NotData",
        f"{__name__}:planted",
        f"{__name__}:Counted.__post_init__",
        f"{__name__}:Nothing",
        "no colon",
        ":",
        "",
    ],
)
async def test_an_undeclared_name_is_refused_without_import_or_call(
    storage: StoreCheckpointStorage, trap: Callable[[], bool], name: str
) -> None:
    await planted(storage, {"$type": name, "x": 1})
    MADE.clear()
    with pytest.raises(DamagedCheckpoint, match=r"Cannot read state\['planted'\]") as raised:
        await reader(storage).run("y", thread_id="t")
    assert name in str(raised.value)
    assert not trap() and MADE == []


async def test_a_declared_type_is_built_without_its_constructor(storage: StoreCheckpointStorage) -> None:
    await planted(storage, {"$type": f"{__name__}:Counted", "x": 7})
    MADE.clear()
    (value,) = (await reader(storage).run("y", thread_id="t")).get_outputs()
    assert value.x == 7 and type(value) is Counted
    assert MADE == []


@pytest.mark.parametrize("kind", STORAGES)
@pytest.mark.parametrize("where", ["builder", "storage", "storage by the peers' name"])
async def test_types_can_be_declared_by_name(trap: Callable[[], bool], where: str, kind: str, tmp_path: Path) -> None:
    names = ["sprung_trap:Bait"]
    declared: dict[str, dict[str, Any]] = {
        "builder": {},
        "storage": {"allowed_types": names},
        "storage by the peers' name": {"allowed_checkpoint_types": names},
    }
    async with STORAGES[kind](tmp_path, **declared[where]) as storage:
        await planted(storage, {"$type": names[0], "x": 7})
        options = {"allowed_types": names} if where == "builder" else {}
        (value,) = (await reader(storage, **options).run("y", thread_id="t")).get_outputs()
    assert type(value).__name__ == "Bait" and value.x == 7
    assert trap(), "now it may be imported"


Bait = make_dataclass("Bait", [("x", int)])
Bait.__module__ = "shop.bait"


async def test_types_declared_by_a_storage_hold_only_for_that_storage(place: Place) -> None:
    async def keep(message: str, ctx: WorkflowContext[Any, Any]) -> None:
        ctx.set_state("planted", Bait(7))

    async with place.storage(allowed_checkpoint_types=[Bait]) as storage:
        await alone(Does("read", keep), storage).run("x", thread_id="t")
    async with place.storage(allowed_checkpoint_types=[Bait]) as storage:
        head = await storage.get_latest(thread_id="t")
        assert head is not None and head.state == {"planted": Bait(7)}
        assert (await reader(storage).run("y", thread_id="t")).get_outputs() == [Bait(7)]
    async with place.storage() as storage:
        with pytest.raises(DamagedCheckpoint, match=r"shop\.bait:Bait"):
            await reader(storage).run("y", thread_id="t")
        head = await storage.get_latest(thread_id="t")
        assert head is not None and head.state == {"planted": Opaque("shop.bait:Bait", {"x": 7})}


FromAnnotation = make_dataclass("FromAnnotation", [("x", int)])
Nested = make_dataclass("Nested", [("inner", types.GenericAlias(list, (FromAnnotation,)))])
FromAnnotation.__module__ = Nested.__module__ = "shop.annotated"


async def test_types_reachable_from_handlers_are_declared(storage: StoreCheckpointStorage) -> None:
    stage = Stage()

    async def read(message: Any, ctx: WorkflowContext[Any, Any]) -> None:
        await stage.play("read", "")
        await ctx.yield_output(message)

    def build() -> Workflow:
        start = FunctionExecutor(read, "read", input=Nested, workflow_output=Nested)
        return WorkflowBuilder(start_executor=start, checkpoint_storage=storage).build()

    stage.failing = {"read"}
    value = Nested([FromAnnotation(1)])
    with pytest.raises(Boom):
        await build().run(value, thread_id="t")
    stage.failing = set()
    assert (await build().run(thread_id="t")).get_outputs() == [value]


async def test_data_types_of_a_function_executors_package_are_declared(storage: StoreCheckpointStorage) -> None:
    async def keep(message: str, ctx: WorkflowContext[Any, Any]) -> None:
        ctx.set_state("kept", Counted(3))

    result = await WorkflowBuilder(start_executor=FunctionExecutor(keep), checkpoint_storage=storage).build().run("x")
    assert result.checkpoint_id is not None
    assert (await storage.load(result.checkpoint_id)).state == {"kept": Counted(3)}


async def test_a_storage_without_a_workflow_shows_what_it_cannot_build(storage: StoreCheckpointStorage) -> None:
    """And saves it back unchanged, so that a tool loses nothing."""
    await planted(storage, {"$type": "elsewhere:Bait", "x": [1, {"$type": "elsewhere:Bait", "x": 2}]})
    before = await storage.store.head("t")
    loaded = await storage.get_latest(thread_id="t")
    assert loaded is not None and before is not None
    value = loaded.state["planted"]
    assert isinstance(value, Opaque) and value.type == "elsewhere:Bait"
    await storage.save(loaded)
    after = await storage.store.head("t")
    assert after is not None and json.loads(after.root) == json.loads(before.root)


async def test_a_refused_checkpoint_leaves_the_thread_usable(storage: StoreCheckpointStorage) -> None:
    await planted(storage, {"$type": "subprocess:Popen", "args": ["true"]})
    for _ in range(2):
        with pytest.raises(DamagedCheckpoint):
            await reader(storage).run("y", thread_id="t")
    older = (await storage.list_checkpoint_infos(thread_id="t"))[0]
    result = await reader(storage).run(checkpoint_id=older)
    assert result.get_final_state() is WorkflowRunState.IDLE
