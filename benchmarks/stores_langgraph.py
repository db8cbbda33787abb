"""The same work for langgraph: graphs of nodes over a state, with an `add` reducer for the list."""

import operator
import time
from collections.abc import Awaitable, Callable
from contextlib import AbstractAsyncContextManager
from importlib import import_module
from pathlib import Path
from typing import Annotated, Any, TypedDict

import stores_work
from stores_work import ENDLESS, THREAD, Case, Stamps

Graph = Any


class _Items(TypedDict):
    message: str
    items: Annotated[list[str], operator.add]


class _Loop(TypedDict):
    count: int
    items: Annotated[list[str], operator.add]


class _Count(TypedDict):
    count: int


def open_sqlite_saver(folder: Path) -> AbstractAsyncContextManager[Any]:
    """Open the saver with its own settings: WAL, and SQLite's default of `synchronous`, which is FULL."""
    folder.mkdir(parents=True, exist_ok=True)
    saver = import_module("langgraph.checkpoint.sqlite.aio").AsyncSqliteSaver
    opened: AbstractAsyncContextManager[Any] = saver.from_conn_string(str(folder / "store.db"))
    return opened


async def take_turns(case: Case, saver: Any, turns: int) -> Stamps:
    """The time of each turn."""
    make_item = stores_work.ITEMS[case.item][1]

    async def append(state: _Items) -> dict[str, Any]:
        return {"items": [state["message"]]}

    graph = _compiled(_Items, append, saver, again=None)
    spent = []
    for _ in range(turns):
        message = make_item()
        started = time.perf_counter()
        await graph.ainvoke({"message": message}, _config(THREAD), durability="sync")
        spent.append(time.perf_counter() - started)
    return spent


async def run_long(case: Case, saver: Any, supersteps: int) -> Stamps:
    """The start of each superstep, and the end of the run."""
    make_item = stores_work.ITEMS[case.item][1]
    stamps: Stamps = []

    async def append(state: _Loop) -> dict[str, Any]:
        stamps.append(time.perf_counter())
        return {"items": [make_item()], "count": state["count"] - 1}

    graph = _compiled(_Loop, append, saver, again=_is_counting)
    await graph.ainvoke({"count": supersteps}, _config(THREAD), durability="sync")
    return [*stamps, time.perf_counter()]


async def run_large(saver: Any, supersteps: int) -> None:
    """Store 1 MB in the first superstep, and then run a countdown beside it."""
    make_item = stores_work.ITEMS["str"][1]

    async def count_down(state: _Loop) -> dict[str, Any]:
        new = [] if state.get("items") else [make_item() for _ in range(1024 * 1024 // stores_work.ITEM_BYTES)]
        return {"count": state["count"] - 1, **({"items": new} if new else {})}

    graph = _compiled(_Loop, count_down, saver, again=_is_counting)
    await graph.ainvoke({"count": supersteps}, _config(THREAD), durability="sync")


async def kept_items(saver: Any) -> int:
    saved = await saver.aget_tuple(_config(THREAD))
    return len(saved.checkpoint["channel_values"]["items"])


def counting(saver: Any, stamps: Stamps | None = None) -> Callable[[int, str], Awaitable[None]]:
    """A function that runs a countdown with one number in the state. `stamps` receives the start of each superstep."""

    async def count(state: _Count) -> dict[str, Any]:
        if stamps is not None:
            stamps.append(time.perf_counter())
        return {"count": state["count"] - 1}

    graph = _compiled(_Count, count, saver, again=_is_counting)

    async def run(supersteps: int, thread_id: str) -> None:
        result = await graph.ainvoke({"count": supersteps}, _config(thread_id), durability="sync")
        stores_work.expect("as the last count", result["count"], 0)

    return run


def _is_counting(state: Any) -> bool:
    return bool(state["count"])


def _config(thread_id: str) -> dict[str, Any]:
    return {"configurable": {"thread_id": thread_id}, "recursion_limit": ENDLESS}


def _compiled(state: Any, node: Any, saver: Any, again: Callable[[Any], bool] | None) -> Graph:
    """A graph of one node, which runs as long as `again` returns True."""
    graphs = import_module("langgraph.graph")
    graph = graphs.StateGraph(state)
    graph.add_node("node", node)
    graph.add_edge(graphs.START, "node")
    if again is None:
        graph.add_edge("node", graphs.END)
    else:
        graph.add_conditional_edges("node", again, {True: "node", False: graphs.END})
    return graph.compile(checkpointer=saver)
