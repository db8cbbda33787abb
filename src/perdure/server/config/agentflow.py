"""`agentflow.json`: translates its keys. Unsupported keys are errors with advice; ignored keys give a warning."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from perdure.errors import did_you_mean
from perdure.server.config.reading import ConfigReader, fields_of
from perdure.server.config.schema import RateLimitConfig, ServerConfig

NAMES = ("agentflow.json", ".agentflow.json", "agentflow.config.json")
SAME_KEYS = ("agent", "env", "checkpointer", "redis", "thread_name_generator", "auth", "authorization")
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
KEYS_BELOW = {
    "websocket": ("max_connections", "max_connections_per_user", "realtime_models"),
    "ag_ui": ("enabled", "allow_client_tools"),
    "observability": ("level", "logfire", "langsmith"),
    "observability.logfire": ("enabled", "service_name", "send_to_logfire", "console"),
    "observability.langsmith": ("enabled", "project", "endpoint"),
    "rate_limit.redis": ("url", "prefix"),
}
OWN_OF_RATE_LIMIT = ("trusted_proxy_headers", "trusted_proxy_hops", "redis")
EXPORTERS = ("logfire", "langsmith")


def translate(tree: Mapping[str, Any], reader: ConfigReader) -> dict[str, Any]:
    """Translate to perdure's keys, which the file may contain too."""
    whole: dict[str, Any] = {}
    own = fields_of(ServerConfig)
    keys = [*own, *IGNORED, *REFUSED, *_TRANSLATORS]
    for key, value in tree.items():
        if key in SAME_KEYS:
            whole[key] = value
        elif key in _TRANSLATORS:
            if value is not None:
                _TRANSLATORS[key](value, whole, reader)
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
    both = isinstance(inner, dict) and isinstance(value, Mapping)
    whole[key] = {**inner, **value} if isinstance(inner, dict) and both else value


def _read_object(path: str, value: Any, reader: ConfigReader) -> dict[str, Any]:
    """The known keys of an object. Reports the others."""
    if not isinstance(value, Mapping):
        reader.report_expected(path, "an object", value)
        return {}
    keys = KEYS_BELOW[path]
    for key in value:
        if key not in keys:
            reader.report(f"{path}.{key}", f"unknown key{did_you_mean(str(key), keys)}.")
    return {key: entry for key, entry in value.items() if key in keys}


# ---------------------------------------------------------------- rate limits


def _rate_limit(value: Any, whole: dict[str, Any], reader: ConfigReader) -> None:
    if not isinstance(value, Mapping):
        whole["rate_limit"] = value  # reported with the other keys
        return
    limits = {key: entry for key, entry in value.items() if key not in OWN_OF_RATE_LIMIT}
    keys = [*fields_of(RateLimitConfig), *OWN_OF_RATE_LIMIT]
    for key in [key for key in limits if key not in keys]:
        del limits[key]
        reader.report(f"rate_limit.{key}", f"unknown key{did_you_mean(str(key), keys)}.")
    if limits.get("backend") == "custom":
        del limits["backend"]
        reader.report(
            "rate_limit.backend", "custom rate limits are not supported. Use 'memory', or 'redis' for several servers."
        )
    _proxies(value, limits, reader)
    if value.get("redis") is not None:
        _redis(_read_object("rate_limit.redis", value["redis"], reader), limits, whole, reader)
    whole["rate_limit"] = limits


def _proxies(value: Mapping[str, Any], limits: dict[str, Any], reader: ConfigReader) -> None:
    trusts, hops = value.get("trusted_proxy_headers", False), value.get("trusted_proxy_hops", 1)
    if not isinstance(trusts, bool):
        reader.report_expected("rate_limit.trusted_proxy_headers", "true or false", trusts)
    elif trusts and not value.get("trusted_proxies"):
        reader.report(
            "rate_limit.trusted_proxy_headers",
            "any client could write such headers. Set rate_limit.trusted_proxies to the addresses or networks of "
            "your proxies.",
        )
    elif not trusts and limits.pop("trusted_proxies", None):
        reader.warnings.append(
            f"{reader.source}: rate_limit.trusted_proxies is ignored, because trusted_proxy_headers is false."
        )
    if hops != 1 or isinstance(hops, bool):
        reader.report(
            "rate_limit.trusted_proxy_hops",
            "proxies are identified by address, not counted. Name all of them in rate_limit.trusted_proxies and "
            "remove this key.",
        )


def _redis(value: dict[str, Any], limits: dict[str, Any], whole: dict[str, Any], reader: ConfigReader) -> None:
    if "prefix" in value:
        limits["prefix"] = value["prefix"]
    url = value.get("url")
    if url is None:
        return
    if not isinstance(url, str):
        reader.report_expected("rate_limit.redis.url", "a text", url)
    elif whole.setdefault("redis", url) != url:
        reader.report("rate_limit.redis.url", "it differs from `redis`, but the server uses one URL. Keep one of them.")


# ---------------------------------------------------------------- other keys


def _websocket(value: Any, whole: dict[str, Any], reader: ConfigReader) -> None:
    keys = _read_object("websocket", value, reader)
    if "max_connections" in keys:
        count = keys["max_connections"]
        if type(count) is int and count >= 1:
            _merge(whole, "limits", {"max_streams": count, **(whole.get("limits") or {})})
        else:
            reader.report_expected("websocket.max_connections", "1 or more", count)
    if keys.get("max_connections_per_user") not in (None, 0):
        reader.report(
            "websocket.max_connections_per_user",
            "sockets are limited for all users together by websocket.max_connections. rate_limit with by 'user' "
            "limits the requests of one user. Set it to 0, or remove it.",
        )
    if keys.get("realtime_models"):
        reader.report("websocket.realtime_models", "the server does not stream sound. Remove the key.")


def _ag_ui(value: Any, whole: dict[str, Any], reader: ConfigReader) -> None:
    if _read_object("ag_ui", value, reader).get("enabled"):
        reader.report(
            "ag_ui.enabled",
            "the server does not support AG-UI. Clients follow GET /v1/threads/{id}/events and can reconnect with a "
            "cursor. Set it to false, or remove ag_ui.",
        )


def _observability(value: Any, whole: dict[str, Any], reader: ConfigReader) -> None:
    keys = _read_object("observability", value, reader)
    if "level" in keys:
        reader.warnings.append(
            f"{reader.source}: observability.level is ignored: OpenTelemetry exports all spans or none."
        )
    for name in EXPORTERS:
        path = f"observability.{name}"
        if keys.get(name) is not None and _read_object(path, keys[name], reader).get("enabled"):
            reader.report(
                f"{path}.enabled",
                "only OpenTelemetry exports spans. Set OTEL_EXPORTER_OTLP_ENDPOINT and OTEL_EXPORTER_OTLP_HEADERS "
                "to the values of this service, and set this to false.",
            )


_TRANSLATORS: dict[str, Callable[[Any, dict[str, Any], ConfigReader], None]] = {
    "rate_limit": _rate_limit,
    "websocket": _websocket,
    "ag_ui": _ag_ui,
    "observability": _observability,
}
