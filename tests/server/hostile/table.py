"""The calls of each route by a user who does not own the thread. A route without an entry fails the tests."""

from __future__ import annotations

import json
from typing import Any, Literal, NamedTuple

from perdure.server import ServerApp

Outcome = Literal["public", "general", "list", "missing", "own"]
"""The answer to another user: no content of any user (`public`, `general`), a list without the thread (`list`), 404
(`missing`), or a thread of their own under the same id (`own`)."""

AT = "/v1/threads/{thread_id:str}"
CHAT = {"messages": [{"role": "user", "content": "of bob"}], "config": {"thread_id": "{thread}"}}


class Call(NamedTuple):
    outcome: Outcome
    scope: str
    body: Any = None
    query: str = ""
    content: str | None = None
    """The file of a thread, which the call sends instead of JSON."""


def missing(scope: str, body: Any = None, query: str = "") -> Call:
    return Call("missing", scope, body, query)


def thread_calls() -> dict[str, list[Call]]:
    read, write, delete = "checkpointer:read", "checkpointer:write", "checkpointer:delete"
    message = {"messages": [{"role": "user", "content": "x"}]}
    return {
        f"GET {AT}": [missing(read)],
        f"DELETE {AT}": [missing(delete)],
        f"GET {AT}/state": [missing(read)],
        f"PUT {AT}/state": [missing(write, {"state": {"key": 1}})],
        f"DELETE {AT}/state": [missing(delete)],
        f"PATCH {AT}/state": [missing(write, {"update_state": {"key": 1}})],
        f"GET {AT}/messages": [missing(read)],
        f"POST {AT}/messages": [missing(write, message)],
        f"GET {AT}/messages/{{message_id:str}}": [missing(read)],
        f"DELETE {AT}/messages/{{message_id:str}}": [missing(delete)],
        f"POST {AT}/runs": [
            missing("graph:invoke", {}),
            missing("graph:invoke", {"responses": {"{request}": True}}),
            Call("own", "graph:invoke", {"input": "of bob"}, "?wait=10"),
        ],
        f"GET {AT}/runs/{{run_id:str}}": [missing(read)],
        f"POST {AT}/runs/{{run_id:str}}/cancel": [missing("graph:stop")],
        f"GET {AT}/events": [missing(read), missing(read, query="?after=0")],
        f"POST {AT}/requests/{{request_id:str}}/answer": [missing("requests:answer", {"value": True})],
        f"GET {AT}/checkpoints": [missing(read), missing(read, query="?before={checkpoint}")],
        f"GET {AT}/checkpoints/{{checkpoint_id:str}}": [missing(read)],
        f"GET {AT}/checkpoints/{{checkpoint_id:str}}/diff/{{other:str}}": [missing(read)],
        f"POST {AT}/fork": [missing(write, {}), missing(write, {"checkpoint_id": "{checkpoint}", "thread_id": "new"})],
        f"POST {AT}/rewind": [missing(write, {"checkpoint_id": "{checkpoint}"})],
        f"POST {AT}/pin": [missing(write, {}), missing(write, {"checkpoint_id": "{checkpoint}", "is_pinned": False})],
        f"POST {AT}/export": [missing(read)],
        "POST /v1/threads/import": [Call("own", write, None, "?thread_id={thread}", "{file}")],
    }


TABLE: dict[str, list[Call]] = {
    **{
        f"GET {path}": [Call("public", "public")] for path in ("/ping", "/healthz", "/readyz", "/openapi.json", "/docs")
    },
    "GET /metrics": [Call("general", "metrics:read")],
    "GET /v1/graph": [Call("general", "graph:read")],
    "GET /v1/graph/tools": [Call("general", "graph:read")],
    "GET /v1/graph:StateSchema": [Call("general", "graph:read")],
    "GET /v1/workflows": [Call("general", "graph:read")],
    "GET /v1/workflows/{name:str}": [Call("general", "graph:read")],
    "GET /v1/workflows/{name:str}/graph.svg": [Call("general", "graph:read")],
    "POST /v1/graph/invoke": [
        missing("graph:invoke", {"resume": True, "config": {"thread_id": "{thread}"}}),
        Call("own", "graph:invoke", CHAT),
    ],
    "POST /v1/graph/stream": [
        missing("graph:stream", {"resume": True, "config": {"thread_id": "{thread}"}}),
        Call("own", "graph:stream", CHAT),
    ],
    "WS /v1/graph/ws": [Call("own", "graph:stream", CHAT)],
    "POST /v1/graph/stop": [missing("graph:stop", {"thread_id": "{thread}"})],
    "GET /v1/threads": [
        *(Call("list", "checkpointer:read", query=query) for query in ("", "?search={thread}", "?offset=0&limit=1000"))
    ],
    "GET /v1/requests": [Call("list", "requests:read"), missing("requests:read", query="?thread_id={thread}")],
    **thread_calls(),
}


class Ids(NamedTuple):
    """The ids of a user's thread, which another user tries to use."""

    thread: str
    checkpoint: str
    run: str
    request: str
    message: str
    file: str

    def put_in(self, text: str) -> str:
        """Text of the table with these ids in the place of the names."""
        for name, value in zip(self._fields, self, strict=True):
            text = text.replace(f"{{{name}}}", value)
        return text


def path_of(key: str, call: Call, ids: Ids) -> str:
    template = key.partition(" ")[2] + call.query
    named = {"thread_id": ids.thread, "checkpoint_id": ids.checkpoint, "other": ids.checkpoint, "run_id": ids.run}
    named |= {"request_id": ids.request, "message_id": ids.message, "name": "ask"}
    for name, value in named.items():
        template = template.replace(f"{{{name}:str}}", value)
    return ids.put_in(template)


def sent_by(call: Call, ids: Ids) -> dict[str, Any]:
    if call.content is not None:
        return {"content": ids.put_in(call.content).encode()}
    return {} if call.body is None else {"json": json.loads(ids.put_in(json.dumps(call.body)))}


def routes_of(app: ServerApp) -> dict[str, Any]:
    """Each handler of the app, by `METHOD path`; `WS` is a socket. Litestar answers OPTIONS by itself."""
    handlers_by_route: dict[str, Any] = {}
    for route in app.routes.routes:
        handlers = getattr(route, "route_handlers", None) or [route.route_handler]  # type: ignore[union-attr]  # one of each
        for handler in handlers:
            methods = getattr(handler, "http_methods", {"WS"})
            handlers_by_route |= {f"{method} {route.path}": handler for method in methods if method != "OPTIONS"}
    return handlers_by_route
