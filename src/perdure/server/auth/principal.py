"""Principals, credentials and scopes: the types of authentication and authorization."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Protocol, TypeGuard

import msgspec

from perdure.errors import did_you_mean
from perdure.server.config.schema import invalid


class AuthUnavailable(Exception):
    """Authentication itself failed: 503, `auth_unavailable`. The reason is logged; the caller sees the message."""

    code = "auth_unavailable"

    def __init__(self, sentence: str = "Authentication is not available now. Try again later.") -> None:
        super().__init__(sentence)


MAX_USER_ID_CHARACTERS = 255


def is_user_id(value: object) -> TypeGuard[str]:
    """Whether it is text of 1 to 255 characters that UTF-8 can encode, without control characters."""
    return (
        isinstance(value, str)
        and len(value) <= MAX_USER_ID_CHARACTERS
        and bool(value.strip())
        and all(map(_is_plain, value))
    )


def _is_plain(character: str) -> bool:
    code = ord(character)
    return code >= 0x20 and not 0x7F <= code <= 0x9F and not 0xD800 <= code <= 0xDFFF


class Principal(msgspec.Struct, frozen=True):
    """An authenticated user."""

    user_id: str | None = None
    """None on a server without auth."""
    roles: tuple[str, ...] = ()
    scopes: frozenset[str] | None = None
    """Limits of the key or token; None: the roles and the configuration decide."""
    claims: Mapping[str, Any] = {}
    """Further data about the user, for custom authorization."""


ANYBODY = Principal()


class Credentials(msgspec.Struct, frozen=True):
    """The credentials of a request. Never logged."""

    headers: Mapping[str, str]
    """By lower-case name."""
    token: str | None = None
    """From `Authorization: Bearer` or a socket's subprotocol."""
    api_key: str | None = None
    """From `X-API-Key`."""
    method: str = "GET"
    path: str = "/"
    client: str | None = None
    """The address of the peer."""


class NotAuthenticated(Exception):
    """The credentials are missing or not valid. The caller sees the message, so it contains no secrets."""


class Authenticator(Protocol):
    async def authenticate(self, credentials: Credentials) -> Principal:
        """Raises NotAuthenticated."""
        ...


class Authorizer(Protocol):
    isolates_owners: bool
    """Whether each user has separate threads."""

    async def may(self, principal: Principal, scope: str, thread_id: str | None) -> bool:
        """Whether the principal has a scope, such as `graph:invoke`, for this thread."""
        ...


PUBLIC = "public"
"""The scope of routes without credentials, such as `/ping`. It cannot be granted."""
SCOPES = (
    *("graph:invoke", "graph:stream", "graph:read", "graph:stop"),
    *("checkpointer:read", "checkpointer:write", "checkpointer:delete"),
    *("requests:read", "requests:answer"),
    "metrics:read",
)
"""All scopes, in the order of listings."""
EVERYTHING = "*"
GRANTABLE = (*SCOPES, EVERYTHING, *dict.fromkeys(f"{scope.partition(':')[0]}:*" for scope in SCOPES))
"""Scopes that a role, a key or a token may have, including wildcards such as `graph:*` and `*`."""


def covers(granted: Iterable[str], scope: str) -> bool:
    """Whether the granted scopes include this one, directly or by a wildcard."""
    held = granted if isinstance(granted, frozenset) else frozenset(granted)
    return scope in held or EVERYTHING in held or f"{scope.partition(':')[0]}:*" in held


def check_scopes(scopes: Iterable[str], where: str) -> None:
    """Raises InvalidConfig for an unknown scope."""
    for scope in scopes:
        if scope not in GRANTABLE:
            raise invalid(
                where,
                f"no scope {scope!r} exists{did_you_mean(str(scope), GRANTABLE)}. Scopes: {', '.join(GRANTABLE)}.",
            )
