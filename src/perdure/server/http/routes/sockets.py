"""The socket of AgentFlow's clients: one frame begins a turn, fresh or resumed; chunks come back."""

from __future__ import annotations

import asyncio
from typing import Any, Literal

import msgspec
from litestar import WebSocket, websocket
from litestar.exceptions import WebSocketDisconnect
from msgspec import UNSET, UnsetType

from perdure.errors import PerdureError
from perdure.log import get_logger
from perdure.server.agentflow.invoking import InvokeBody, InvokedTurn
from perdure.server.agentflow.streaming import chunk, chunks
from perdure.server.http.request_context import Visit, visit_of
from perdure.server.http.routes.graph import turn_follower, unheard
from perdure.server.problems import HttpProblem, problem_of
from perdure.server.threads.threads import Threads

logger = get_logger("server")

NORMAL, REFUSED, FAILED, LATER = 1000, 1008, 1011, 1013


class FrameBody(InvokeBody, frozen=True):
    """What a client sends: a turn."""

    invoke_type: Literal["fresh", "resume"] = "fresh"
    tool_result: Any | UnsetType = UNSET


@websocket("/v1/graph/ws", opt={"scope": "graph:stream", "agentflow": True})
async def graph_socket(socket: WebSocket[Any, Any, Any]) -> None:
    visit = visit_of(socket.scope)
    offered = socket.headers.get("sec-websocket-protocol", "")
    protocol = next((one.strip() for one in offered.split(",") if one.strip() == "agentflow-bearer"), None)
    try:
        await visit.must("graph:stream", None)
        await socket.accept(subprotocols=protocol)
        with visit.service.stream_slot():
            while (text := await _received(socket, visit)) is not None:
                await _turn(socket, visit, text)
        await socket.close(LATER, "The server stops. Connect again.")
    except (WebSocketDisconnect, OSError):
        return  # the client went away; the run goes on
    except HttpProblem as problem:
        await socket.close(LATER if problem.status in (429, 503) else REFUSED, problem.code)
    except Exception:  # what it was is nothing for the client
        logger.exception("request %s over a socket failed", visit.request_id)
        await socket.close(FAILED, "internal_error")


async def _received(socket: WebSocket[Any, Any, Any], visit: Visit) -> Any:
    """The next frame; None if the server stops before there is one."""
    receiving = asyncio.ensure_future(socket.receive_data(mode="text"))
    stopping = asyncio.ensure_future(visit.service.stopping.wait())
    try:
        await asyncio.wait([receiving, stopping], return_when=asyncio.FIRST_COMPLETED)
        return receiving.result() if receiving.done() else None
    finally:
        stopping.cancel()
        receiving.cancel()


async def _turn(socket: WebSocket[Any, Any, Any], visit: Visit, text: Any) -> None:
    """A frame that makes no sense is answered with an error, and the socket stays open."""
    try:
        await visit.service.count_turn(visit.limit_key)
        turn = InvokedTurn(Threads(visit.service, visit.space), _body(text))
        await visit.must("graph:stream", turn.thread_id)
        async with await turn_follower(turn) as follower:
            await turn.begin(unheard)
            visit.service.stop_hooks.add(follower.wake)
            try:
                async for one in chunks(turn, follower):
                    if one is not None:
                        await _send(socket, one[1])
                    if visit.service.stopping.is_set():
                        closing = {"status": "closing", "cursor": follower.cursor}
                        await _send(socket, chunk(turn, "updates", data=closing))
                        return
            finally:
                visit.service.stop_hooks.discard(follower.wake)
    except PerdureError as error:
        problem = problem_of(error)
        if problem is None:
            logger.exception("a turn over a socket failed")
            problem = HttpProblem(500, "internal_error", "Something went wrong. The log of the server says more.")
        told = {"code": problem.code, "message": visit.space.said(problem.message), "status": problem.status}
        await _send(socket, {"event": "error", "data": told, "message": None, "state": None})


def _body(text: Any) -> InvokeBody:
    """Raises HttpProblem."""
    try:
        body = msgspec.json.decode(text, type=FrameBody)
    except (msgspec.DecodeError, RecursionError) as error:
        raise HttpProblem(422, "invalid_frame", f"A frame is a JSON object of a turn: {error}") from error
    if body.tool_result is not UNSET:
        raise HttpProblem(
            422, "invalid_frame", "tool_result answers calls of tools that clients have; this server has none."
        )
    if (body.invoke_type == "resume") is (body.resume is UNSET):
        raise HttpProblem(422, "invalid_frame", "invoke_type 'resume' goes with resume, and 'fresh' with messages.")
    return body


async def _send(socket: WebSocket[Any, Any, Any], data: Any) -> None:
    await socket.send_data(msgspec.json.encode(data).decode(), mode="text")


ROUTES = [graph_socket]
