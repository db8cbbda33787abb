"""Where a request comes from: its peer, or what a trusted proxy says of it; and by what it is counted."""

from __future__ import annotations

import ipaddress
from collections.abc import Mapping
from functools import lru_cache
from typing import TypeAlias

from perdure.server.config.errors import invalid

Address: TypeAlias = ipaddress.IPv4Address | ipaddress.IPv6Address
Network: TypeAlias = ipaddress.IPv4Network | ipaddress.IPv6Network

UNKNOWN = "unknown"
MOST_HOPS = 32
"""A longer header is no chain of proxies."""


def client_address(peer: str | None, headers: Mapping[str, str], trusted_proxies: tuple[str, ...]) -> str:
    """The nearest address that is no trusted proxy, read from right to left.

    Each proxy adds at the right whom it saw. What stands left of the first that is not trusted was written by that
    one, and proves nothing; so the chain also ends at what is no address.
    """
    nearest = _address(peer or "")
    if nearest is None:
        return peer or UNKNOWN
    networks = trusted_networks(trusted_proxies)
    hops = headers.get("x-forwarded-for", "").rsplit(",", MOST_HOPS)[-MOST_HOPS:] if networks else []
    while hops and _is_trusted(nearest, networks):
        before = _address(hops.pop())
        if before is None:
            break
        nearest = before
    return str(nearest)


def limit_key(by: str, address: str, user_id: str | None) -> str:
    """What requests are counted by. Nobody known is counted by address; an IPv6 address by its network of 64 bits,
    because who has one has all of it."""
    if by == "global":
        return "global"
    if by == "user" and user_id is not None:
        return f"user:{user_id}"
    known = _address(address)
    if isinstance(known, ipaddress.IPv6Address):
        return f"ip:{ipaddress.ip_network((int(known) >> 64 << 64, 64))}"
    return f"ip:{address}"


@lru_cache(maxsize=16)
def trusted_networks(given: tuple[str, ...]) -> tuple[Network, ...]:
    """Raises InvalidConfig for what is neither an address nor a network."""
    found = []
    for one in given:
        try:
            found.append(ipaddress.ip_network(one.strip(), strict=False))
        except ValueError:
            raise invalid(
                "rate_limit.trusted_proxies", f"{one!r} is neither an address nor a network, such as 10.0.0.0/8."
            ) from None
    return tuple(found)


def _is_trusted(address: Address, networks: tuple[Network, ...]) -> bool:
    return any(address in network for network in networks)


def _address(text: str) -> Address | None:
    """Of `1.2.3.4`, `1.2.3.4:80`, `::1`, `[::1]:80`, also in quotes; None for anything else."""
    bare = text.strip().strip('"')
    if bare.startswith("["):
        bare = bare[1:].partition("]")[0]
    elif bare.count(":") == 1:
        bare = bare.partition(":")[0]
    try:
        found = ipaddress.ip_address(bare.partition("%")[0])
    except ValueError:
        return None
    return getattr(found, "ipv4_mapped", None) or found  # ::ffff:1.2.3.4 is 1.2.3.4
