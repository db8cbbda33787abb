"""The context of a request: its id, principal and threads."""

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
"""The key of a request's Visit in its ASGI scope."""


class Visit(msgspec.Struct):
    request_id: str
    service: Service
    principal: Principal = ANYBODY
    space: Space = Space()
    limit_key: str | None = None
    """The key of the rate limit."""

    async def require_scope(self, scope: str, thread_id: str | None) -> None:
        """Raises HttpProblem unless the principal has the scope for this thread, which a body or a query names."""
        if not await self.service.authorizer.may(self.principal, scope, thread_id):
            raise HttpProblem(403, "not_allowed", f"This needs the scope {scope!r}.")


def visit_of(scope: Any) -> Visit:
    visit: Visit = scope[KEY]
    return visit


Connection = ASGIConnection[Any, Any, Any, Any]


OwnVisit = NamedDependency[Visit]
OwnThreads = NamedDependency[Threads]
"""Dependencies of routes: the current request, and the threads of its principal."""


async def provide_visit(scope: Scope) -> Visit:
    return visit_of(scope)


async def provide_threads(visit: OwnVisit) -> Threads:
    return Threads(visit.service, visit.space)


async def authorize(connection: Connection, handler: BaseRouteHandler) -> None:
    """The guard of every route: checks the scope that the route declares. Raises HttpProblem."""
    required = handler.opt.get("scope", "public")  # only Litestar's OPTIONS handlers have none: see `make_routes`
    if required == "public" or connection.scope["type"] == ScopeType.WEBSOCKET:  # a socket checks its scope itself
        return
    await visit_of(connection.scope).require_scope(required, connection.path_params.get("thread_id"))
