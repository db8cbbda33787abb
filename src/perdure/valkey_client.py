"""A client of the Valkey or Redis that a URL names. The driver is imported when the first client is made."""

from __future__ import annotations

from typing import Any
from urllib.parse import urlsplit

from perdure.errors import MissingExtra

SCHEMES = {"redis": "redis", "rediss": "rediss", "valkey": "redis", "valkeys": "rediss", "unix": "unix"}


def parse_valkey_url(url: object, feature: str) -> tuple[str, dict[str, Any]]:
    """The address for messages, without the password, and the options of the driver.

    Raises MissingExtra for the feature, and ValueError, whose text has no part of the URL.
    """
    try:
        from redis.asyncio.connection import parse_url
    except ImportError as error:
        raise MissingExtra(feature, "redis", "redis") from error
    try:
        scheme, _, rest = str(url).partition("://")
        library_url = f"{SCHEMES[scheme.lower()]}://{rest}"
        options = dict(parse_url(library_url))
    except (KeyError, ValueError):
        raise ValueError("not the URL of a Valkey or Redis") from None  # the driver's text may contain the password
    database = urlsplit(library_url).path.strip("/")
    if not library_url.startswith("unix") and database and not database.isdecimal():
        raise ValueError("the database is not a number")
    host, port = options.get("host") or "localhost", options.get("port") or 6379
    return str(options.get("path") or f"{host}:{port}"), options


def make_valkey_client(options: dict[str, Any], timeout_seconds: float) -> Any:
    """It connects when it is first used, and retries nothing. It belongs to one event loop."""
    from redis.asyncio import ConnectionPool, Redis
    from redis.asyncio.retry import Retry
    from redis.backoff import NoBackoff

    ours = {
        "protocol": 2,
        "decode_responses": False,
        "socket_timeout": timeout_seconds,
        "socket_connect_timeout": timeout_seconds,
        "retry": Retry(NoBackoff(), 0),
        "retry_on_error": [],
        "health_check_interval": 0,
    }
    return Redis.from_pool(ConnectionPool(**{**options, **ours}))
