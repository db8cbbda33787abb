"""Who may do what: the kinds of authorization, and which one a configuration means."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Callable, Mapping
from typing import Any

from perdure.errors import did_you_mean
from perdure.log import get_logger
from perdure.server.auth.custom import called, made, place_of
from perdure.server.auth.principal import Authorizer, Principal
from perdure.server.auth.scopes import PUBLIC, check_scopes, covers
from perdure.server.config.errors import invalid
from perdure.server.config.schema import ServerConfig

logger = get_logger(__name__)

LONGEST_SECONDS = 10.0


def is_narrowed(principal: Principal, scope: str) -> bool:
    """Whether the key or the token itself leaves this out, whatever its user may do."""
    return principal.scopes is not None and not covers(principal.scopes, scope)


class Everything:
    """All scopes, as far as a key or a token does not narrow them: with one's own threads, or with all."""

    def __init__(self, *, isolates_owners: bool) -> None:
        self.isolates_owners = isolates_owners

    async def may(self, principal: Principal, scope: str, thread_id: str | None) -> bool:
        return scope == PUBLIC or not is_narrowed(principal, scope)


class Roles:
    """What the roles of somebody have, together. Those who have no role that is named get the default."""

    def __init__(
        self, roles: Mapping[str, tuple[str, ...]], default: tuple[str, ...], *, isolates_owners: bool
    ) -> None:
        self.isolates_owners = isolates_owners
        self._roles = {role: frozenset(scopes) for role, scopes in roles.items()}
        self._default = frozenset(default)

    async def may(self, principal: Principal, scope: str, thread_id: str | None) -> bool:
        if scope == PUBLIC:
            return True
        if is_narrowed(principal, scope):
            return False
        held = [self._roles[role] for role in principal.roles if role in self._roles] or [self._default]
        return any(covers(scopes, scope) for scopes in held)


class Custom:
    """A user's own `authorize(user, resource, action, resource_id)`. Whatever is not True is no."""

    def __init__(self, authorize: Callable[..., Any], path: str, *, isolates_owners: bool) -> None:
        self.isolates_owners = isolates_owners
        self._authorize = authorize
        self._path = path

    async def may(self, principal: Principal, scope: str, thread_id: str | None) -> bool:
        if scope == PUBLIC:
            return True
        if is_narrowed(principal, scope):
            return False
        resource, _, action = scope.partition(":")
        try:
            async with asyncio.timeout(LONGEST_SECONDS):
                verdict = await called(self._authorize, _user(principal), resource, action, thread_id)
        except Exception as error:  # noqa: BLE001  # whatever a user's code does: what is not allowed is refused
            logger.error("%s failed: %s at %s. Refused", self._path, type(error).__name__, place_of(error))
            return False
        if not isinstance(verdict, bool):
            logger.error("%s gave a %s, not True or False. Refused", self._path, type(verdict).__name__)
            return False
        return verdict


def _user(principal: Principal) -> dict[str, Any]:
    known = {"user_id": principal.user_id, "roles": list(principal.roles)}
    scopes = {} if principal.scopes is None else {"scopes": sorted(principal.scopes)}
    return {**principal.claims, **known, **scopes}


def make_authorizer(config: ServerConfig, import_object: Callable[[str], Any]) -> Authorizer:
    """The one that `authorization` means. Raises InvalidConfig."""
    wanted = config.authorization
    isolates = wanted.isolation == "owner"
    _refuse_what_has_no_effect(config)
    if wanted.backend == "ownership":
        return Everything(isolates_owners=True)
    if wanted.backend == "allow_all":
        return Everything(isolates_owners=False)
    if wanted.backend == "rbac":
        if not wanted.roles and not wanted.default_scopes:
            raise invalid(
                "authorization.backend",
                'it is "rbac", and neither authorization.roles nor authorization.default_scopes gives anybody '
                'anything. Name roles, such as {"operator": ["graph:*"]}.',
            )
        for role, scopes in wanted.roles.items():
            check_scopes(scopes, f"authorization.roles.{role}")
        check_scopes(wanted.default_scopes, "authorization.default_scopes")
        return Roles(wanted.roles, wanted.default_scopes, isolates_owners=isolates)
    return _custom(wanted.path, import_object, isolates)


def _refuse_what_has_no_effect(config: ServerConfig) -> None:
    """Whoever wrote it believes that it is heeded."""
    wanted = config.authorization
    if wanted.backend == "ownership" and wanted.isolation == "none":
        raise invalid(
            "authorization.isolation",
            'it is "none", and the backend "ownership" gives each user threads of their own. Choose the backend '
            '"allow_all", or "rbac" with isolation "none".',
        )
    if wanted.backend != "rbac" and (wanted.roles or wanted.default_scopes):
        key = "roles" if wanted.roles else "default_scopes"
        raise invalid(
            f"authorization.{key}",
            f'it is for the backend "rbac", and authorization.backend is "{wanted.backend}": it would not be heeded. '
            'Say "backend": "rbac", or leave it out.',
        )


def _custom(path: str | None, import_object: Callable[[str], Any], isolates: bool) -> Authorizer:
    if path is None:
        raise invalid("authorization.path", 'authorization.backend is "custom", and this must say which: module:attr.')
    found = made(import_object(path), "authorize", "authorization.path")
    authorize = getattr(found, "authorize", found)
    if not callable(authorize):
        names = [name for name in dir(found) if not name.startswith("_")]
        raise invalid(
            "authorization.path",
            f"{path!r} is a {type(found).__name__}, which has no method `authorize(user, resource, action, "
            f"resource_id)`{did_you_mean('authorize', names)} and is no function.",
        )
    try:
        inspect.signature(authorize).bind({}, "graph", "invoke", None)
    except (TypeError, ValueError) as error:
        raise invalid(
            "authorization.path",
            f"{path!r} is called with (user, resource, action, resource_id), and does not take these: {error}.",
        ) from None
    return Custom(authorize, path, isolates_owners=isolates)
