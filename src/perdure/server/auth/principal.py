"""Principals: who makes a request, which scopes they have, and the space of their threads.

Each user's threads have a separate prefix, so no user can name another's thread.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Any, Protocol, TypeGuard
from urllib.parse import quote

import msgspec

from perdure.errors import did_you_mean
from perdure.names import RESERVED_THREAD
from perdure.server.config.schema import invalid
from perdure.server.problems import HttpProblem, unprocessable


class AuthUnavailable(HttpProblem):
    """Authentication itself failed. The reason is logged; the caller sees the message."""

    def __init__(self) -> None:
        sentence = "Authentication is not available now. Try again later."
        super().__init__(503, "auth_unavailable", sentence, headers={"Retry-After": "5"})


MAX_USER_ID_CHARACTERS = 255
_NOT_PLAIN = re.compile("[\x00-\x1f\x7f-\x9f\ud800-\udfff]")


def is_user_id(value: object) -> TypeGuard[str]:
    """Whether it is text of 1 to 255 characters that UTF-8 can encode, without control characters."""
    if not isinstance(value, str) or len(value) > MAX_USER_ID_CHARACTERS:
        return False
    return bool(value.strip()) and _NOT_PLAIN.search(value) is None


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


class Authorizer(Protocol):
    isolates_owners: bool
    """Whether each user has separate threads."""

    async def may(self, principal: Principal, scope: str, thread_id: str | None) -> bool:
        """Whether the principal has a scope, such as `graph:invoke`, for this thread."""


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
    return not {scope, EVERYTHING, f"{scope.partition(':')[0]}:*"}.isdisjoint(granted)


def check_scopes(scopes: Iterable[str], where: str) -> None:
    """Raises InvalidConfig for an unknown scope."""
    for scope in scopes:
        if scope not in GRANTABLE:
            raise invalid(
                where,
                f"no scope {scope!r} exists{did_you_mean(str(scope), GRANTABLE)}. Scopes: {', '.join(GRANTABLE)}.",
            )


def is_narrowed(principal: Principal, scope: str) -> bool:
    """Whether the key or token itself excludes the scope."""
    return principal.scopes is not None and not covers(principal.scopes, scope)


class RoleScopes:
    """Grants the scopes of a user's roles that the key or token does not exclude. Users without a configured role get
    the default scopes."""

    def __init__(
        self, roles: Mapping[str, tuple[str, ...]], default: tuple[str, ...], *, isolates_owners: bool
    ) -> None:
        self.isolates_owners = isolates_owners
        self._roles = {role: frozenset(scopes) for role, scopes in roles.items()}
        self._default = frozenset(default)

    async def may(self, principal: Principal, scope: str, thread_id: str | None) -> bool:
        if is_narrowed(principal, scope):
            return False
        held = [self._roles[role] for role in principal.roles if role in self._roles] or [self._default]
        return any(covers(scopes, scope) for scopes in held)


LONGEST_ID = 255


class Space(msgspec.Struct, frozen=True):
    """The threads of one user. Clients use public ids; the storage uses stored ids, which have the prefix."""

    prefix: str = ""
    user_id: str | None = None

    def stored_id(self, thread_id: str) -> str:
        """The id in the storage. Raises HttpProblem for an invalid id."""
        check_id("thread_id", thread_id)
        if thread_id == "import":
            raise _invalid_id("thread_id", "must not be 'import', which is the name of a route")
        return f"{self.prefix}{thread_id}"

    def public_id(self, stored_id: str) -> str:
        return stored_id.removeprefix(self.prefix)

    def with_public_ids(self, sentence: str) -> str:
        """Replace stored ids in quotes by public ids."""
        if not self.prefix:
            return sentence
        return sentence.replace(f"'{self.prefix}", "'").replace(f'"{self.prefix}', '"')


def space_of(principal: Principal, *, isolates: bool) -> Space:
    if principal.user_id is None or not isolates:
        return Space(user_id=principal.user_id)
    # Quoted, so that the user `a/b` with thread `c` is not the user `a` with thread `b/c`.
    return Space(f"{quote(principal.user_id, safe='')}/", principal.user_id)


def check_id(name: str, value: str) -> None:
    """Raises HttpProblem for an id that is unsafe in paths, headers and logs."""
    if not value or len(value) > LONGEST_ID:
        raise _invalid_id(name, f"must have 1 to {LONGEST_ID} characters")
    if "/" in value or "\\" in value or not value.isprintable() or value in (".", "..", RESERVED_THREAD):
        raise _invalid_id(name, "must be printable text without slashes, other than '.' and '..'")


def _invalid_id(name: str, reason: str) -> HttpProblem:
    return unprocessable(name, f"{name} {reason}.", "invalid_id")
