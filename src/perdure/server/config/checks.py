"""What types do not say: ranges, shapes of texts, and which keys go together."""

from __future__ import annotations

import math
import re
from ipaddress import ip_network
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from perdure.errors import did_you_mean
from perdure.server.config.reading import OBJECT_PATH, ConfigReader, fields_of
from perdure.server.config.schema import AuthConfig, AuthorizationConfig, LimitsConfig, RateLimitConfig, ServerConfig

DOCUMENTS = (".json", ".yaml", ".yml")
STORE_SCHEMES = ("sqlite", "file", "memory", "postgresql", "postgres")
STORE_FILES = (".db", ".sqlite", ".sqlite3")
REDIS_SCHEMES = ("redis", "rediss", "valkey", "valkeys", "unix")
LONGEST_NAME = 255
_STORES = "sqlite:///threads.db, file:folder, postgresql://host/database or memory:"
_VARIABLE = re.compile(r"[^\W\d]\w*", re.ASCII)
_SCOPE = re.compile(r"\*|[\w-]+:([\w-]+|\*)")


def is_store_url(text: str) -> bool:
    """Whether a checkpointer is one, and not a `module:attribute`."""
    return text.partition(":")[0].lower() in STORE_SCHEMES or "://" in text or text.endswith(STORE_FILES)


def check(config: ServerConfig, reading: ConfigReader) -> None:
    """Say all that is wrong with values whose types are right."""
    _check_what_runs(config, reading)
    _check_storage(config, reading)
    if config.thread_name_generator is not None:
        _check_object(reading, "thread_name_generator", config.thread_name_generator)
    _check_auth(config.auth, reading)
    _check_authorization(config.authorization, reading)
    if config.rate_limit is not None:
        _check_rate_limit(config.rate_limit, config.redis, reading)
    _check_cors(config, reading)
    _check_limits(config.limits, reading)
    _check_address(config, reading)


def _demand(reading: ConfigReader, path: str, is_right: bool, what: str, value: Any) -> None:
    if not is_right and reading.is_well(path):
        reading.expected(path, what, value)


# ---------------------------------------------------------------- what runs, and where it is kept


def _check_what_runs(config: ServerConfig, reading: ConfigReader) -> None:
    if config.agent is None and not config.workflows and reading.is_well("agent", "workflows"):
        reading.say("agent", "nothing is named that could run. Name a workflow or an agent, such as 'graph.react:app'.")
    named = {"agent": config.agent} | {f"workflows.{name}": path for name, path in config.workflows.items()}
    for path, value in named.items():
        if value is not None and not value.lower().endswith(DOCUMENTS):
            _check_object(reading, path, value, " or a document of a workflow, such as 'review.yaml'")
    for name in config.workflows:
        is_name = bool(name) and len(name) <= LONGEST_NAME and "/" not in name and name.isprintable()
        _demand(reading, f"workflows.{name}", is_name, "a name that can stand in a URL, without '/'", name)


def _check_object(reading: ConfigReader, path: str, value: str, more: str = "") -> None:
    if OBJECT_PATH.fullmatch(value) or not reading.is_well(path):
        return
    module, _, attribute = value.partition(":")
    module = module.removesuffix(".py").strip("./").replace("/", ".")
    is_file = bool(attribute)
    meant = f"{module}:{attribute}" if is_file else ":".join(value.rsplit(".", 1))
    hint = ""
    if OBJECT_PATH.fullmatch(meant):  # nothing else is shown: it may be a URL with a password
        hint = f" A module is named, not a file: try {meant!r}." if is_file else f" Try {meant!r}."
    shown = reading.shown(path, value)
    reading.say(path, f"expected a 'module:attribute', such as 'graph.react:app'{more}, got {shown}.{hint}")


def _check_storage(config: ServerConfig, reading: ConfigReader) -> None:
    url = config.checkpointer
    if url is not None and reading.is_well("checkpointer"):
        scheme = url.partition(":")[0].lower()
        if "://" in url and scheme not in STORE_SCHEMES:
            guess = did_you_mean(scheme, STORE_SCHEMES)
            reading.say("checkpointer", f"{scheme!r} is no scheme of a storage{guess}. Expected {_STORES}.")
        elif not is_store_url(url):
            _check_object(reading, "checkpointer", url, f" of a storage, or its URL, such as {_STORES}")
    if config.redis is not None and reading.is_well("redis"):
        scheme, found, rest = config.redis.partition("://")
        if not found or not rest or scheme.lower() not in REDIS_SCHEMES:
            reading.expected("redis", "a URL such as 'redis://host:6379/0'", config.redis)


# ---------------------------------------------------------------- who may do what


def _check_auth(auth: AuthConfig, reading: ConfigReader) -> None:
    _check_path_of(reading, "auth", "method", auth.method == "custom", auth.path)
    _demand(reading, "auth.keys_file", bool(auth.keys_file.strip()), "the name of a file", auth.keys_file)
    is_variable = _VARIABLE.fullmatch(auth.secret_env) is not None
    _demand(reading, "auth.secret_env", is_variable, "the name of an environment variable", auth.secret_env)
    _demand(reading, "auth.user_claim", bool(auth.user_claim), "the name of a claim", auth.user_claim)


