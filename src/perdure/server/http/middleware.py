"""The ASGI app, and what every request passes before its route: host and size checks, authentication, rate limit,
security headers, metrics. Routes get a request as its Visit.
"""

from __future__ import annotations

import asyncio
import re
import time
from collections.abc import Mapping, MutableMapping
from contextlib import nullcontext
from typing import Any

from litestar import Litestar, Request

from perdure.engine import tracing
from perdure.names import random_digits
from perdure.server.auth.principal import ANYBODY, Credentials, NotAuthenticated, Principal, Space, space_of
from perdure.server.problems import HttpProblem, error_body, too_often
from perdure.server.rate_limit import client_address, limit_key
from perdure.server.service import Service
from perdure.server.threads.threads import Threads

KEY = "perdure.visit"
"""The key of a request's Visit in its ASGI scope."""

AsgiScope = MutableMapping[str, Any]

SECURITY_HEADERS = [
    (b"x-content-type-options", b"nosniff"),
    (b"x-frame-options", b"DENY"),
    (b"referrer-policy", b"no-referrer"),
    (b"cross-origin-resource-policy", b"same-origin"),
    (b"content-security-policy", b"default-src 'none'; style-src 'unsafe-inline'; frame-ancestors 'none'"),
]
EXPOSED = ["X-Request-Id", "X-Run-Id", "Retry-After", "X-RateLimit-Limit", "X-RateLimit-Remaining", "X-RateLimit-Reset"]
"""Headers that allowed pages of other origins may read."""
STREAM: dict[str, Any] = {
    "media_type": "text/event-stream",
    "headers": {"Cache-Control": "no-store", "X-Accel-Buffering": "no"},
}
"""Proxies neither cache nor buffer a stream of events."""
_EXEMPT = frozenset({"/ping", "/healthz", "/readyz"})
"""Paths without a rate limit: an orchestrator would restart a healthy server after a 429."""
_REQUEST_ID = re.compile(r"[A-Za-z0-9_.-]{1,64}")
BEARER = "agentflow-bearer"


