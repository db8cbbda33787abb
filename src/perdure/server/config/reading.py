"""Reads the tree of a file as configuration values, checks them, and collects all mistakes, without secrets."""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import cache
from ipaddress import ip_network
from pathlib import Path
from typing import Annotated, Any, get_args, get_origin
from urllib.parse import urlsplit

import msgspec

from perdure.errors import did_you_mean
from perdure.server.config.schema import (
    AuthConfig,
    AuthorizationConfig,
    ConfigProblem,
    InvalidConfig,
    RateLimitConfig,
    ServerConfig,
)
from perdure.tree_reader import INVALID, TreeReader, bare, choices_of, fields_of, is_struct
from perdure.valkey_client import SCHEMES

SET_BY_THE_LOADER = "folder"
LONGEST_SHOWN = 60
_NEVER_SHOWN = ("auth.secret_env", "redis")
_SIGNS_OF_A_SECRET = ("@", "://", "password", "secret", "token")


class ConfigReader(TreeReader):
    """Collects the problems and warnings of one configuration."""

    def __init__(self, source: str | None) -> None:
        self.source = source
        self.problems: list[ConfigProblem] = []
        self.warnings: list[str] = []
        self.variables: dict[str, str] = {}
        """The environment variable that set a key."""
        self.as_written: dict[str, str] = {}
        """Values with `${NAME}` as written in the file: the expanded value may be a secret."""
        self._problem_paths: set[str] = set()

    def report(self, path: str, problem: str) -> None:
        """Add a problem of a key."""
        self._problem_paths.add(path)
        variable, place = self._variable_of(path)
        sentence = problem if problem.endswith(".") else f"{problem}."
        self.problems.append(ConfigProblem(self.source if variable is None else None, place, sentence))

    def at(self, path: str, key: str | int) -> str:
        if isinstance(key, int):
            return f"{path}[{key}]"
        return f"{path}.{key}" if path else key

    def _variable_of(self, path: str) -> tuple[str | None, str]:
        """The variable that set this key or a part above it, and the place to report."""
        above = path
        while above:
            variable = self.variables.get(above)
            if variable is not None:
                return variable, f"{variable}: {path}" if path != above else variable
            above = above.rpartition(".")[0]
        return None, path

    def has_no_problem(self, *paths: str) -> bool:
        """Whether these keys and all keys below them have no problem."""
        below = tuple(f"{path}{mark}" for path in paths for mark in ".[")
        return not any(path in paths or path.startswith(below) for path in self._problem_paths)

    def quote_value(self, path: str, value: Any) -> str:
        """A value for a message, without secrets."""
        if isinstance(value, Mapping):
            return "an object"
        if isinstance(value, list | tuple):
            return "a list"
        if not isinstance(value, str):
            return "null" if value is None else repr(value).lower()
        if path in self.as_written:
            return repr(self.as_written[path])
        if "://" in value:
            return f"'{value.partition('://')[0][:20]}://...'"
        if path in _NEVER_SHOWN or any(sign in value.lower() for sign in _SIGNS_OF_A_SECRET):
            return "another text"
        return repr(value if len(value) <= LONGEST_SHOWN else f"{value[:LONGEST_SHOWN]}...")

    def fields(self, kind: type[msgspec.Struct]) -> dict[str, msgspec.structs.FieldInfo]:
        return config_fields(kind)

    def describe(self, hint: Any) -> str:
        return super().describe(hint) + (", or null" if choices_of(hint)[1] else "")

    def unknown_key(self, kind: type[msgspec.Struct], key: str, known: list[str]) -> str:
        if issubclass(kind, AuthConfig) and "secret" in key.lower():
            return "a file must not contain a secret. Put it into the environment variable that secret_env names."
        if kind is ServerConfig and key == SET_BY_THE_LOADER:
            return "the project's folder is the folder of the file. Remove the key."
        guess = did_you_mean(key, known)
        return f"unknown key{guess}." + ("" if guess else f" Keys: {', '.join(known)}.")

    def read(self, hint: Any, value: Any, path: str) -> Any:
        """Null for a part means its defaults."""
        return INVALID if value is None and is_struct(hint) else super().read(hint, value, path)

    def read_leaf(self, hint: Any, value: Any, path: str) -> Any:
        """The type is checked before the range: they have different words."""
        if get_origin(hint) is Annotated and super().read_leaf(bare(hint), value, path) is INVALID:
            return INVALID
        return super().read_leaf(hint, value, path)


