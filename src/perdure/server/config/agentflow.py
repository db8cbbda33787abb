"""`agentflow.json`: each of its keys works, or is refused with what to do instead. Nothing is ignored in silence."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from perdure.errors import did_you_mean
from perdure.server.config.reading import ConfigReader, fields_of
from perdure.server.config.schema import RateLimitConfig, ServerConfig

NAMES = ("agentflow.json", ".agentflow.json", "agentflow.config.json")
AS_THEY_ARE = ("agent", "env", "checkpointer", "redis", "thread_name_generator", "auth", "authorization")
IGNORED = {
    "test": "it is about running tests: use pytest",
    "evaluation": "it is about judging agents, which the server does not do",
}
"""Harmless: they do not concern a server."""
REFUSED = {
    "store": "a server of perdure keeps threads, and no memories beside them. Open the store in the module of your "
    "agent, and give it to the tools that use it",
    "injectq": "nothing is injected here. Make what your agent needs in its module, and pass it on as arguments",
    "remote_tools": "tools of clients are not called by the server. Ask the client with a request, "
    "`ctx.request_info(...)`: it answers with POST /v1/threads/{id}/requests/{request_id}/answer",
}
"""Unless they are null or empty. What they do would be missed."""
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


def translated(tree: Mapping[str, Any], reading: ConfigReader) -> dict[str, Any]:
    """The keys of perdure that mean the same. Those of perdure itself may stand in the file too."""
    whole: dict[str, Any] = {}
    own = fields_of(ServerConfig)
    known = [*own, *IGNORED, *REFUSED, *_TRANSLATORS]
    for key, value in tree.items():
        if key in AS_THEY_ARE:
            whole[key] = value
        elif key in _TRANSLATORS:
            if value is not None:
                _TRANSLATORS[key](value, whole, reading)
        elif key in IGNORED:
            reading.warnings.append(f"{reading.source}: {key} is ignored: {IGNORED[key]}.")
        elif key in REFUSED:
            if value not in (None, [], {}):
                reading.say(key, f"{REFUSED[key]}. Then remove the key.")
        elif key in own:
            _merge(whole, key, value)
        else:
            reading.say(key, f"there is no such key{did_you_mean(key, known)}.")
    return whole


def _merge(whole: dict[str, Any], key: str, value: Any) -> None:
    inner = whole.get(key)
    both = isinstance(inner, dict) and isinstance(value, Mapping)
    whole[key] = {**inner, **value} if isinstance(inner, dict) and both else value


def _below(path: str, given: Any, reading: ConfigReader) -> dict[str, Any]:
    """What stands in an object, without the keys that it should not have."""
    if not isinstance(given, Mapping):
        reading.expected(path, "an object", given)
        return {}
    known = KEYS_BELOW[path]
    for key in given:
        if key not in known:
            reading.say(f"{path}.{key}", f"there is no such key{did_you_mean(str(key), known)}.")
    return {key: value for key, value in given.items() if key in known}


# ---------------------------------------------------------------- rate limits


def _rate_limit(given: Any, whole: dict[str, Any], reading: ConfigReader) -> None:
    if not isinstance(given, Mapping):
        whole["rate_limit"] = given  # refused with the rest
        return
    limits = {key: value for key, value in given.items() if key not in OWN_OF_RATE_LIMIT}
    known = [*fields_of(RateLimitConfig), *OWN_OF_RATE_LIMIT]
    for key in [key for key in limits if key not in known]:
        del limits[key]
        reading.say(f"rate_limit.{key}", f"there is no such key{did_you_mean(str(key), known)}.")
    if limits.get("backend") == "custom":
        del limits["backend"]
        reading.say(
            "rate_limit.backend", "limits of your own are not called. Use 'memory', or 'redis' for several servers."
        )
    _proxies(given, limits, reading)
    if given.get("redis") is not None:
        _redis(_below("rate_limit.redis", given["redis"], reading), limits, whole, reading)
    whole["rate_limit"] = limits


def _proxies(given: Mapping[str, Any], limits: dict[str, Any], reading: ConfigReader) -> None:
    believes, hops = given.get("trusted_proxy_headers", False), given.get("trusted_proxy_hops", 1)
    if not isinstance(believes, bool):
        reading.expected("rate_limit.trusted_proxy_headers", "true or false", believes)
    elif believes and not given.get("trusted_proxies"):
        reading.say(
            "rate_limit.trusted_proxy_headers",
            "anybody could write such headers. Say whose are believed: rate_limit.trusted_proxies, with the addresses "
            "or networks of your proxies.",
        )
    elif not believes and limits.pop("trusted_proxies", None):
        reading.warnings.append(
            f"{reading.source}: rate_limit.trusted_proxies is ignored, since trusted_proxy_headers is false."
        )
    if hops != 1 or isinstance(hops, bool):
        reading.say(
            "rate_limit.trusted_proxy_hops",
            "proxies are not counted, but known by their addresses: name all of them in rate_limit.trusted_proxies, "
            "and remove this key.",
        )


def _redis(given: dict[str, Any], limits: dict[str, Any], whole: dict[str, Any], reading: ConfigReader) -> None:
    if "prefix" in given:
        limits["prefix"] = given["prefix"]
    url = given.get("url")
    if url is None:
        return
    if not isinstance(url, str):
        reading.expected("rate_limit.redis.url", "a text", url)
    elif whole.setdefault("redis", url) != url:
        reading.say("rate_limit.redis.url", "it is another than `redis`, and there is one for all. Name one of them.")


# ---------------------------------------------------------------- what is different here


def _websocket(given: Any, whole: dict[str, Any], reading: ConfigReader) -> None:
    keys = _below("websocket", given, reading)
    if "max_connections" in keys:
        count = keys["max_connections"]
        if type(count) is int and count >= 1:
            _merge(whole, "limits", {"max_streams": count, **(whole.get("limits") or {})})
        else:
            reading.expected("websocket.max_connections", "1 or more", count)
    if keys.get("max_connections_per_user") not in (None, 0):
        reading.say(
            "websocket.max_connections_per_user",
            "sockets are counted for all users together: websocket.max_connections. How often one user may ask is "
            "limited by rate_limit with by 'user'. Set it to 0, or remove it.",
        )
    if keys.get("realtime_models"):
        reading.say("websocket.realtime_models", "sound is not streamed here. Remove the key.")


def _ag_ui(given: Any, whole: dict[str, Any], reading: ConfigReader) -> None:
    if _below("ag_ui", given, reading).get("enabled"):
        reading.say(
            "ag_ui.enabled",
            "AG-UI is not spoken here. Clients follow GET /v1/threads/{id}/events, and can go on from a cursor. Set it "
            "to false, or remove ag_ui.",
        )


def _observability(given: Any, whole: dict[str, Any], reading: ConfigReader) -> None:
    keys = _below("observability", given, reading)
    if "level" in keys:
        reading.warnings.append(
            f"{reading.source}: observability.level is ignored: spans are those of OpenTelemetry, all of them or none."
        )
    for name in EXPORTERS:
        place = f"observability.{name}"
        if keys.get(name) is not None and _below(place, keys[name], reading).get("enabled"):
            reading.say(
                f"{place}.enabled",
                "spans go out by OpenTelemetry alone. Set OTEL_EXPORTER_OTLP_ENDPOINT and OTEL_EXPORTER_OTLP_HEADERS "
                "to what this service gives you, and set this to false.",
            )


_TRANSLATORS: dict[str, Callable[[Any, dict[str, Any], ConfigReader], None]] = {
    "rate_limit": _rate_limit,
    "websocket": _websocket,
    "ag_ui": _ag_ui,
    "observability": _observability,
}
