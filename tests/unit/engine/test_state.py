"""Shared and private state: the values that a handler reads and leaves, and how several writes are joined."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from tests.unit.engine.flows import alone, function, relay

from perdure import (
    Executor,
    InMemoryCheckpointStorage,
    InvalidRun,
    StateConflict,
    Workflow,
    WorkflowBuilder,
    add,
    append,
    merge,
)
from perdure.codecs.json_codec import JsonCodec
from perdure.engine.thread.state import DELETED, LaneState
from perdure.isolation import isolate, same_structure


def concat(current: str, written: str) -> str:
    return f"{current}+{written}"


def siblings(*works: Any, **options: Any) -> Workflow:
    """`start`, then all works side by side as `s0`, `s1`, ..., then `end`, which yields the whole state."""
    start = relay("start")
    workers: list[Executor] = [function(f"s{index}", work, accepts=object) for index, work in enumerate(works)]
    end = function("end", lambda message, ctx: ctx.yield_output(dict(ctx.state)), accepts=list)
    builder = WorkflowBuilder(name="siblings", start_executor=start, **options)
    return builder.add_fan_out_edges(start, workers).add_fan_in_edges(workers, end).build()


def writes(key: str, value: Any) -> Any:
    async def work(message: Any, ctx: Any) -> None:
        ctx.set_state(key, value)
        await ctx.send_message(message)

    return work


async def state_after(workflow: Workflow) -> Any:
    return (await workflow.run("x")).get_outputs()[-1]


async def test_a_handler_reads_its_own_writes_at_once() -> None:
    def work(message: str, ctx: Any) -> Any:
        ctx.set_state("key", 1)
        return ctx.yield_output((ctx.get_state("key"), ctx.get_state("other"), ctx.get_state("other", "default")))

    assert await state_after(alone(work)) == (1, None, "default")


async def test_a_siblings_write_is_seen_from_the_next_superstep_on() -> None:
    seen: list[Any] = []

    async def reads(message: Any, ctx: Any) -> None:
        seen.append(ctx.get_state("key"))
        await ctx.send_message(message)

    assert await state_after(siblings(writes("key", "new"), reads)) == {"key": "new"}
    assert seen == [None]


@pytest.mark.parametrize("make_storage", [lambda: None, InMemoryCheckpointStorage], ids=["no storage", "memory"])
async def test_two_siblings_that_write_the_same_key_conflict_and_neither_wins(make_storage: Callable[[], Any]) -> None:
    workflow = siblings(writes("key", 1), writes("key", 2), checkpoint_storage=make_storage())
    with pytest.raises(
        StateConflict, match=r"'s0' and 's1' both wrote the state key 'key'.*Declare how to join"
    ) as raised:
        await workflow.run("x")
    assert (raised.value.key, raised.value.executors) == ("key", ("s0", "s1"))


async def test_siblings_that_write_different_keys_do_not_conflict() -> None:
    assert await state_after(siblings(writes("a", 1), writes("b", 2))) == {"a": 1, "b": 2}


@pytest.mark.parametrize(
    ("reducer", "first", "second", "joined"),
    [
        (add, 2, 3, 5),
        (add, [1], [2], [1, 2]),
        (append, "x", "y", ["x", "y"]),
        (append, ["x"], "y", [["x"], "y"]),
        (merge, {"a": 1, "b": 1}, {"b": 2}, {"a": 1, "b": 2}),
        (concat, "one", "two", "one+two"),
    ],
)
async def test_a_reducer_joins_the_writes_of_siblings_in_their_order(
    reducer: Any, first: Any, second: Any, joined: Any
) -> None:
    workflow = siblings(writes("key", first), writes("key", second), state={"key": reducer})
    assert await state_after(workflow) == {"key": joined}


async def test_reducer_joins_new_writes_to_the_current_value() -> None:
    workflow = siblings(writes("total", 1), writes("total", 10), state={"total": add})
    assert [await state_after(workflow) for _ in range(2)] == [{"total": 11}, {"total": 22}]


async def test_a_handler_sees_its_own_contributions_joined() -> None:
    def work(message: str, ctx: Any) -> Any:
        for note in ("a", "b"):
            ctx.set_state("notes", note)
        return ctx.yield_output(ctx.get_state("notes"))

    assert await state_after(alone(work, state={"notes": append})) == ["a", "b"]


async def test_a_value_changed_in_place_counts_as_written() -> None:
    async def change(message: str, ctx: Any) -> None:
        known = ctx.get_state("list")
        if known is None:
            ctx.set_state("list", [])
        else:
            known.append(message)
        await ctx.yield_output(ctx.get_state("list"))

    workflow = alone(change)
    outputs = [(await workflow.run(word)).get_outputs() for word in ("first", "a", "b")]
    assert outputs == [[[]], [["a"]], [["a", "b"]]]


async def test_a_value_changed_after_it_was_written_is_stored_as_it_was() -> None:
    async def change(message: str, ctx: Any) -> None:
        mine = ["written"]
        ctx.set_state("list", mine)
        mine.append("later")
        await ctx.yield_output(ctx.get_state("list"))

    assert await state_after(alone(change)) == ["written"]


async def test_handler_that_keeps_a_value_it_read_cannot_change_the_state_later() -> None:
    kept: list[Any] = []

    async def keep(message: str, ctx: Any) -> None:
        kept.append(ctx.get_state("list"))
        if message == "begin":
            ctx.set_state("list", [1])
        elif kept[-2]:
            kept[-2].append("smuggled")
        await ctx.yield_output(ctx.get_state("list"))

    workflow = alone(keep)
    results = [await workflow.run(word) for word in ("begin", "read", "read")]
    assert results[-1].get_outputs() == [[1]]


async def test_two_siblings_that_change_the_same_value_in_place_conflict() -> None:
    async def change(message: Any, ctx: Any) -> None:
        ctx.get_state("list", []).append(message)
        await ctx.send_message(message)

    async def begin(message: Any, ctx: Any) -> None:
        ctx.set_state("list", [])
        await ctx.send_message(message)

    start, first, second = function("start", begin, accepts=object), function("one", change), function("two", change)
    workflow = WorkflowBuilder(start_executor=start).add_fan_out_edges(start, [first, second]).build()
    with pytest.raises(StateConflict, match="'one' and 'two' both wrote the state key 'list'"):
        await workflow.run("x")


async def test_deleted_key_is_gone_for_later_runs() -> None:
    async def work(message: str, ctx: Any) -> None:
        if message == "delete":
            ctx.delete_state("key")
        elif message == "write":
            ctx.set_state("key", None)
        await ctx.yield_output("key" in ctx.state)

    workflow = alone(work)
    words = ("read", "write", "read", "delete", "read")
    assert [(await workflow.run(word)).get_outputs()[0] for word in words] == [False, True, True, False, False]


async def test_deleting_a_key_that_is_not_there_does_nothing() -> None:
    assert (await alone(lambda message, ctx: ctx.delete_state("nothing")).run("x")).get_final_state().value == "IDLE"


async def test_the_state_is_a_mapping() -> None:
    async def work(message: str, ctx: Any) -> None:
        ctx.state["a"] = 1
        ctx.state.update(b=2, c=3)
        del ctx.state["b"]
        assert ctx.state.setdefault("d", 4) == 4 and ctx.state.pop("c") == 3
        with pytest.raises(KeyError):
            ctx.state["b"]
        with pytest.raises(KeyError):
            del ctx.state["b"]
        await ctx.yield_output((dict(ctx.state), len(ctx.state), list(ctx.state), "a" in ctx.state, repr(ctx.state)))

    expected = ({"a": 1, "d": 4}, 2, ["a", "d"], True, "{'a': 1, 'd': 4}")
    assert await state_after(alone(work)) == expected


async def test_key_that_is_not_a_string_is_rejected() -> None:
    wrong: Any = 5
    with pytest.raises(InvalidRun, match="State keys are strings, got 5 from executor 'only'"):
        await alone(lambda message, ctx: ctx.set_state(wrong, "x")).run("x")


async def test_private_state_belongs_to_its_executor_and_is_kept() -> None:
    async def count(message: Any, ctx: Any) -> None:
        ctx.private["count"] = ctx.private.get("count", 0) + 1
        await ctx.yield_output((ctx.executor_id, ctx.private["count"]))
        await ctx.send_message(message)

    first, second = function("one", count), function("two", count)
    storage = InMemoryCheckpointStorage()

    def built() -> Workflow:
        builder = WorkflowBuilder(name="private", start_executor=first, checkpoint_storage=storage)
        return builder.add_edge(first, second).build()

    await built().run("x", thread_id="t")
    assert (await built().run("x", thread_id="t")).get_outputs() == [("one", 2), ("two", 2)]
    latest = await storage.get_latest(thread_id="t")
    assert latest is not None and latest.state == {}


async def test_private_state_of_a_failed_superstep_is_forgotten() -> None:
    async def count(message: str, ctx: Any) -> None:
        ctx.private.setdefault("seen", []).append(message)
        if message == "fail":
            raise ValueError("as asked")
        await ctx.yield_output(list(ctx.private["seen"]))

    workflow = alone(count, checkpoint_storage=InMemoryCheckpointStorage())
    first = await workflow.run("good")
    with pytest.raises(ValueError, match="as asked"):
        await workflow.run("fail")
    await workflow.run(checkpoint_id=first.checkpoint_id)
    assert (await workflow.run("better")).get_outputs() == [["good", "better"]]


async def test_writes_of_a_failed_superstep_are_forgotten() -> None:
    async def fails(message: Any, ctx: Any) -> None:
        raise ValueError("as asked")

    storage = InMemoryCheckpointStorage()
    with pytest.raises(ValueError, match="as asked"):
        await siblings(writes("key", "dirty"), fails, checkpoint_storage=storage).run("x")
    latest = await storage.get_latest(workflow_name="siblings")
    assert latest is not None and latest.state == {}


async def test_deliveries_to_one_executor_see_each_others_writes() -> None:
    async def send_three(message: str, ctx: Any) -> None:
        for letter in "abc":
            await ctx.send_message(letter)

    async def gather(letter: str, ctx: Any) -> None:
        ctx.set_state("word", ctx.get_state("word", "") + letter)

    start, end = function("start", send_three), function("end", gather)
    storage = InMemoryCheckpointStorage()
    await (
        WorkflowBuilder(name="w", start_executor=start, checkpoint_storage=storage)
        .add_edge(start, end)
        .build()
        .run("x")
    )
    latest = await storage.get_latest(workflow_name="w")
    assert latest is not None and latest.state == {"word": "abc"}


# ---------------------------------------------------------------- a list of dicts that grows


def rename_key(items: list[Any]) -> None:
    items[3]["first"] = items[3].pop("id")


def change_tags(items: list[Any]) -> None:
    if type(items[4]["tags"]) is list:
        items[4]["tags"].append("b")
    else:
        items[4]["tags"] = "b"


EDITS: dict[str, Callable[[list[Any]], object]] = {
    "nothing": lambda items: None,
    "appended": lambda items: items.append({"id": 99, "text": "new"}),
    "appended nested": lambda items: items.append({"id": 99, "parts": ["new"]}),
    "appended one of them": lambda items: items.append(items[2]),
    "appended twice": lambda items: items.extend([{"id": 99}] * 2),
    "appended with one of them inside": lambda items: items.append({"id": 99, "about": items[2]}),
    "appended other": lambda items: items.append("new"),
    "value changed": lambda items: items[3].update(text="changed"),
    "value of an equal type": lambda items: items[1].update(id=True),
    "nested value changed": change_tags,
    "key added": lambda items: items[3].update(more=1),
    "key renamed": rename_key,
    "keys in another order": lambda items: items[3].update(id=items[3].pop("id")),
    "moved between items": lambda items: items[5].update(x=items[4].pop("tags")),
    "removed": lambda items: items.pop(3),
    "reordered": lambda items: items.reverse(),
    "emptied": lambda items: items.clear(),
}


@pytest.mark.parametrize("tags", ["a", ("a", "b"), [], ["a"]], ids=repr)
@pytest.mark.parametrize("edit", EDITS)
def test_a_list_of_dicts_is_written_as_edited(edit: str, tags: Any) -> None:
    committed: list[Any] = [{"id": number, "text": f"turn {number}"} for number in range(30)]
    committed[4]["tags"] = tags
    before = isolate(committed)
    state = LaneState({"items": committed}, {})
    value = [*state.get("items")]
    EDITS[edit](value)
    written = state.isolate("items", value)
    assert same_structure(written, value) and list(map(list, written)) == list(map(list, value))
    assert not {id(item) for item in written if type(item) is dict} & {id(item) for item in value}
    same = [[left is right for left in written] for right in written]
    assert same == [[left is right for left in value] for right in value]
    assert same_structure(committed, before)


def test_dicts_that_were_read_and_not_changed_are_those_of_the_state() -> None:
    committed = [{"id": number} for number in range(30)]
    state = LaneState({"items": committed}, {})
    written = state.isolate("items", [*state.get("items"), {"id": 30}])
    assert all(item is own for item, own in zip(committed, written, strict=False)) and len(written) == 31


@pytest.mark.parametrize("codec", [None, JsonCodec()], ids=["no codec", "JSON"])
@pytest.mark.parametrize("edit", EDITS)
def test_list_of_dicts_that_was_edited_in_place_is_a_change(edit: str, codec: JsonCodec | None) -> None:
    committed: list[Any] = [{"id": number, "text": f"turn {number}"} for number in range(30)]
    committed[4]["tags"] = "a"
    state = LaneState({"items": committed}, {})
    value = state.get("items")
    EDITS[edit](value)
    expected = [] if edit == "nothing" else [("items", value)]
    assert state.changed_in_place(codec) == expected


def test_old_copies_put_into_an_emptied_list_are_a_change() -> None:
    committed = [{"id": number} for number in range(30)]
    state = LaneState({"items": committed}, {})
    old = state.get("items")
    state.write("items", state.isolate("items", []))
    new = state.get("items")
    new.extend(old)
    assert state.changed_in_place(None) == [("items", new)]


def test_the_known_dicts_of_the_state_are_those_of_its_last_write() -> None:
    known: dict[str, Any] = {}
    committed = [{"id": number} for number in range(30)]
    state = LaneState({"items": committed}, {}, known)
    state.write("items", state.isolate("items", [*state.get("items"), {"id": 30}]))
    longer = state.get("items")
    assert known["items"].items == longer and known["items"].values == [*range(31)]
    later = LaneState({"items": known["items"].items}, {}, known)
    assert later.get("items") == longer and later.get("items")[0] is not longer[0]
    later.write("items", DELETED)
    assert known == {}
