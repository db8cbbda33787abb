"""How often the server asks its store: for a turn over HTTP, and for what is shown of a thread."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from contextvars import ContextVar
from pathlib import Path
from typing import Any

import httpx
import pytest

from perdure.server import ServerApp, create_app

FLOW = """
from perdure import WorkflowBuilder, WorkflowContext, executor

@executor
async def echo(message: str, ctx: WorkflowContext[str, str]) -> None:
    await ctx.yield_output(message)

app = WorkflowBuilder(name="echo", start_executor=echo).build()
"""
TURN = {"messages": [{"role": "user", "content": "x"}], "config": {"thread_id": "t"}}
ASKED = {
    "a turn of a new thread": ["open", "commit", "commit", "release"],
    "another turn of it": ["open", "commit", "commit", "release"],
    "the thread": ["threads", "find_checkpoint"],
    "the thread again": ["threads"],
    "its messages again": ["threads"],
    "its state again": ["threads"],
}
"""Exactly these, in this order: of a workflow with one superstep a commit for the input and one for the superstep."""


asking: ContextVar[list[str] | None] = ContextVar("asking", default=None)
"""What a request asked for, and the run that it started: not what the server does meanwhile by itself."""


def count_calls(store: Any) -> None:
    """Count the calls of the store from now on, while `asking` is set."""

    def counting(name: str, method: Callable[..., Any]) -> Callable[..., Any]:
        async def count(*arguments: Any, **named: Any) -> Any:
            asked = asking.get()
            if asked is not None:
                asked.append(name)
            return await method(*arguments, **named)

        return count

    for name, method in inspect.getmembers(store, inspect.iscoroutinefunction):
        if not name.startswith("_"):
            setattr(store, name, counting(name, method))


@pytest.fixture
def app(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> ServerApp:
    (tmp_path / "echo_flow.py").write_text(FLOW, encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    return create_app({"agent": "echo_flow:app", "checkpointer": "sqlite:///threads.db"})


async def test_a_turn_over_http_asks_the_store_no_more_often_than_a_turn_without(app: ServerApp) -> None:
    count_calls(app.service.storage.store)
    counts = {}
    async with httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://localhost") as client:
        await client.post(
            "/v1/graph/invoke", json={**TURN, "config": {"thread_id": "first"}}
        )  # looks at the store, once
        for name, method, path in (
            ("a turn of a new thread", "POST", "/v1/graph/invoke"),
            ("another turn of it", "POST", "/v1/graph/invoke"),
            ("the thread", "GET", "/v1/threads/t"),
            ("the thread again", "GET", "/v1/threads/t"),
            ("its messages", "GET", "/v1/threads/t/messages"),
            ("its messages again", "GET", "/v1/threads/t/messages"),
            ("its state", "GET", "/v1/threads/t/state"),
            ("its state again", "GET", "/v1/threads/t/state"),
        ):
            counts[name] = asked = list[str]()
            before = asking.set(asked)
            answer = await client.request(method, path, json=TURN if method == "POST" else None)
            asking.reset(before)
            assert answer.status_code == 200, answer.text
    await app.aclose()
    assert {name: counts[name] for name in ASKED} == ASKED
