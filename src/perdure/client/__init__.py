"""A typed client of `perdure serve`: `Client` for asyncio, `SyncClient` for everything else. Needs httpx."""

from __future__ import annotations

from perdure.errors import MissingExtra

try:
    import httpx  # noqa: F401  # every module below imports it; the error here names the extra
except ImportError as missing:
    raise MissingExtra("perdure.client", "httpx", "client") from missing

from perdure.client.async_client import Client as Client
from perdure.client.connection import Patience as Patience
from perdure.client.errors import *  # noqa: F403  # each error is public
from perdure.client.models import *  # noqa: F403  # as each answer
from perdure.client.sync_client import SyncClient as SyncClient

__all__ = [
    name for name, value in globals().items() if isinstance(value, type) and value.__module__.startswith(f"{__name__}.")
]
