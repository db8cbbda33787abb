"""`on_checkpoint_save` and `on_checkpoint_restore`: saved values of executors are restored, or the run fails."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, ClassVar, Never

import pytest
from tests.unit.engine.flows import Tally, relay, tallying

from perdure import (
    CheckpointHookFailed,
    Executor,
    InMemoryCheckpointStorage,
    Workflow,
    WorkflowBuilder,
    WorkflowContext,
    handler,
)


async def test_saved_values_are_restored_into_a_new_object() -> None:
    storage = InMemoryCheckpointStorage()
    await tallying(checkpoint_storage=storage).run("a", thread_id="t")
    assert (await tallying(checkpoint_storage=storage).run("b", thread_id="t")).get_outputs() == [2]


async def test_saved_values_are_restored_into_the_same_object() -> None:
    workflow = tallying(checkpoint_storage=InMemoryCheckpointStorage())
    first = await workflow.run("a")
    for _ in range(2):
        await workflow.run("b")
    await workflow.run(checkpoint_id=first.checkpoint_id)
    assert (await workflow.run("b")).get_outputs() == [2]


async def test_each_thread_has_instances_of_its_own() -> None:
    workflow = tallying()
    counts = [(await workflow.run("x", thread_id=thread_id)).get_outputs() for thread_id in ("a", "b", "a", "b")]
    assert counts == [[1], [1], [2], [2]]


class Fragile(Tally):
    """Counts first, and then fails at the word "fail"."""

    @handler
    async def take(self, word: str, ctx: WorkflowContext[Never, int]) -> None:
        self.count += 1
        if word == "fail":
            raise ValueError("as asked")
        await ctx.yield_output(self.count)


@pytest.mark.parametrize("make_storage", [lambda: None, InMemoryCheckpointStorage], ids=["no storage", "memory"])
async def test_a_failed_superstep_puts_every_instance_back(make_storage: Callable[[], Any]) -> None:
    fragile = Fragile()
    workflow = tallying(fragile, checkpoint_storage=make_storage())
    await workflow.run("a", thread_id="t")
    with pytest.raises(ValueError, match="as asked"):
        await workflow.run("fail", thread_id="t")
    assert fragile.count == 1


class WithContext(Tally):
    """Hooks that take `ctx`: they read the shared state and keep a note in the private one."""

    async def on_checkpoint_save(self, ctx: Any = ...) -> dict[str, Any]:
        ctx.private["saves"] = ctx.private.get("saves", 0) + 1
        return {"count": self.count, "thread": ctx.thread_id, "executor": ctx.executor_id}

    async def on_checkpoint_restore(self, state: dict[str, Any], ctx: Any = ...) -> None:
        assert (state["thread"], state["executor"]) == (ctx.thread_id, ctx.executor_id)
        self.count = state["count"] + 10 * (ctx.private["saves"] > 0)


async def test_hooks_may_take_a_context() -> None:
    storage = InMemoryCheckpointStorage()
    await tallying(WithContext(), checkpoint_storage=storage).run("a", thread_id="t")
    assert (await tallying(WithContext(), checkpoint_storage=storage).run("b", thread_id="t")).get_outputs() == [12]


class Broken(Tally):
    """Its hooks do what the test sets on the class."""

    on_save: ClassVar[Any] = {}
    on_restore: ClassVar[Any] = None

    async def on_checkpoint_save(self) -> dict[str, Any]:
        if isinstance(type(self).on_save, Exception):
            raise type(self).on_save
        return type(self).on_save  # type: ignore[no-any-return]  # also values that are not a dict

    async def on_checkpoint_restore(self, state: dict[str, Any]) -> None:
        if isinstance(type(self).on_restore, Exception):
            raise type(self).on_restore


def broken(**does: Any) -> type[Broken]:
    return type("Broken", (Broken,), does)


@pytest.mark.parametrize(
    ("on_save", "reason"),
    [
        (None, "it returned None, expected a dict"),
        (["list"], r"it returned \['list'\], expected a dict"),
        (RuntimeError("disk on fire"), r"RuntimeError\('disk on fire'\)"),
    ],
)
async def test_a_save_hook_that_fails_fails_the_run_and_names_the_executor(on_save: Any, reason: str) -> None:
    storage = InMemoryCheckpointStorage()
    kind = broken(on_save=on_save)
    workflow = tallying(kind("culprit"), checkpoint_storage=storage)
    with pytest.raises(
        CheckpointHookFailed, match=f"on_checkpoint_save of executor 'culprit' failed: {reason}"
    ) as raised:
        await workflow.run("a", thread_id="t")
    assert raised.value.executor_id == "culprit"
    assert await storage.list_checkpoint_ids() == []
    kind.on_save = {}
    assert (await workflow.run("a", thread_id="t")).get_outputs() == [1]


async def test_save_hook_that_fails_later_keeps_the_last_checkpoint_as_head() -> None:
    storage = InMemoryCheckpointStorage()
    kind = broken()
    workflow = tallying(kind(), checkpoint_storage=storage)
    await workflow.run("a", thread_id="t")
    before = await storage.list_checkpoint_ids()
    kind.on_save = None
    with pytest.raises(CheckpointHookFailed):
        await workflow.run("b", thread_id="t")
    assert await storage.list_checkpoint_ids() == before
    kind.on_save = {}
    assert len((await workflow.run("b", thread_id="t")).get_outputs()) == 1


async def test_failing_restore_hook_fails_the_restore_and_nothing_is_written() -> None:
    storage = InMemoryCheckpointStorage()
    kind = broken()
    await tallying(kind("culprit"), checkpoint_storage=storage).run("a", thread_id="t")
    before = await storage.list_checkpoint_ids()
    kind.on_restore = KeyError("count")
    other = tallying(kind("culprit"), checkpoint_storage=storage)
    for way in ({"thread_id": "t"}, {"checkpoint_id": before[0]}):
        with pytest.raises(CheckpointHookFailed, match=r"on_checkpoint_restore of executor 'culprit' failed: KeyError"):
            await other.run(**way)  # type: ignore[call-overload]  # keywords from a dict
    assert await storage.list_checkpoint_ids() == before
    kind.on_restore = None
    assert (await other.run(thread_id="t")).get_outputs() == [1]


async def test_a_failed_restore_leaves_the_live_object_where_it_was() -> None:
    kind = broken()
    workflow = tallying(kind(), checkpoint_storage=InMemoryCheckpointStorage())
    first = await workflow.run("a")
    await workflow.run("b")
    kind.on_restore = KeyError("count")
    with pytest.raises(CheckpointHookFailed):
        await workflow.run(checkpoint_id=first.checkpoint_id)
    kind.on_restore = None
    assert (await workflow.run("c")).get_outputs() == [3]


class Plain(Tally):
    """Hooks that are not `async def`, a common mistake."""

    def on_checkpoint_save(self) -> dict[str, Any]:  # type: ignore[override]  # the point
        return {}


async def test_a_hook_that_is_not_async_is_an_error_that_names_the_executor() -> None:
    with pytest.raises(CheckpointHookFailed, match=r"on_checkpoint_save of executor 'plain' failed: .*await"):
        await tallying(Plain("plain"), checkpoint_storage=InMemoryCheckpointStorage()).run("x")


class Sharing(Executor):
    """Keeps a dict that the test holds, and saves it."""

    def __init__(self, id: str, kept: list[Any]) -> None:
        super().__init__(id)
        self.state: dict[str, Any] = {"words": []}
        kept.append(self)

    @handler
    async def take(self, word: str, ctx: WorkflowContext[Never, list[str]]) -> None:
        self.state["words"].append(word)
        await ctx.yield_output(self.state["words"])

    async def on_checkpoint_save(self) -> dict[str, Any]:
        return self.state

    async def on_checkpoint_restore(self, state: dict[str, Any]) -> None:
        self.state = state


@pytest.mark.parametrize("make_storage", [lambda: None, InMemoryCheckpointStorage], ids=["no storage", "memory"])
async def test_value_returned_by_a_hook_is_not_shared_with_the_live_object(make_storage: Callable[[], Any]) -> None:
    def built() -> Workflow:
        return WorkflowBuilder(
            name="sharing", start_executor=Sharing("s", []), checkpoint_storage=make_storage()
        ).build()

    workflow = built()
    await workflow.run("a")
    (output,) = (await workflow.run("b")).get_outputs()
    output.append("by the caller")
    assert (await workflow.run("c")).get_outputs() == [["a", "b", "c"]]


async def test_the_same_checkpoint_can_be_restored_any_number_of_times() -> None:
    storage = InMemoryCheckpointStorage()
    workflow = WorkflowBuilder(name="sharing", start_executor=Sharing("s", []), checkpoint_storage=storage).build()
    await workflow.run("a")
    entry, *_ = await storage.list_checkpoint_ids()
    assert [(await workflow.run(checkpoint_id=entry)).get_outputs() for _ in range(3)] == [[["a"]]] * 3


async def test_save_hook_is_called_for_an_executor_that_did_not_run() -> None:
    storage = InMemoryCheckpointStorage()
    start, tally = relay("start"), Tally()
    builder = WorkflowBuilder(name="asked", start_executor=start, checkpoint_storage=storage)
    await builder.add_edge(start, tally, lambda message: False).build().run("x")
    latest = await storage.get_latest()
    assert latest is not None and latest.executors["tally"].saved == {"count": 0}
