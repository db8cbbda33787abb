"""Authorization: all scopes, scopes by role, or a user's own function."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Callable, Mapping
from typing import Any

from perdure.errors import did_you_mean
from perdure.log import get_logger
from perdure.server.auth.custom import call_user_code, instantiate, place_of
from perdure.server.auth.principal import PUBLIC, Authorizer, Principal, check_scopes, covers
from perdure.server.config.schema import ServerConfig, invalid

logger = get_logger(__name__)

LONGEST_SECONDS = 10.0


def is_narrowed(principal: Principal, scope: str) -> bool:
    """Whether the key or token itself excludes the scope."""
    return principal.scopes is not None and not covers(principal.scopes, scope)


class AllScopes:
    """Grants all scopes that the key or token does not exclude."""

    def __init__(self, *, isolates_owners: bool) -> None:
        self.isolates_owners = isolates_owners

    async def may(self, principal: Principal, scope: str, thread_id: str | None) -> bool:
        return scope == PUBLIC or not is_narrowed(principal, scope)


class RoleScopes:
    """Grants the scopes of a user's roles. Users without a configured role get the default scopes."""

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


class CustomAuthorizer:
    """Calls a user's `authorize(user, resource, action, resource_id)`. Only True grants the scope."""

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
                verdict = await call_user_code(self._authorize, _user(principal), resource, action, thread_id)
        except Exception as error:  # noqa: BLE001  # user code raises anything: refuse
            logger.error("%s failed: %s at %s. Refused", self._path, type(error).__name__, place_of(error))
            return False
        if not isinstance(verdict, bool):
            logger.error("%s returned a %s, not True or False. Refused", self._path, type(verdict).__name__)
            return False
        return verdict


def _user(principal: Principal) -> dict[str, Any]:
    identity = {"user_id": principal.user_id, "roles": list(principal.roles)}
    scopes = {} if principal.scopes is None else {"scopes": sorted(principal.scopes)}
    return {**principal.claims, **identity, **scopes}


def make_authorizer(config: ServerConfig, import_object: Callable[[str], Any]) -> Authorizer:
    """The authorizer of a configuration. Raises InvalidConfig."""
    settings = config.authorization
    isolates = settings.isolation == "owner"
    _refuse_settings_without_effect(config)
    if settings.backend == "ownership":
        return AllScopes(isolates_owners=True)
    if settings.backend == "allow_all":
        return AllScopes(isolates_owners=False)
    if settings.backend == "rbac":
        if not settings.roles and not settings.default_scopes:
            raise invalid(
                "authorization.backend",
                'it is "rbac", but neither authorization.roles nor authorization.default_scopes grants a '
                'scope. Name roles, such as {"operator": ["graph:*"]}.',
            )
        for role, scopes in settings.roles.items():
            check_scopes(scopes, f"authorization.roles.{role}")
        check_scopes(settings.default_scopes, "authorization.default_scopes")
        return RoleScopes(settings.roles, settings.default_scopes, isolates_owners=isolates)
    return _custom(settings.path, import_object, isolates)


def _refuse_settings_without_effect(config: ServerConfig) -> None:
    """Refuse settings that would have no effect. Raises InvalidConfig."""
    settings = config.authorization
    if settings.backend == "ownership" and settings.isolation == "none":
        raise invalid(
            "authorization.isolation",
            'it is "none", but the backend "ownership" gives each user separate threads. Choose the backend '
            '"allow_all", or "rbac" with isolation "none".',
        )
    if settings.backend != "rbac" and (settings.roles or settings.default_scopes):
        key = "roles" if settings.roles else "default_scopes"
        raise invalid(
            f"authorization.{key}",
            f'it has an effect only with the backend "rbac", but authorization.backend is "{settings.backend}". '
            'Set "backend": "rbac", or remove it.',
        )


def _custom(path: str | None, import_object: Callable[[str], Any], isolates: bool) -> Authorizer:
    if path is None:
        raise invalid("authorization.path", 'authorization.backend is "custom", so this must name a module:attribute.')
    target = instantiate(import_object(path), "authorize", "authorization.path")
    authorize = getattr(target, "authorize", target)
    if not callable(authorize):
        names = [name for name in dir(target) if not name.startswith("_")]
        raise invalid(
            "authorization.path",
            f"{path!r} is a {type(target).__name__}, which has no method `authorize(user, resource, action, "
            f"resource_id)`{did_you_mean('authorize', names)} and is not a function.",
        )
    try:
        inspect.signature(authorize).bind({}, "graph", "invoke", None)
    except (TypeError, ValueError) as error:
        raise invalid(
            "authorization.path",
            f"{path!r} must take (user, resource, action, resource_id): {error}.",
        ) from None
    return CustomAuthorizer(authorize, path, isolates_owners=isolates)
