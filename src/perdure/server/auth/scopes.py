"""What can be done with a server, as scopes: `graph:invoke`, `checkpointer:read`, ..."""

from __future__ import annotations

from collections.abc import Iterable

from perdure.errors import did_you_mean
from perdure.server.config.errors import invalid

PUBLIC = "public"
"""Of routes that anybody may call, such as `/ping`. It is given to nobody, because everybody has it."""
SCOPES = (
    *("graph:invoke", "graph:stream", "graph:read", "graph:stop"),
    *("checkpointer:read", "checkpointer:write", "checkpointer:delete"),
    *("requests:read", "requests:answer"),
    "metrics:read",
)
"""All of them, in the order in which they are shown."""
EVERYTHING = "*"
GRANTABLE = (*SCOPES, EVERYTHING, *dict.fromkeys(f"{one.partition(':')[0]}:*" for one in SCOPES))
"""What a role, a key or a token may have: scopes, `graph:*` and the like, and `*`."""


def covers(granted: Iterable[str], scope: str) -> bool:
    """Whether one of these scopes is this one, or means it among others."""
    held = granted if isinstance(granted, frozenset) else frozenset(granted)
    return scope in held or EVERYTHING in held or f"{scope.partition(':')[0]}:*" in held


def check_scopes(scopes: Iterable[str], where: str) -> None:
    """Raises InvalidConfig for one that does not exist."""
    for scope in scopes:
        if scope not in GRANTABLE:
            raise invalid(
                where,
                f"there is no scope {scope!r}{did_you_mean(str(scope), GRANTABLE)}. There are {', '.join(GRANTABLE)}.",
            )
