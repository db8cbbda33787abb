"""A turn as it happens: chunks in the form that clients of AgentFlow read, each committed one with its cursor."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator
from typing import Any

from perdure.agents.conversation.response import AgentResponseUpdate
from perdure.events import WorkflowEvent
from perdure.server.agentflow.invoking import InvokedTurn
from perdure.server.agentflow.messages import message_to_client, messages_to_client
from perdure.server.runs.hub import Follower, StreamedEvent
from perdure.server.threads.to_json import plain_event, plain_request

LOOK_SECONDS = 1.0
"""How often a stream looks whether its run has ended, should it hear nothing."""

Chunk = tuple[int | None, dict[str, Any]]
"""What is streamed, and the event of the log that it stands for, if any."""


async def chunks(turn: InvokedTurn, follower: Follower) -> AsyncIterator[Chunk | None]:
    """Until the run has ended; None now and then, while nothing happens. The turn has begun."""
    served = turn.served
    if served is None or served.task is None:
        raise RuntimeError("This turn has not begun.")
    yield None, chunk(turn, "updates", data={"status": "started", "cursor": follower.cursor})
    is_told = False
    while not is_told:
        has_ended = served.task.done()
        told = await follower.next(0 if has_ended else LOOK_SECONDS)
        for one in told:
            if one.event.run_id == served.run_id:
                for each in of_event(turn, one):
                    yield each
                is_told = is_told or _is_end(one)
        if has_ended and not told:  # its end could not be written: what there is was told
            break
        if not told:
            yield None
    if turn.body.response_granularity == "full":
        yield None, chunk(turn, "state", state=await turn.state())
    await turn.served.ended()  # type: ignore[union-attr]  # checked above
    yield None, chunk(turn, "updates", data={**turn.meta(), "status": "done", "cursor": follower.cursor})


def _is_end(told: StreamedEvent) -> bool:
    state = told.event.state
    return told.event.type == "status" and state is not None and not state.value.startswith(("IN_PROGRESS", "STARTED"))


def of_event(turn: InvokedTurn, told: StreamedEvent) -> list[Chunk]:
    """What an event says to a client of AgentFlow."""
    event, seq = told.event, told.seq
    if event.type == "data" and isinstance(event.data, AgentResponseUpdate):
        return [(None, chunk(turn, "message", message=_delta(event.data)))]
    if event.type == "output":
        return [(seq, chunk(turn, "message", message=one)) for one in messages_to_client(turn.said(event))]
    if event.type == "failed":
        shown = plain_event(event, told.space, hides_errors=told.hides)
        return [(seq, chunk(turn, "error", data=shown.get("details")))]
    if event.type == "request_info":
        asked = {"status": "interrupted", "request": plain_request(event, told.space)}
        return [(seq, chunk(turn, "updates", data=asked))]
    return [(seq, chunk(turn, "updates", data=_shown(event, told)))]


def _shown(event: WorkflowEvent, told: StreamedEvent) -> dict[str, Any]:
    shown = plain_event(event, told.space, hides_errors=told.hides)
    return {key: value for key, value in shown.items() if key not in ("thread_id", "run_id", "timestamp", "seq")}


def _delta(update: AgentResponseUpdate) -> dict[str, Any]:
    from perdure.agents.conversation.message import Message

    said = Message(update.role or "assistant", update.contents, update.author_name, update.message_id)
    return {**message_to_client(said, ""), "message_id": update.message_id, "delta": True}


def chunk(
    turn: InvokedTurn,
    event: str,
    *,
    message: dict[str, Any] | None = None,
    state: dict[str, Any] | None = None,
    data: Any = None,
) -> dict[str, Any]:
    return {
        "event": event,
        "message": message,
        "state": state,
        "data": data,
        "thread_id": turn.thread_id,
        "run_id": None if turn.served is None else turn.served.run_id,
        "metadata": {},
        "timestamp": time.time(),
    }
