"""Checks beyond types and ranges: references, addresses, and keys that need each other."""

from __future__ import annotations

from ipaddress import ip_network
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from perdure.errors import did_you_mean
from perdure.server.config.reading import OBJECT_PATH, ConfigReader
from perdure.server.config.schema import AuthorizationConfig, RateLimitConfig, ServerConfig

DOCUMENTS = (".json", ".yaml", ".yml")
STORE_SCHEMES = ("sqlite", "file", "memory", "postgresql", "postgres")
STORE_FILES = (".db", ".sqlite", ".sqlite3")
REDIS_SCHEMES = ("redis", "rediss", "valkey", "valkeys", "unix")
LONGEST_NAME = 255
_STORES = "sqlite:///threads.db, file:folder, postgresql://host/database or memory:"


def is_store_url(text: str) -> bool:
    """Whether a checkpointer is a URL and not a `module:attribute`."""
    return text.partition(":")[0].lower() in STORE_SCHEMES or "://" in text or text.endswith(STORE_FILES)


def check(config: ServerConfig, reader: ConfigReader) -> None:
    """Report all mistakes in values of the right type."""
    _check_workflows(config, reader)
    _check_storage(config, reader)
    if config.thread_name_generator is not None:
        _check_object(reader, "thread_name_generator", config.thread_name_generator)
    _check_path_of(reader, "auth", "method", config.auth.method == "custom", config.auth.path)
    _check_authorization(config.authorization, reader)
    if config.rate_limit is not None:
        _check_rate_limit(config.rate_limit, config.redis, reader)
    _check_cors(config, reader)
    _check_paths(config, reader)


def _demand(reader: ConfigReader, path: str, is_right: bool, what: str, value: Any) -> None:
    if not is_right and reader.has_no_problem(path):
        reader.report_expected(path, what, value)


# ---------------------------------------------------------------- workflows and storage


def _check_workflows(config: ServerConfig, reader: ConfigReader) -> None:
    if config.agent is None and not config.workflows and reader.has_no_problem("agent", "workflows"):
        reader.report("agent", "no workflow is configured. Name a workflow or an agent, such as 'graph.react:app'.")
    paths = {"agent": config.agent} | {f"workflows.{name}": path for name, path in config.workflows.items()}
    for path, value in paths.items():
        if value is not None and not value.lower().endswith(DOCUMENTS):
            _check_object(reader, path, value, " or a workflow document, such as 'review.yaml'")
    for name in config.workflows:
        is_name = bool(name) and len(name) <= LONGEST_NAME and "/" not in name and name.isprintable()
        _demand(reader, f"workflows.{name}", is_name, "a name that is valid in a URL, without '/'", name)


def _check_object(reader: ConfigReader, path: str, value: str, more: str = "") -> None:
    if OBJECT_PATH.fullmatch(value) or not reader.has_no_problem(path):
        return
    module, _, attribute = value.partition(":")
    module = module.removesuffix(".py").strip("./").replace("/", ".")
    is_file = bool(attribute)
    meant = f"{module}:{attribute}" if is_file else ":".join(value.rsplit(".", 1))
    hint = ""
    if OBJECT_PATH.fullmatch(meant):  # other values are not shown: they may be URLs with a password
        hint = f" Name a module, not a file: try {meant!r}." if is_file else f" Try {meant!r}."
    quoted = reader.quote_value(path, value)
    reader.report(path, f"expected a 'module:attribute', such as 'graph.react:app'{more}, got {quoted}.{hint}")


def _check_storage(config: ServerConfig, reader: ConfigReader) -> None:
    url = config.checkpointer
    if url is not None and reader.has_no_problem("checkpointer"):
        scheme = url.partition(":")[0].lower()
        if "://" in url and scheme not in STORE_SCHEMES:
            guess = did_you_mean(scheme, STORE_SCHEMES)
            reader.report("checkpointer", f"{scheme!r} is not a storage scheme{guess}. Expected {_STORES}.")
        elif not is_store_url(url):
            _check_object(reader, "checkpointer", url, f" of a storage, or its URL, such as {_STORES}")
    if config.redis is not None and reader.has_no_problem("redis"):
        scheme, separator, rest = config.redis.partition("://")
        if not separator or not rest or scheme.lower() not in REDIS_SCHEMES:
            reader.report_expected("redis", "a URL such as 'redis://host:6379/0'", config.redis)


# ---------------------------------------------------------------- auth


def _check_path_of(reader: ConfigReader, part: str, choice: str, is_custom: bool, path: str | None) -> None:
    if not reader.has_no_problem(f"{part}.{choice}", f"{part}.path"):
        return
    if is_custom and path is None:
        reader.report(f"{part}.path", f"{part}.{choice} is 'custom', so a 'module:attribute' is needed here.")
    elif not is_custom and path is not None:
        reader.report(f"{part}.path", f"it has an effect only with {part}.{choice} 'custom'. Set that, or remove it.")
    elif path is not None:
        _check_object(reader, f"{part}.path", path)


def _check_authorization(settings: AuthorizationConfig, reader: ConfigReader) -> None:
    _check_path_of(reader, "authorization", "backend", settings.backend == "custom", settings.path)
    has_roles = bool(settings.roles or settings.default_scopes)
    if reader.has_no_problem("authorization"):
        if settings.backend == "rbac" and not has_roles:
            reader.report(
                "authorization.roles", "authorization.backend is 'rbac', so roles or default_scopes are needed."
            )
        elif settings.backend != "rbac" and has_roles:
            key = "roles" if settings.roles else "default_scopes"
            reader.report(f"authorization.{key}", "it has an effect only with authorization.backend 'rbac'.")


# ---------------------------------------------------------------- limits and addresses


def _check_rate_limit(settings: RateLimitConfig, redis: str | None, reader: ConfigReader) -> None:
    if settings.backend == "redis" and redis is None and reader.has_no_problem("redis", "rate_limit.backend"):
        reader.report("rate_limit.backend", "it is 'redis', but `redis` is not set. Set it, or use 'memory'.")
    for index, proxy in enumerate(settings.trusted_proxies):
        what = "an address or a network, such as '10.0.0.0/8'"
        _demand(reader, f"rate_limit.trusted_proxies[{index}]", _is_network(proxy), what, proxy)


def _is_network(text: str) -> bool:
    try:
        ip_network(text, strict=False)
    except ValueError:
        return False
    return True


def _check_cors(config: ServerConfig, reader: ConfigReader) -> None:
    cors = config.cors
    for index, origin in enumerate(cors.origins):
        what = "an origin, such as 'https://example.com', without a path, or '*'"
        if not _is_origin(origin) and reader.has_no_problem(f"cors.origins[{index}]"):
            quoted = origin if "@" not in origin else "a URL with a user"
            reader.report(f"cors.origins[{index}]", f"expected {what}, got {quoted!r}.")
    if cors.allow_credentials and "*" in cors.origins:
        reader.report(
            "cors.allow_credentials",
            "with the origin '*' any page that a user visits could act for them. Name each origin.",
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


def _check_paths(config: ServerConfig, reader: ConfigReader) -> None:
    root = config.root_path
    is_root = root == "" or (root.startswith("/") and not root.endswith("/") and root.isprintable())
    _demand(reader, "root_path", is_root, "a path such as '/agents', with a leading '/' and no trailing one", root)
    if config.env is not None:
        _demand(reader, "env", bool(Path(config.env).name), "the name of a file", config.env)
