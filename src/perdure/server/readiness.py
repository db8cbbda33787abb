"""Whether a server can do its work: each thing that it depends on, asked by itself."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from perdure.errors import PerdureError
from perdure.log import get_logger

if TYPE_CHECKING:
    from perdure.server.service import Check, Service

logger = get_logger("server")

ASK_SECONDS = 2.0


async def readiness(service: Service) -> dict[str, str]:
    """`ok` or `unavailable`, by name. What is wrong stands in the log: the answer is open to all."""
    found = dict.fromkeys(service.backends, "unavailable")
    checks = [_check(name, check) for name, check in service.backends.items()]
    for name, verdict in await asyncio.gather(*checks):
        found[name] = verdict
    if service.runs.is_stopping:
        found["server"] = "stopping"
    return found


async def _check(name: str, check: Check) -> tuple[str, str]:
    try:
        async with asyncio.timeout(ASK_SECONDS):
            await check()
    except (PerdureError, OSError, TimeoutError) as error:  # what drivers raise is one of these
        said = error if isinstance(error, PerdureError) else type(error).__name__
        logger.info("%s is not ready: %s", name, said)
        return name, "unavailable"
    return name, "ok"
