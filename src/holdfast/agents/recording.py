"""Agents inside of a workflow: each model request and each tool call is a step of the delivery that they work for.

Outside of a workflow the same calls are just made.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any, Protocol

from holdfast.agents.content import Content
from holdfast.agents.message import Message
from holdfast.agents.response import AgentResponse, AgentResponseUpdate
from holdfast.agents.session import AgentSession
from holdfast.engine.context import DeliveryContext
from holdfast.engine.lane import current_context
from holdfast.graph.policy import RetryPolicy, Seconds, in_seconds


class Listener(Protocol):
    """Whoever watches a response come in."""

    def __call__(self, update: AgentResponseUpdate, *, replayed: bool) -> None:
        """`replayed`: it was told before, and is told again only so that updates join up to the response."""


_listener: ContextVar[Listener | None] = ContextVar("holdfast_listener", default=None)


def is_heard() -> bool:
    """Whether somebody watches, so that streaming is worth it."""
    return _listener.get() is not None


def tell(update: AgentResponseUpdate, *, replayed: bool = False) -> None:
    """Pass on a part of the response. Never kept, so never told to anybody who comes later."""
    listener = _listener.get()
    if listener is not None:
        listener(update, replayed=replayed)


@contextmanager
def heard_by(listener: Listener | None) -> Iterator[None]:
    token = _listener.set(listener)
    try:
        yield
    finally:
        _listener.reset(token)


def working_for() -> DeliveryContext | None:
    """The delivery that is being worked for in this task; None outside of a workflow."""
    return current_context.get()


async def recorded_turn(
    agent: str,
    messages: Sequence[Message],
    session: AgentSession | None,
    turn: Callable[[list[Message]], Awaitable[AgentResponse]],
) -> AgentResponse:
    """A whole turn as one step, with the steps that are made in it: one that was cut short is run again, and takes
    what they recorded."""
    context = working_for()
    if context is None:
        return await turn(list(messages))

    async def take_turn(given: list[Message], standing: Any) -> AgentResponse:
        return await turn(given)

    standing = None if session is None else [session.session_id, session.version]
    response: AgentResponse = await context.step(take_turn, list(messages), standing, name=f"{agent}.turn")
    if response.usage_details:
        context.add_usage(response.usage_details)
    return response


async def recorded(
    work: Callable[..., Awaitable[Any]],
    *arguments: Any,
    name: str,
    key: str | None = None,
    retry: RetryPolicy | int | None = None,
    timeout: Seconds | None = None,
) -> Any:
    """What `work` gives, recorded: not done again once it is. Found by `key`, or by its arguments."""
    context = working_for()
    if context is not None:
        return await context.step(work, *arguments, name=name, key=key, retry=retry, timeout=timeout)
    async with asyncio.timeout(None if timeout is None else in_seconds("timeout", timeout)):
        return await work(*arguments)


async def answered(request: Content, *, key: str) -> Content | None:
    """The answer of somebody outside to a request for approval, maybe weeks later. None outside of a workflow, where
    nobody can be asked."""
    context = working_for()
    if context is None:
        return None
    answer: Content = await context.ask(request, Content, request_id=key)
    return answer


def request_id_for(call_id: str) -> str:
    """Of a call that is to be approved: the same whenever its turn is run again, and in no other thread."""
    context = working_for()
    return call_id if context is None else f"{context.delivery_name}-{call_id}"
