"""The work of stores, the same code for every engine with the names of agent_framework.

Each function takes the module of the engine, so both sides run the same lines. The work counts the stored items
afterwards, because a number of a run that lost items is worthless.
"""

# The classes are made from a module given at run time, which mypy cannot follow:
# mypy: disable-error-code="misc, valid-type, attr-defined, untyped-decorator"

import base64
import json
import os
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import msgspec
import postgres_place

NAME = "bench"
THREAD = "bench-thread"
ENDLESS = 1_000_000_000
ITEM_BYTES = 1024

Stamps = list[float]


@dataclass(frozen=True)
class Message:
    role: str
    text: str


class Record(msgspec.Struct, frozen=True):
    role: str
    text: str


def text(length: int) -> str:
    """Random characters without repetition."""
    return base64.b64encode(os.urandom(length)).decode()[:length]


def _entry(**more: Any) -> dict[str, Any]:
    """A dict that is 1 KB as JSON."""
    entry = {"role": "user", "text": "", **more}
    entry["text"] = text(ITEM_BYTES - len(json.dumps(entry, separators=(",", ":"))))
    return entry


ITEMS: dict[str, tuple[type, Callable[[], Any]]] = {
    "str": (str, lambda: text(ITEM_BYTES)),
    "message": (Message, lambda: Message(**_entry())),
    "record": (Record, lambda: Record(**_entry())),
    "dict": (dict, lambda: _entry(id=text(12), tokens=250)),
}
"""Each is 1 KB as JSON, without the name of its type."""


@dataclass(frozen=True)
class Case:
    """The place of the items, and their type."""

    name: str
    title: str
    item: str
    place: str = "state"
    """`state`, `executor` or `reducer`."""
    one_run: bool = False
    cannot_change: bool = True
    peers: bool = False
    """Whether the peers run it too."""


CASES = (
    Case("state-str", "list of strings in the state", "str", peers=True),
    Case("state-message", "list of frozen dataclass messages in the state", "message"),
    Case("state-dict", "list of dicts in the state", "dict", cannot_change=False),
    Case("reducer-dict", "list of dicts behind the `append` reducer", "dict", "reducer"),
    Case("executor-str", "list of strings in an executor's saved dict", "str", "executor", peers=True),
    Case("executor-record", "list of frozen Structs in an executor's saved dict", "record", "executor"),
    Case("executor-dict", "list of dicts in an executor's saved dict", "dict", "executor", cannot_change=False),
    Case("run-state-str", "one run, strings in the state", "str", one_run=True, peers=True),
    Case("run-executor-str", "one run, strings in an executor's saved dict", "str", "executor", one_run=True),
)
BY_NAME = {case.name: case for case in CASES}


# ---------------------------------------------------------------- storages


def open_storage(engine: Any, subject: str, folder: Path) -> Any:
    """Open the storage of this name, in a folder of its own."""
    openers: dict[str, Callable[[], Any]] = {
        "memory": engine.InMemoryCheckpointStorage,
        "sqlite-full": lambda: engine.SqliteCheckpointStorage(folder / "store.db"),
        "sqlite-normal": lambda: engine.SqliteCheckpointStorage(folder / "store.db", synchronous="NORMAL"),
        "file": lambda: engine.FileCheckpointStorage(folder),
        "file-nosync": lambda: engine.FileCheckpointStorage(folder, fsync=False),
        "peer-file": lambda: engine.FileCheckpointStorage(folder),
    }
    if subject.startswith("postgres"):
        return postgres_place.open_storage(engine, subject, folder)
    folder.mkdir(parents=True, exist_ok=True)
    return openers[subject]()


async def close_storage(storage: Any) -> None:
    if hasattr(storage, "close"):
        await storage.close()


def bytes_in(folder: Path) -> int:
    """The size of all files of a folder."""
    return sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())


# ---------------------------------------------------------------- turns


@cache
def _state_turns(engine: Any, item: str) -> Any:
    item_type, Context = ITEMS[item][0], engine.WorkflowContext

    class StateAppender(engine.Executor):
        @engine.handler
        async def append(self, message: item_type, ctx: Context) -> None:
            ctx.set_state("items", [*ctx.get_state("items", []), message])

    return StateAppender