@cache
def config_fields(kind: type[msgspec.Struct]) -> dict[str, msgspec.structs.FieldInfo]:
    """The keys that a file may contain."""
    return {key: field for key, field in fields_of(kind).items() if (kind, key) != (ServerConfig, SET_BY_THE_LOADER)}


METHODS = get_args(fields_of(AuthConfig)["method"].type)
BACKENDS = {
    "ownership": "ownership",
    "allow_all": "allow_all",
    "default": "allow_all",
    "none": "allow_all",
    "rbac": "rbac",
}
_NAME = r"[^\W\d]\w*(\.[^\W\d]\w*)*"
OBJECT_PATH = re.compile(rf"{_NAME}:{_NAME}")
"""`module:attribute`."""


def expand_shorthand(tree: Mapping[str, Any], reader: ConfigReader) -> dict[str, Any]:
    """The tree with an object for each part. Reports and drops a value that cannot be converted."""
    whole = dict(tree)
    for key, write_out in (("auth", _auth), ("authorization", _authorization)):
        part = whole.pop(key, None)
        if not (part is None or isinstance(part, Mapping)):
            part = write_out(part, reader)
        if part is not None:
            whole[key] = part
    return whole


def _auth(value: Any, reader: ConfigReader) -> Any:
    if value in METHODS:
        return {"method": value}
    guess = did_you_mean(value, METHODS) if isinstance(value, str) else ""
    got = "another text" if isinstance(value, str) else reader.quote_value("auth", value)  # the text may be the secret
    methods = reader.list_choices(METHODS)
    reader.report("auth", f"expected null, one of {methods}, or an object with `method`, got {got}{guess}.")
    return None


def _authorization(value: Any, reader: ConfigReader) -> Any:
    if isinstance(value, str) and value in BACKENDS:
        return {"backend": BACKENDS[value]}
    if isinstance(value, str) and OBJECT_PATH.fullmatch(value):
        return {"backend": "custom", "path": value}
    guess = did_you_mean(value, BACKENDS) if isinstance(value, str) else ""
    backends = reader.list_choices(tuple(BACKENDS))
    words = f"null, one of {backends}, a 'module:attribute', or an object with `backend`"
    reader.report_expected("authorization", words, value, guess)
    return None


DOCUMENTS = (".json", ".yaml", ".yml")
STORE_SCHEMES = ("sqlite", "file", "memory", "postgresql", "postgres")
STORE_FILES = (".db", ".sqlite", ".sqlite3")

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
    root = config.root_path
    is_root = root == "" or (root.startswith("/") and not root.endswith("/") and root.isprintable())
    _demand(reader, "root_path", is_root, "a path such as '/agents', with a leading '/' and no trailing one", root)
    if config.env is not None:
        _demand(reader, "env", bool(Path(config.env).name), "the name of a file", config.env)


def refuse_mistakes(config: ServerConfig, part: str) -> None:
    """Raises InvalidConfig for the mistakes in a part, such as `auth`, of a configuration that a program made."""
    reader = ConfigReader(None)
    reader.read_struct(ServerConfig, msgspec.to_builtins(msgspec.structs.replace(config, folder=".")), "")
    check(config, reader)
    problems = [problem for problem in reader.problems if problem.place.partition(".")[0] == part]
    if problems:
        raise InvalidConfig(problems)


def _demand(reader: ConfigReader, path: str, is_right: bool, what: str, value: Any) -> None:
    if not is_right and reader.has_no_problem(path):
        reader.report_expected(path, what, value)


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
        if not separator or not rest or scheme.lower() not in SCHEMES:
            reader.report_expected("redis", "a URL such as 'redis://host:6379/0'", config.redis)


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
        if settings.backend == "ownership" and settings.isolation == "none":
            reader.report(
                "authorization.isolation",
                "it is 'none', but the backend 'ownership' gives each user separate threads. Choose the backend "
                "'allow_all', or 'rbac' with isolation 'none'.",
            )
        if settings.backend == "rbac" and not has_roles:
            reader.report(
                "authorization.roles",
                "authorization.backend is 'rbac', so roles or default_scopes are needed. Name roles, such as "
                '{"operator": ["graph:*"]}.',
            )
        elif settings.backend != "rbac" and has_roles:
            key = "roles" if settings.roles else "default_scopes"
            reader.report(f"authorization.{key}", "it has an effect only with authorization.backend 'rbac'.")


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
