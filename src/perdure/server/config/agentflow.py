"""`agentflow.json`: translates its keys. Unsupported keys are errors with advice; ignored keys give a warning."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from perdure.errors import did_you_mean
from perdure.server.config.reading import ConfigReader, config_fields
from perdure.server.config.schema import ConfigPart, Count, RateLimitConfig, ServerConfig
from perdure.tree_reader import INVALID

NAMES = ("agentflow.json", ".agentflow.json", "agentflow.config.json")
IGNORED = {
    "test": "it configures tests: use pytest",
    "evaluation": "it configures evaluations, which the server does not run",
}
"""Keys without meaning for a server."""
REFUSED = {
    "store": "the server stores threads, but no separate memories. Open the store in the module of your agent and pass "
    "it to the tools that use it",
    "injectq": "the server has no dependency injection. Create the objects in the module of your agent and pass them "
    "as arguments",
    "remote_tools": "the server does not call tools of clients. Send it a request with `ctx.request_info(...)`: "
    "it answers with POST /v1/threads/{id}/requests/{request_id}/answer",
}
"""Errors unless null or empty, because their effect would be missing."""


class RedisPart(ConfigPart, frozen=True):
    url: str | None = None
    prefix: str | None = None


class RateLimitPart(RateLimitConfig, frozen=True):
    trusted_proxy_headers: bool = False
    trusted_proxy_hops: Any = 1
    redis: RedisPart | None = None


def _make_part(keys: str, **types: Any) -> type[msgspec.Struct]:
    """A part with these keys of any value, and others of these types."""
    hints = {**dict.fromkeys(keys.split(), Any), **types}
    return msgspec.defstruct("Part", [(key, hint | None, None) for key, hint in hints.items()], bases=(ConfigPart,))


_PARTS = {
    "websocket": _make_part("max_connections_per_user realtime_models", max_connections=Count),
    "ag_ui": _make_part("enabled allow_client_tools"),
    "observability": _make_part(
        "level",
        logfire=_make_part("enabled service_name send_to_logfire console"),
        langsmith=_make_part("enabled project endpoint"),
    ),
}


def translate(tree: Mapping[str, Any], reader: ConfigReader) -> dict[str, Any]:
    """Translate to perdure's keys, which the file may contain too."""
    whole: dict[str, Any] = {}
    own = config_fields(ServerConfig)
    keys = [*own, *IGNORED, *REFUSED, *_PARTS]
    for key, value in tree.items():
        if key == "rate_limit" and value is not None:
            _rate_limit(value, whole, reader)
        elif key in _PARTS:
            if value is not None:
                _part(key, value, whole, reader)
        elif key in IGNORED:
            reader.warnings.append(f"{reader.source}: {key} is ignored: {IGNORED[key]}.")
        elif key in REFUSED:
            if value not in (None, [], {}):
                reader.report(key, f"{REFUSED[key]}. Then remove the key.")
        elif key in own:
            _merge(whole, key, value)
        else:
            reader.report(key, f"unknown key{did_you_mean(key, keys)}.")
    return whole


def _merge(whole: dict[str, Any], key: str, value: Any) -> None:
    inner = whole.get(key)
    whole[key] = {**inner, **value} if isinstance(inner, dict) and isinstance(value, Mapping) else value


def _rate_limit(value: Any, whole: dict[str, Any], reader: ConfigReader) -> None:
    if not isinstance(value, Mapping):
        whole["rate_limit"] = value  # reported with the other keys
        return
    reader.report_unknown_keys(RateLimitPart, value, "rate_limit")
    limits = {key: value[key] for key in config_fields(RateLimitConfig) if key in value}
    whole["rate_limit"] = limits
    if limits.get("backend") == "custom":
        del limits["backend"]
        reader.report(
            "rate_limit.backend", "custom rate limits are not supported. Use 'memory', or 'redis' for several servers."
        )
    _proxies(value, limits, reader)
    redis = reader.read(RedisPart | None, value.get("redis"), "rate_limit.redis")
    if redis in (None, INVALID):
        return
    if redis.prefix is not None:
        limits["prefix"] = redis.prefix
    if redis.url is not None and whole.setdefault("redis", redis.url) != redis.url:
        reader.report("rate_limit.redis.url", "it differs from `redis`, but the server uses one URL. Keep one of them.")


def _proxies(value: Mapping[str, Any], limits: dict[str, Any], reader: ConfigReader) -> None:
    path = "rate_limit.trusted_proxy_headers"
    trusts = reader.read(bool, value.get("trusted_proxy_headers", False), path)
    if trusts is True and not value.get("trusted_proxies"):
        reader.report(
            path,
            "any client could write such headers. Set rate_limit.trusted_proxies to the addresses or networks of "
            "your proxies.",
        )
    elif trusts is False and limits.pop("trusted_proxies", None):
        reader.warnings.append(
            f"{reader.source}: rate_limit.trusted_proxies is ignored, because trusted_proxy_headers is false."
        )
    hops = value.get("trusted_proxy_hops", 1)
    if hops != 1 or isinstance(hops, bool):
        reader.report(
            "rate_limit.trusted_proxy_hops",
            "proxies are identified by address, not counted. Name all of them in rate_limit.trusted_proxies and "
            "remove this key.",
        )


_EXPORTER = (
    "only OpenTelemetry exports spans. Set OTEL_EXPORTER_OTLP_ENDPOINT and OTEL_EXPORTER_OTLP_HEADERS to the values of "
    "this service, and set this to false."
)
_REFUSED_BELOW = {
    "websocket.max_connections_per_user": "sockets are limited for all users together by websocket.max_connections. "
    "rate_limit with by 'user' limits the requests of one user. Set it to 0, or remove it.",
    "websocket.realtime_models": "the server does not stream sound. Remove the key.",
    "ag_ui.enabled": "the server does not support AG-UI. Clients follow GET /v1/threads/{id}/events and can reconnect "
    "with a cursor. Set it to false, or remove ag_ui.",
    "observability.logfire.enabled": _EXPORTER,
    "observability.langsmith.enabled": _EXPORTER,
}
"""Errors unless null, 0, false or empty."""


def _part(key: str, value: Any, whole: dict[str, Any], reader: ConfigReader) -> None:
    part: Any = reader.read_struct(_PARTS[key], value, key)
    if part is INVALID:
        return
    for path, sentence in _REFUSED_BELOW.items():
        if path.startswith(f"{key}.") and _has_value(value, path.removeprefix(f"{key}.")):
            reader.report(path, sentence)
    if key == "websocket" and part.max_connections is not None:
        _merge(whole, "limits", {"max_streams": part.max_connections, **(whole.get("limits") or {})})
    if key == "observability" and "level" in value:
        reader.warnings.append(
            f"{reader.source}: observability.level is ignored: OpenTelemetry exports all spans or none."
        )


def _has_value(tree: Any, path: str) -> bool:
    for key in path.split("."):
        tree = tree.get(key) if isinstance(tree, Mapping) else None
    return bool(tree)
