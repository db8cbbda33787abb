"""Which way to tell users apart a configuration means, and whether a server may be reached without one."""

from __future__ import annotations

import ipaddress
import socket
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from perdure.log import get_logger
from perdure.server.auth.principal import Authenticator
from perdure.server.config.errors import invalid
from perdure.server.config.schema import ServerConfig
from perdure.storages import InMemoryCheckpointStorage

logger = get_logger(__name__)


def make_authenticator(
    config: ServerConfig, import_object: Callable[[str], Any], environ: Mapping[str, str]
) -> Authenticator | None:
    """None: everybody is anybody. Raises InvalidConfig for what would let nobody in, or the wrong ones."""
    auth, folder = config.auth, Path(config.folder)
    if auth.method == "none":
        return None
    if auth.method == "api_key":
        from perdure.server.auth.api_keys import ApiKeys
        from perdure.server.auth.key_file import KeyFile

        return ApiKeys(KeyFile(folder / auth.keys_file))
    if auth.method == "jwt":
        from perdure.server.auth.jwt_tokens import JwtTokens

        return JwtTokens(auth, environ, folder)
    from perdure.server.auth.custom import CustomAuthenticator

    if auth.path is None:
        raise invalid("auth.path", 'auth.method is "custom", and this must say which: module:attribute.')
    return CustomAuthenticator(import_object(auth.path), auth.path)


def check_exposure(config: ServerConfig, storage: object) -> None:
    """Raises InvalidConfig for a server that others could reach without auth, or that would forget what they do."""
    is_in_memory = _is_in_memory(storage)
    if is_loopback(config.host):
        if is_in_memory:
            logger.warning(
                "Threads are kept in memory: they are gone when this server stops, and no other server sees them. Set "
                "`checkpointer` to keep them, such as sqlite:///perdure.db or postgresql://..."
            )
        return
    if config.auth.method == "none":
        raise invalid(
            "host",
            f'other machines can reach {config.host!r}, and there is no auth (auth.method is "none"): anybody could '
            'run and read everything. The server does not start. Set auth.method to "api_key" (`perdure keys create '
            'USER` makes one), "jwt" or "custom"; or leave the host at 127.0.0.1.',
        )
    if is_in_memory:
        raise invalid(
            "host",
            f"other machines can reach {config.host!r}, and threads are kept in memory: all of them are gone when the "
            "server stops. The server does not start. Set checkpointer to sqlite:///perdure.db or postgresql://..., "
            "or leave the host at 127.0.0.1.",
        )


def is_loopback(host: str) -> bool:
    """Whether only this machine reaches it. A name is what it stands for now: all of its addresses."""
    bare = host.strip().removeprefix("[").removesuffix("]").lower()
    if not bare:
        return False  # all addresses of the machine
    if bare == "localhost":
        return True
    try:
        return _is_own(ipaddress.ip_address(bare))
    except ValueError:
        pass
    try:
        found = socket.getaddrinfo(bare, None, type=socket.SOCK_STREAM)
        return bool(found) and all(_is_own(ipaddress.ip_address(one[4][0])) for one in found)
    except (OSError, ValueError):
        return False


def _is_own(address: ipaddress.IPv4Address | ipaddress.IPv6Address) -> bool:
    mapped = getattr(address, "ipv4_mapped", None)
    return bool((mapped or address).is_loopback)


def _is_in_memory(storage: object) -> bool:
    if isinstance(storage, InMemoryCheckpointStorage):
        return True
    store = getattr(storage, "store", None)
    while (inner := getattr(store, "inner", None)) is not None:  # encryption is a layer over a store
        store = inner
    return type(store).__name__ == "MemoryStore"  # by its name: a server knows no driver
