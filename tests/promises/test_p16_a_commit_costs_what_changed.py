"""Promise 16: what a commit writes grows with what changed, not with what is there."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import pytest
from tests.promises.processes import Place
from tests.promises.stages import Does, alone

from perdure import Executor, InMemoryCheckpointStorage, Workflow, WorkflowBuilder, WorkflowContext, handler
from perdure.checkpoints.storage import StoreCheckpointStorage
from perdure.records import Commit

KB = 1024


def texts(count: int, size: int = KB, seed: int = 1) -> list[str]:
    """All different, with nothing that could be shared by accident."""
    chance = random.Random(seed)
    return [chance.randbytes(size // 2).hex() for _ in range(count)]


# ---------------------------------------------------------------- 500 turns


class Listener(Executor):
    """Appends each message, in a conversation of its own or in shared state."""

    def __init__(self, id: str, where: str) -> None:
        super().__init__(id)
        self.where = where
        self.conversation: dict[str, Any] = {"title": "talk", "messages": []}

    @handler
    async def receive(self, message: str, ctx: WorkflowContext[Any, Any]) -> None:
        if self.where == "state":
            ctx.set_state("log", [*ctx.get_state("log", []), message])
        else:
            self.conversation["messages"].append(message)

    async def on_checkpoint_save(self) -> dict[str, Any]:
        return {"count": len(self.conversation["messages"]), "conversation": self.conversation}

    async def on_checkpoint_restore(self, state: dict[str, Any]) -> None:
        self.conversation = state["conversation"]


def listening(where: str, storage: Any) -> Workflow:
    return alone(Listener("listener", where), storage)


MOST = {"postgres": 3.5}
"""Times the payload. Pages of tables and indexes are filled by halves, and what each commit changes stays until a
vacuum, which does not come."""


@pytest.mark.parametrize("where", ["state", "executor"])
async def test_500_turns_of_1_kb_leave_at_most_three_times_their_payload(apart: Place, where: str) -> None:
    messages, most = texts(500), MOST.get(apart.kind, 3.0)
    payload = 500 * KB
    async with apart.storage() as storage:
        workflow = listening(where, storage)
        for message in messages:
            await workflow.run(message, thread_id="t")
        opened = apart.on_disk()
    closed = apart.on_disk()
    print(f"{apart.kind}: {closed / payload:.2f} times the payload")
    assert payload < closed <= most * payload, f"{closed / payload:.2f} times the payload"
    assert opened <= most * payload + 1.5 * 1024 * KB, f"{opened / payload:.2f} times the payload while it is open"
    async with apart.storage() as storage:
        head = await storage.get_latest(thread_id="t")
    assert head is not None
    kept = head.state["log"] if where == "state" else head.executors["listener"].saved["conversation"]["messages"]
    assert kept == messages


# ---------------------------------------------------------------- one commit


Change = Callable[[Any], object]


class Sizes:
    """Bytes of each commit that a storage is handed."""

    def __init__(self, storage: StoreCheckpointStorage) -> None:
        self.all: list[int] = []
        write = storage.store.commit

        async def measured(commit: Commit) -> None:
            await write(commit)
            events = b"" if commit.events is None else commit.events.body
            chunks = sum(len(digest) + len(chunk) for digest, chunk in commit.chunks.items())
            self.all.append(len(commit.root or b"") + chunks + len(events) + sum(map(len, commit.dropped)))

        storage.store.commit = measured  # type: ignore[method-assign]  # a tap on the real method


class ValueHolder(Executor):
    """Keeps a value deep inside of shared state, or of what its hook saves, and changes it as each message requires."""

    def __init__(self, id: str, where: str, value: Any, changes: dict[str, Change]) -> None:
        super().__init__(id)
        self.where = where
        self.value = value
        self.changes = changes
        self.kept: dict[str, Any] = {}

    @handler
    async def change(self, name: str, ctx: WorkflowContext[Any, Any]) -> None:
        kept = ctx.get_state("kept", {}) if self.where == "state" else self.kept
        if name in self.changes:
            self.changes[name](kept["deep"][0])
        else:
            kept = {"deep": [{"it": self.value}]}
        if self.where == "state":
            ctx.set_state("kept", kept)
        else:
            self.kept = kept

    async def on_checkpoint_save(self) -> dict[str, Any]:
        return self.kept

    async def on_checkpoint_restore(self, state: dict[str, Any]) -> None:
        self.kept = state


async def sizes_of(
    storage: StoreCheckpointStorage, where: str, value: Any, changes: dict[str, Change]
) -> dict[str, int]:
    """Bytes of the commit that each change takes, one after the other."""
    sizes, results = Sizes(storage), {}
    workflow = alone(ValueHolder("keeper", where, value, changes), storage)
    for name in ["plant", *changes]:
        sizes.all.clear()
        await workflow.run(name, thread_id="t")
        results[name] = sizes.all[1]  # after the one that records the message
    return results


NEW = texts(1, seed=2)[0]

IN_A_LIST: dict[str, Change] = {
    "nothing": lambda kept: None,
    "append": lambda kept: kept["it"].append(NEW),
    "insert first": lambda kept: kept["it"].insert(0, NEW[::-1]),
    "insert in the middle": lambda kept: kept["it"].insert(300, NEW[1:]),
    "remove first": lambda kept: kept["it"].pop(0),
    "remove in the middle": lambda kept: kept["it"].pop(300),
    "remove last": lambda kept: kept["it"].pop(),
    "replace one": lambda kept: kept["it"].__setitem__(300, NEW[2:]),
    "swap two": lambda kept: kept["it"].__setitem__(slice(10, 12), kept["it"][11:9:-1]),
    "something beside it": lambda kept: kept.update(beside=NEW[3:]),
    "move it": lambda kept: kept.update(moved=kept.pop("it")),
    "copy it": lambda kept: kept.update(copied=list(kept["moved"])),
    "drop the copy": lambda kept: kept.pop("copied"),
}


async def test_a_change_in_a_list_costs_the_change_whatever_store_it_goes_to(storage: StoreCheckpointStorage) -> None:
    check_list(await sizes_of(storage, "state", texts(600), IN_A_LIST))


async def test_a_change_in_a_list_of_an_executor_costs_the_change() -> None:
    check_list(await sizes_of(InMemoryCheckpointStorage(), "executor", texts(600), IN_A_LIST))


def check_list(sizes: dict[str, int]) -> None:
    assert sizes.pop("plant") > 600 * KB
    assert {name: size for name, size in sizes.items() if size > 4 * KB} == {}
    assert {name: size for name, size in sizes.items() if name not in CHANGES_ITEMS and size > KB} == {}


CHANGES_ITEMS = set(IN_A_LIST) - {"nothing", "move it", "copy it", "drop the copy"}

LONG = "".join(texts(1000))

IN_A_TEXT: dict[str, Change] = {
    "append": lambda kept: kept.update(it=kept["it"] + NEW),
    "insert first": lambda kept: kept.update(it=NEW[1:] + kept["it"]),
    "insert in the middle": lambda kept: kept.update(it=kept["it"][:300_000] + NEW[2:] + kept["it"][300_000:]),
    "remove from the middle": lambda kept: kept.update(it=kept["it"][:500_000] + kept["it"][501_000:]),
    "in another language": lambda kept: kept.update(it=kept["it"][:700_000] + "ä😀" + kept["it"][700_000:]),
}


async def test_a_change_in_a_long_text_costs_a_part_of_it() -> None:
    storage = InMemoryCheckpointStorage()
    sizes = await sizes_of(storage, "state", LONG, IN_A_TEXT)
    assert sizes.pop("plant") > len(LONG)
    assert {name: size for name, size in sizes.items() if size > 12 * KB} == {}


IN_A_DICT: dict[str, Change] = {
    "add": lambda kept: kept["it"].update(new=NEW),
    "change one": lambda kept: kept["it"].update(key300=NEW[1:]),
    "change the first": lambda kept: kept["it"].update(key0=NEW[2:]),
    "remove one": lambda kept: kept["it"].pop("key301"),
    "order": lambda kept: kept["it"].update(key302=kept["it"].pop("key302")),
}


async def test_a_change_in_a_dict_costs_the_change() -> None:
    storage = InMemoryCheckpointStorage()
    value = {f"key{number}": text for number, text in enumerate(texts(600))}
    sizes = await sizes_of(storage, "state", value, IN_A_DICT)
    assert sizes.pop("plant") > 600 * KB
    assert {name: size for name, size in sizes.items() if size > 4 * KB} == {}


async def test_dropping_or_replacing_a_value_costs_the_new_value_and_names() -> None:
    """So pruning later knows, without a payload, which chunks are unused."""
    storage = InMemoryCheckpointStorage()
    other = texts(100, seed=3)
    changes: dict[str, Change] = {
        "replace": lambda kept: kept.update(it=other),
        "drop": lambda kept: kept.pop("it"),
        "put back": lambda kept: kept.update(it=list(other)),
    }
    sizes = await sizes_of(storage, "state", texts(600), changes)
    assert sizes["replace"] <= 1.2 * 100 * KB + 600 * 40
    assert sizes["drop"] <= 100 * 50


async def test_a_large_message_to_many_is_stored_once() -> None:
    storage = InMemoryCheckpointStorage()
    sizes = Sizes(storage)
    payload = texts(100)

    async def send(message: Any, ctx: WorkflowContext[Any, Any]) -> None:
        ctx.set_state("sent", payload)
        await ctx.send_message(payload)
        await ctx.yield_output(payload)

    async def keep(message: Any, ctx: WorkflowContext[Any, Any]) -> None:
        await ctx.yield_output(message)

    many = [Does(f"keep{number}", keep) for number in range(20)]
    start = Does("send", send)
    builder = WorkflowBuilder(name="many", start_executor=start, checkpoint_storage=storage)
    result = await builder.add_fan_out_edges(start, many).build().run("x", thread_id="t")
    assert result.get_outputs() == [payload] * 21
    assert sum(sizes.all) <= 1.3 * 100 * KB
