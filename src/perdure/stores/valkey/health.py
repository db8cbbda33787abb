"""What `perdure doctor` reads from a Valkey or Redis: facts, without a judgement. It writes nothing."""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import Any

from perdure.stores.valkey import connection as valkey

PROBES = 5


@dataclass(frozen=True)
class ValkeyReport:
    address: str
    problem: str = ""
    """Why the server cannot be used; empty if it can."""
    version: str = ""
    round_trip_seconds: float = 0.0
    used_bytes: int = 0
    limit_bytes: int = 0
    """0: none."""


async def inspect_server(url: str) -> ValkeyReport:
    """With the timeouts of a store. Raises ValueError for another URL, MissingExtra."""
    address, options = valkey._options(url)
    client = valkey._client(options)
    try:
        trips = []
        for _ in range(PROBES):
            started = time.perf_counter()
            await client.ping()
            trips.append(time.perf_counter() - started)
        info = await client.info("server", "memory")
    except Exception as error:  # noqa: BLE001  # whatever a server or a network does
        return ValkeyReport(address, _problem(error))
    finally:
        await client.aclose()
    return ValkeyReport(
        address,
        version=_version(info),
        round_trip_seconds=min(trips),
        used_bytes=int(info.get("used_memory", 0)),
        limit_bytes=int(info.get("maxmemory", 0)),
    )


def _version(info: dict[str, Any]) -> str:
    name = "Valkey" if "valkey_version" in info else "Redis"
    return f"{name} {info.get('valkey_version') or info.get('redis_version') or '?'}"


def _problem(error: Exception) -> str:
    text = " ".join(str(error).split()).rstrip(".")
    if type(error).__name__ in ("AuthenticationError", "NoPermissionError") or "NOAUTH" in text or "WRONGPASS" in text:
        return "it refuses the user or the password"
    if type(error).__name__ == "TimeoutError":
        return f"it does not answer within {valkey.TIMEOUT_SECONDS:g} s"
    if "111" in text or "refused" in text or "Connect call failed" in text:
        return "no server listens there"
    return text or type(error).__name__