def _check_path_of(reading: ConfigReader, part: str, choice: str, is_custom: bool, path: str | None) -> None:
    if not reading.is_well(f"{part}.{choice}", f"{part}.path"):
        return
    if is_custom and path is None:
        reading.say(f"{part}.path", f"{part}.{choice} is 'custom', so a 'module:attribute' is needed here.")
    elif not is_custom and path is not None:
        reading.say(f"{part}.path", f"it has a meaning only with {part}.{choice} 'custom'. Set that, or remove it.")
    elif path is not None:
        _check_object(reading, f"{part}.path", path)


def _check_authorization(given: AuthorizationConfig, reading: ConfigReader) -> None:
    _check_path_of(reading, "authorization", "backend", given.backend == "custom", given.path)
    has_roles = bool(given.roles or given.default_scopes)
    if reading.is_well("authorization"):
        if given.backend == "rbac" and not has_roles:
            reading.say(
                "authorization.roles", "authorization.backend is 'rbac', so roles or default_scopes are needed."
            )
        elif given.backend != "rbac" and has_roles:
            key = "roles" if given.roles else "default_scopes"
            reading.say(f"authorization.{key}", "it has a meaning only with authorization.backend 'rbac'.")
    lists = {"default_scopes": given.default_scopes} | {f"roles.{name}": one for name, one in given.roles.items()}
    for name, scopes in lists.items():
        for index, scope in enumerate(scopes):
            is_scope = _SCOPE.fullmatch(scope) is not None
            _demand(reading, f"authorization.{name}[{index}]", is_scope, "a scope such as 'graph:invoke' or '*'", scope)


# ---------------------------------------------------------------- how much, and from where


def _check_rate_limit(given: RateLimitConfig, redis: str | None, reading: ConfigReader) -> None:
    _demand(reading, "rate_limit.requests", given.requests >= 1, "1 or more", given.requests)
    is_window = 0 < given.window < math.inf
    _demand(reading, "rate_limit.window", is_window, "a number of seconds, more than 0", given.window)
    if given.backend == "redis" and redis is None and reading.is_well("redis", "rate_limit.backend"):
        reading.say("rate_limit.backend", "it is 'redis', and no `redis` is named. Name one, or use 'memory'.")
    for index, proxy in enumerate(given.trusted_proxies):
        what = "an address or a network, such as '10.0.0.0/8'"
        _demand(reading, f"rate_limit.trusted_proxies[{index}]", _is_network(proxy), what, proxy)
    for index, path in enumerate(given.exclude_paths):
        is_path = path.startswith("/")
        _demand(reading, f"rate_limit.exclude_paths[{index}]", is_path, "a path that begins with '/'", path)


def _is_network(text: str) -> bool:
    try:
        ip_network(text, strict=False)
    except ValueError:
        return False
    return True


def _check_cors(config: ServerConfig, reading: ConfigReader) -> None:
    cors = config.cors
    for index, origin in enumerate(cors.origins):
        what = "an origin, such as 'https://example.com', without a path, or '*'"
        if not _is_origin(origin) and reading.is_well(f"cors.origins[{index}]"):
            shown = origin if "@" not in origin else "a URL with a user"
            reading.say(f"cors.origins[{index}]", f"expected {what}, got {shown!r}.")
    if cors.allow_credentials and "*" in cors.origins:
        reading.say(
            "cors.allow_credentials",
            "with the origin '*' any page that a user visits could act for them. Name the origins one by one.",
        )


def _is_origin(text: str) -> bool:
    if text == "*":
        return True
    try:
        split = urlsplit(text)
        has_port = split.port is None or 0 < split.port < 65536
    except ValueError:
        return False
    return has_port and bool(split.hostname) and text == f"{split.scheme}://{split.netloc}" and "@" not in split.netloc


def _check_limits(limits: LimitsConfig, reading: ConfigReader) -> None:
    for name in fields_of(LimitsConfig):
        value = getattr(limits, name)
        if isinstance(value, float):
            is_right, what = 0 < value < math.inf, "a number of seconds, more than 0"
        else:
            least = 0 if name == "max_waiting" else 1
            is_right, what = value >= least, f"{least} or more"
        _demand(reading, f"limits.{name}", is_right, what, value)


def _check_address(config: ServerConfig, reading: ConfigReader) -> None:
    _demand(reading, "port", 0 <= config.port < 65536, "a port: 1 to 65535, or 0 for one that is free", config.port)
    is_host = bool(config.host) and re.fullmatch(r"[\w.:%\[\]-]+", config.host) is not None
    _demand(reading, "host", is_host, "an address or a name of this machine, without a scheme", config.host)
    root = config.root_path
    is_root = root == "" or (root.startswith("/") and not root.endswith("/") and root.isprintable())
    _demand(reading, "root_path", is_root, "a path such as '/agents', with '/' before it and none behind it", root)
    if config.env is not None:
        _demand(reading, "env", bool(Path(config.env).name), "the name of a file", config.env)
