"""Who sends a request, and what they bring to prove it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Protocol, TypeGuard

import msgspec

# ---------------------------------------------------------------- unavailable


class AuthUnavailable(Exception):
    """What tells users apart failed, which is no fault of the caller: 503, `auth_unavailable`. The reason is logged,
    and not part of the sentence, which the caller sees."""

    code = "auth_unavailable"

    def __init__(self, sentence: str = "It cannot be told now who you are. Try again later.") -> None:
        super().__init__(sentence)


# ---------------------------------------------------------------- users


LONGEST = 255


def is_user_id(value: object) -> TypeGuard[str]:
    """Text of 1 to 255 characters that can be written as UTF-8, without control characters."""
    return isinstance(value, str) and len(value) <= LONGEST and bool(value.strip()) and all(map(_is_plain, value))


def _is_plain(character: str) -> bool:
    code = ord(character)
    return code >= 0x20 and not 0x7F <= code <= 0x9F and not 0xD800 <= code <= 0xDFFF


class Principal(msgspec.Struct, frozen=True):
    """Somebody who is known."""

    user_id: str | None = None
    """None: anybody, on a server without auth."""
    roles: tuple[str, ...] = ()
    scopes: frozenset[str] | None = None
    """What they may do; None: what their roles and the configuration say."""
    claims: Mapping[str, Any] = {}
    """Whatever else is known of them; handed to custom authorization."""


ANYBODY = Principal()


class Credentials(msgspec.Struct, frozen=True):
    """What a request says of its sender. Never logged."""

    headers: Mapping[str, str]
    """Their names in lower case."""
    token: str | None = None
    """Of `Authorization: Bearer`, or of a socket's subprotocol."""
    api_key: str | None = None
    """Of `X-API-Key`."""
    method: str = "GET"
    path: str = "/"
    client: str | None = None
    """The address it came from."""


class NotAuthenticated(Exception):
    """Nobody is known by these credentials. The sentence is shown to the caller, so it says nothing of secrets."""


class Authenticator(Protocol):
    async def authenticate(self, credentials: Credentials) -> Principal:
        """Raises NotAuthenticated."""
        ...


class Authorizer(Protocol):
    isolates_owners: bool
    """Whether each user has threads of their own."""

    async def may(self, principal: Principal, scope: str, thread_id: str | None) -> bool:
        """Whether they may do this, such as `graph:invoke`, with this thread."""
        ...