class Visit:
    """One request: who makes it, and its body and its answer as they pass through.

    The body has a size limit and a time limit, and every answer has the headers of all. It does not refer to the
    scope, which refers to it.
    """

    def __init__(self, scope: AsgiScope, receive: Any, send: Any, service: Service) -> None:
        self.service = service
        self.kind: str = scope["type"]
        self.method: str = scope.get("method", "GET")
        self.headers: dict[str, str] = {}
        """By name in lower case; repeated headers are joined with commas, as proxies do."""
        for name, value in scope["headers"]:
            key, text = name.decode("latin-1").lower(), value.decode("latin-1")
            self.headers[key] = f"{self.headers[key]}, {text}" if key in self.headers else text
        root = scope.get("root_path", "")
        self.path: str = scope["path"]
        if root and self.path.startswith(root):
            self.path = self.path[len(root) :] or "/"
        self.peer: str | None = (scope.get("client") or (None,))[0]
        asked_id = self.headers.get("x-request-id", "")
        self.request_id = asked_id if _REQUEST_ID.fullmatch(asked_id) else random_digits() + random_digits()
        self.principal = ANYBODY
        self.space = Space()
        self.limit_key: str | None = None
        """The key of the rate limit."""
        self.is_head = False
        """Whether the client requested the headers only."""
        self.limits: list[tuple[bytes, bytes]] = []
        """Headers of the rate limit."""
        self._receive = receive
        self._send = send
        self._began = time.perf_counter()
        self._status = 0
        self._deadline: float | None = None
        self._size = 0
        self._is_whole = False

    @property
    def threads(self) -> Threads:
        """The threads of the principal."""
        return Threads(self.service, self.space)

    @property
    def protocols(self) -> list[str]:
        """The subprotocols that a socket offers."""
        return [name.strip() for name in self.headers.get("sec-websocket-protocol", "").split(",")]

    async def require_scope(self, scope: str, thread_id: str | None) -> None:
        """Raises HttpProblem unless the principal has the scope for this thread, which a body or a query names."""
        if not await self.service.authorizer.may(self.principal, scope, thread_id):
            raise HttpProblem(403, "not_allowed", f"This needs the scope {scope!r}.")

    async def count_request(self) -> None:
        """Count a request, or a turn over a socket. Raises HttpProblem at the rate limit."""
        limiter, limit = self.service.limiter, self.service.config.rate_limit
        if limiter is None or limit is None or self.limit_key is None:
            return
        verdict = await limiter.take(self.limit_key)
        self.limits = [
            (b"x-ratelimit-limit", b"%d" % verdict.limit),
            (b"x-ratelimit-remaining", b"%d" % verdict.remaining),
            (b"x-ratelimit-reset", b"%d" % (verdict.seconds + 0.999)),
        ]
        if not verdict.is_allowed:
            raise too_often(verdict.limit, limit.window, verdict.seconds)

    def has_begun(self) -> bool:
        """Whether the answer has."""
        return self._status != 0

    async def receive(self) -> Any:
        if self._is_whole or self.has_begun() or self.kind != "http":  # only a disconnect matters now
            return await self._receive()
        limits = self.service.config.limits
        if self._deadline is None:
            self._deadline = asyncio.get_running_loop().time() + limits.body_seconds
        try:
            async with asyncio.timeout_at(self._deadline):
                message = await self._receive()
        except TimeoutError:
            if self.has_begun():
                return await self._receive()
            sentence = f"The body did not arrive within {limits.body_seconds:g} s."
            raise HttpProblem(408, "body_too_slow", sentence) from None
        if message["type"] == "http.disconnect" and not self.has_begun():
            raise HttpProblem(400, "client_left", "The client disconnected before the end of the body.")
        if message["type"] == "http.request":
            self._size += len(message.get("body", b""))
            self._is_whole = not message.get("more_body", False)
            if not self.has_begun():
                _check_size(self._size, limits.max_request_bytes)
        return message

    async def send(self, message: MutableMapping[str, Any]) -> None:
        if message["type"] == "http.response.start":
            self._status = message["status"]
            own = (b"x-request-id", self.request_id.encode())
            message["headers"] = [*message.get("headers", ()), own, *SECURITY_HEADERS, *self.limits]
        if self.is_head and message["type"] == "http.response.body":
            message["body"] = b""
        await self._send(message)

    async def refuse(self, problem: HttpProblem) -> None:
        if self.kind == "websocket":
            code = 1013 if problem.status in (429, 503) else 1008
            await self._send({"type": "websocket.close", "code": code, "reason": problem.code})
            return
        headers = {**problem.headers, **self._cors_headers()}
        await send_json(self.send, problem.status, error_body(self.request_id, problem), headers)

    def _cors_headers(self) -> dict[str, str]:
        """CORS headers for error responses. Litestar adds them to all other responses."""
        cors, origin = self.service.config.cors, self.headers.get("origin")
        if origin is None or (origin not in cors.origins and "*" not in cors.origins):
            return {}
        headers = {"Access-Control-Allow-Origin": origin, "Vary": "Origin"}
        headers["Access-Control-Expose-Headers"] = ", ".join(EXPOSED)
        return {**headers, "Access-Control-Allow-Credentials": "true"} if cors.allow_credentials else headers

    def note_end(self, route: str) -> None:
        if self.kind == "http":
            seconds = time.perf_counter() - self._began
            self.service.metrics.request_ended(self.method, route, self._status, seconds)


async def send_json(send: Any, status: int, body: bytes, headers: Mapping[str, str]) -> None:
    """An answer of JSON that is encoded already."""
    more = [(name.lower().encode(), value.encode("latin-1")) for name, value in headers.items()]
    head = [*more, (b"content-type", b"application/json"), (b"content-length", b"%d" % len(body))]
    await send({"type": "http.response.start", "status": status, "headers": head})
    await send({"type": "http.response.body", "body": body, "more_body": False})


def visit_of(scope: Any) -> Visit:
    visit: Visit = scope[KEY]
    return visit


class OwnRequest(Request[Any, Any, Any]):
    """A request as routes get it. Not a dependency, which costs 5 us a request."""

    @property
    def visit(self) -> Visit:
        return visit_of(self.scope)

    @property
    def threads(self) -> Threads:
        return self.visit.threads


async def authorize(request: Request[Any, Any, Any]) -> None:
    """Runs before every route but the socket, which does it itself: checks the scope that the route declares.

    Not a guard, for which Litestar copies the route at each request. Raises HttpProblem.
    """
    required = request.route_handler.opt.get("scope", "public")  # only Litestar's OPTIONS handlers have none
    if required != "public":
        await visit_of(request.scope).require_scope(required, request.path_params.get("thread_id"))


