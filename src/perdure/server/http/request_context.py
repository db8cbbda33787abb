"""One request as the routes see it: who sent it, and which threads are theirs."""

from __future__ import annotations

from typing import Any

import msgspec
from litestar.connection import ASGIConnection
from litestar.di import NamedDependency
from litestar.enums import ScopeType
from litestar.handlers.base import BaseRouteHandler
from litestar.types import Scope

from perdure.server.app.service import Service
from perdure.server.auth.principal import ANYBODY, Principal
from perdure.server.problems import HttpProblem
from perdure.server.threads.tenancy import Space
from perdure.server.threads.threads import Threads

KEY = "perdure.visit"
"""Where a request's visit is found in its ASGI scope."""


class Visit(msgspec.Struct):
    request_id: str
    service: Service
    principal: Principal = ANYBODY
    space: Space = Space()
    limit_key: str | None = None
    """What its requests are counted by."""

    async def must(self, scope: str, thread_id: str | None) -> None:
        """Where a thread is named in a body or a query: may the sender do this with it? Raises HttpProblem."""
        if not await self.service.authorizer.may(self.principal, scope, thread_id):
            raise HttpProblem(403, "not_allowed", f"This needs the scope {scope!r}.")


def visit_of(scope: Any) -> Visit:
    found: Visit = scope[KEY]
    return found


Connection = ASGIConnection[Any, Any, Any, Any]


OwnVisit = NamedDependency[Visit]
OwnThreads = NamedDependency[Threads]
"""What routes are given: the present request, and the threads of its sender."""


async def provide_visit(scope: Scope) -> Visit:
    return visit_of(scope)


async def provide_threads(visit: OwnVisit) -> Threads:
    return Threads(visit.service, visit.space)


async def authorize(connection: Connection, handler: BaseRouteHandler) -> None:
    """A guard of every route: it says what it needs, and the sender must have it. Raises HttpProblem."""
    needed = handler.opt.get("scope", "public")  # only what Litestar answers to OPTIONS has none: see `make_routes`
    if (
        needed == "public" or connection.scope["type"] == ScopeType.WEBSOCKET
    ):  # a socket is refused with a code of its own
        return
    await visit_of(connection.scope).must(needed, connection.path_params.get("thread_id"))