@cache
def _reducer_turns(engine: Any, item: str) -> Any:
    item_type, Context = ITEMS[item][0], engine.WorkflowContext

    class Contributor(engine.Executor):
        @engine.handler
        async def append(self, message: item_type, ctx: Context) -> None:
            ctx.set_state("items", message)

    return Contributor


class _Keeps:
    """The checkpoint hooks of an executor that saves a list."""

    items: list[Any]

    async def on_checkpoint_save(self) -> dict[str, Any]:
        return {"items": self.items}

    async def on_checkpoint_restore(self, state: dict[str, Any]) -> None:
        self.items = state["items"]


@cache
def _executor_turns(engine: Any, item: str) -> Any:
    item_type, Context = ITEMS[item][0], engine.WorkflowContext

    class KeepingAppender(_Keeps, engine.Executor):
        @engine.handler
        async def append(self, message: item_type, ctx: Context) -> None:
            self.items.append(message)

    return KeepingAppender


_TURNS = {"state": _state_turns, "reducer": _reducer_turns, "executor": _executor_turns}


def turns_workflow(engine: Any, case: Case, storage: Any) -> Any:
    """A workflow of one executor that appends each message to a list."""
    appender = _TURNS[case.place](engine, case.item)(id="appender")
    if case.place == "executor":
        appender.items = []
    reducers = {"state": {"items": engine.append}} if case.place == "reducer" else {}
    return engine.WorkflowBuilder(name=NAME, start_executor=appender, checkpoint_storage=storage, **reducers).build()


# ---------------------------------------------------------------- one long run


@cache
def _loops(engine: Any, item: str, place: str) -> Any:
    make_item = ITEMS[item][1]
    Context = engine.WorkflowContext[int, int]

    class StateLoop(engine.Executor):
        @engine.handler
        async def loop(self, message: int, ctx: Context) -> None:
            self.stamps.append(time.perf_counter())
            ctx.set_state("items", [*ctx.get_state("items", []), make_item()])
            await count_down(message, ctx)

    class KeepingLoop(_Keeps, engine.Executor):
        @engine.handler
        async def loop(self, message: int, ctx: Context) -> None:
            self.stamps.append(time.perf_counter())
            self.items.append(make_item())
            await count_down(message, ctx)

    return StateLoop if place == "state" else KeepingLoop


async def count_down(message: int, ctx: Any) -> None:
    """Send the next lower number to the same executor, or yield 0 at the end."""
    if message > 1:
        await ctx.send_message(message - 1)
    else:
        await ctx.yield_output(0)


def loop_workflow(engine: Any, case: Case, storage: Any, stamps: Stamps) -> Any:
    """A workflow of one executor that adds an item in each superstep and sends itself the next lower number."""
    looper = _loops(engine, case.item, case.place)(id="looper")
    looper.stamps = stamps
    if case.place == "executor":
        looper.items = []
    return self_loop(engine, looper, storage)


def self_loop(engine: Any, executor: Any, storage: Any) -> Any:
    builder = engine.WorkflowBuilder(
        max_iterations=ENDLESS, name=NAME, start_executor=executor, checkpoint_storage=storage
    )
    return builder.add_edge(executor, executor).build()


@cache
def _small_class(engine: Any) -> Any:
    Context = engine.WorkflowContext[int, int]

    class Small(engine.Executor):
        @engine.handler
        async def count(self, message: int, ctx: Context) -> None:
            ctx.set_state("count", message)
            await count_down(message, ctx)

    return Small


def small_loop(engine: Any, storage: Any) -> Any:
    """A countdown with one number in the state."""
    return self_loop(engine, _small_class(engine)(id="counter"), storage)


# ---------------------------------------------------------------- checks


async def kept_items(case: Case, storage: Any) -> int:
    """The number of items in the newest stored checkpoint."""
    checkpoint = await storage.get_latest(workflow_name=NAME)
    if case.place != "executor":
        return len(checkpoint.state["items"])
    if hasattr(checkpoint, "executors"):
        (memory,) = checkpoint.executors.values()
        return len(memory.saved["items"])
    (saved,) = checkpoint.state["_executor_state"].values()
    return len(saved["items"])


def expect(what: str, got: int, wanted: int) -> None:
    if got != wanted:
        raise AssertionError(f"expected {wanted} {what}, got {got}: the work was not done")