class ServerApp:
    """An ASGI app, to serve or to mount. Without lifespan events, the first request starts it."""

    def __init__(self, service: Service, routes: Litestar) -> None:
        self.service = service
        self.routes = routes
        self._public = frozenset(
            route.path
            for route in routes.routes
            for handler in handlers_of(route)
            if handler.opt.get("scope") == "public"
        )
        """The paths that need no credentials."""

    async def __call__(self, scope: AsgiScope, receive: Any, send: Any) -> None:
        if scope["type"] == "lifespan":
            await self._live(receive, send)
            return
        service = self.service
        if service.loop is None:
            service.start()
        root_path = service.config.root_path
        if root_path and scope["path"].startswith(f"{root_path}/"):  # a proxy may strip the prefix or keep it
            path = scope["path"][len(root_path) :]
            scope = {**scope, "path": path, "raw_path": path.encode()}
        visit = scope[KEY] = Visit(scope, receive, send, service)
        if visit.method == "HEAD" and visit.path in self._public:  # load balancers send it
            scope, visit.is_head = {**scope, "method": "GET"}, True
        try:
            await self._admit(visit)
        except HttpProblem as problem:
            await visit.refuse(problem)
        else:
            # A run that begins here links its trace to the caller's.
            with nullcontext() if tracing.active is None else tracing.link_to_caller(visit.headers):
                await self.routes(scope, visit.receive, visit.send)  # type: ignore[arg-type]  # the types of ASGI by another name
        finally:
            visit.note_end(scope.get("path_template") or "none")

    async def _live(self, receive: Any, send: Any) -> None:
        await receive()
        self.service.start()
        await send({"type": "lifespan.startup.complete"})
        await receive()
        await self.aclose()
        await send({"type": "lifespan.shutdown.complete"})

    async def aclose(self) -> None:
        """Accept no more work, let supersteps finish, and close files and connections.

        An app that mounts this one calls it when it stops.
        """
        await self.service.stop()

    async def _admit(self, visit: Visit) -> None:
        """Raises HttpProblem."""
        service = self.service
        _check_host(visit.headers, service)
        if visit.kind == "http":
            length = visit.headers.get("content-length", "0")
            if not length.isascii() or not length.isdigit():
                raise HttpProblem(400, "bad_request", "Content-Length must be a number.")
            _check_size(int(length.lstrip("0")[:16] or 0), service.config.limits.max_request_bytes)
        if visit.path not in self._public and visit.method != "OPTIONS":
            try:
                visit.principal = await self._authenticate(visit)
            except HttpProblem:  # failed authentication counts against the rate limit too
                await self._count(visit)
                raise
            visit.space = space_of(visit.principal, isolates=service.authorizer.isolates_owners)
        await self._count(visit)

    async def _authenticate(self, visit: Visit) -> Principal:
        if self.service.authenticator is None:
            return ANYBODY
        token, api_key = _token(visit), visit.headers.get("x-api-key")
        if token is not None and api_key is not None and token != api_key:
            raise HttpProblem(401, "not_authenticated", "The request has two different credentials. Send one.")
        credentials = Credentials(visit.headers, token, api_key, visit.method, visit.path, visit.peer)
        try:
            return await self.service.authenticator.authenticate(credentials)
        except NotAuthenticated as error:
            raise HttpProblem(401, "not_authenticated", str(error), headers={"WWW-Authenticate": "Bearer"}) from None

    async def _count(self, visit: Visit) -> None:
        limit = self.service.config.rate_limit
        if limit is not None and visit.path not in (*_EXEMPT, *limit.exclude_paths):
            address = client_address(visit.peer, visit.headers, limit.trusted_proxies)
            visit.limit_key = limit_key(limit.by, address, visit.principal.user_id)
            await visit.count_request()


def handlers_of(route: Any) -> list[Any]:
    """The handlers of a route, without the OPTIONS handlers that Litestar adds."""
    handlers = getattr(route, "route_handlers", None) or [route.route_handler]
    return [handler for handler in handlers if getattr(handler, "http_methods", None) != {"OPTIONS"}]


def _check_size(size: int, most: int) -> None:
    if size > most:
        message = f"A request may have at most {most} bytes."
        raise HttpProblem(413, "body_too_large", message, headers={"Connection": "close"})


def _check_host(headers: dict[str, str], service: Service) -> None:
    """Without auth, reject foreign web pages: cross-origin calls and DNS rebinding. Raises HttpProblem."""
    if service.authenticator is not None:
        return
    host = headers.get("host", "").rsplit(":", 1)[0] if not headers.get("host", "").endswith("]") else headers["host"]
    if host and host.strip("[]").lower() not in service.own_hosts:
        raise HttpProblem(400, "unknown_host", "The Host header does not name this server.")
    origin = headers.get("origin")
    if origin is not None and origin not in service.config.cors.origins and "*" not in service.config.cors.origins:
        name = origin.split("://", 1)[-1]
        if name != headers.get("host"):
            raise HttpProblem(403, "foreign_origin", "Pages of this origin may not call this server.")


def _token(visit: Visit) -> str | None:
    """The bearer token of the header or, for a browser's socket, of its subprotocol."""
    kind, _, token = visit.headers.get("authorization", "").partition(" ")
    if kind.lower() == "bearer" and token.strip():
        return token.strip()
    if visit.kind == "websocket" and BEARER in visit.protocols:
        return next((protocol for protocol in visit.protocols if protocol and protocol != BEARER), None)
    return None
