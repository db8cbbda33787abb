"""Converts the tree of a file to configuration values, and collects all mistakes."""

from __future__ import annotations

import re
from collections.abc import Mapping
from types import NoneType, UnionType
from typing import Any, Literal, Union, get_args, get_origin, get_type_hints

import msgspec

from perdure.errors import did_you_mean
from perdure.server.config.schema import AuthConfig, ConfigPart, ConfigProblem, ServerConfig

SET_BY_THE_LOADER = "folder"
LONGEST_SHOWN = 60
_WORDS: dict[Any, str] = {str: "a text", int: "a whole number", float: "a number", bool: "true or false"}
_NEVER_SHOWN = ("auth.secret_env", "redis")
_SIGNS_OF_A_SECRET = ("@", "://", "password", "secret", "token")


class ConfigReader:
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

    def report(self, path: str, sentence: str) -> None:
        """Add a problem of a key."""
        self._problem_paths.add(path)
        variable, place = self._variable_of(path)
        self.problems.append(ConfigProblem(self.source if variable is None else None, place, sentence))

    def _variable_of(self, path: str) -> tuple[str | None, str]:
        """The variable that set this key or a part above it, and the place to report."""
        above = path
        while above:
            variable = self.variables.get(above)
            if variable is not None:
                return variable, f"{variable}: {path}" if path != above else variable
            above = above.rpartition(".")[0]
        return None, path

    def report_expected(self, path: str, what: str, value: Any) -> None:
        self.report(path, f"expected {what}, got {self.quote_value(path, value)}.")

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


def fields_of(kind: type[ConfigPart]) -> dict[str, Any]:
    """The keys of a part, with their types."""
    hints = get_type_hints(kind)
    return {name: hints[name] for name in kind.__struct_fields__ if (kind, name) != (ServerConfig, SET_BY_THE_LOADER)}


def without_none(hint: Any) -> tuple[Any, bool]:
    """The type without None, and whether None is allowed."""
    if get_origin(hint) not in (Union, UnionType):
        return hint, False
    [rest] = [kind for kind in get_args(hint) if kind is not NoneType]
    return rest, True


def is_part(hint: Any) -> bool:
    return isinstance(hint, type) and issubclass(hint, ConfigPart)


def describe_type(hint: Any) -> str:
    """The expected type in words."""
    hint, may_be_null = without_none(hint)
    origin = get_origin(hint)
    if origin is Literal:
        words = f"one of {', '.join(repr(choice) for choice in get_args(hint))}"
    elif origin is tuple:
        words = f"a list of {_plural(get_args(hint)[0])}"
    else:
        words = _WORDS.get(hint, "an object")
    return f"{words}, or null" if may_be_null else words


def _plural(hint: Any) -> str:
    return "texts" if hint is str else "values"


def read_part(kind: type[ConfigPart], tree: Any, path: str, reader: ConfigReader) -> dict[str, Any]:
    """The valid values of a part. Reports the others."""
    if tree is None:
        return {}
    if not isinstance(tree, Mapping):
        reader.report_expected(path, "an object", tree)
        return {}
    fields = fields_of(kind)
    values = {}
    for key, raw in tree.items():
        key_path = f"{path}.{key}" if path else str(key)
        if key not in fields:
            reader.report(key_path, _no_such_key(kind, str(key), list(fields)))
            continue
        is_read, value = read_value(fields[key], raw, key_path, reader)
        if is_read:
            values[key] = value
    return values


def _no_such_key(kind: type[ConfigPart], key: str, keys: list[str]) -> str:
    if kind is AuthConfig and "secret" in key.lower():
        return "a file must not contain a secret. Put it into the environment variable that secret_env names."
    if kind is ServerConfig and key == SET_BY_THE_LOADER:
        return "the project's folder is the folder of the file. Remove the key."
    guess = did_you_mean(key, keys)
    return f"unknown key{guess}." + ("" if guess else f" Keys: {', '.join(keys)}.")


def read_value(hint: Any, raw: Any, path: str, reader: ConfigReader) -> tuple[bool, Any]:
    """Whether the value is valid, and the value. Reports an invalid value."""
    expected, may_be_null = without_none(hint)
    if raw is None and (may_be_null or is_part(expected)):
        return may_be_null, None  # null for a required part means its defaults
    before = len(reader.problems)
    value = raw
    if is_part(expected):
        value = msgspec.convert(read_part(expected, raw, path, reader), expected)
    elif get_origin(expected) is tuple and isinstance(raw, list | tuple):
        kind = get_args(expected)[0]
        value = tuple(read_value(kind, item, f"{path}[{index}]", reader)[1] for index, item in enumerate(raw))
    elif get_origin(expected) is dict and isinstance(raw, Mapping):
        kind = get_args(expected)[1]
        read = {key: read_value(kind, item, f"{path}.{key}", reader) for key, item in raw.items()}
        return True, {key: value for key, (is_read, value) in read.items() if is_read}
    else:
        value = _leaf(expected, hint, raw, path, reader)
    return is_part(expected) or len(reader.problems) == before, value


def _leaf(expected: Any, hint: Any, raw: Any, path: str, reader: ConfigReader) -> Any:
    try:
        return msgspec.convert(raw, expected)
    except msgspec.ValidationError:
        guess = ""
        if get_origin(expected) is Literal and isinstance(raw, str):
            guess = did_you_mean(raw, get_args(expected))
        reader.report(path, f"expected {describe_type(hint)}, got {reader.quote_value(path, raw)}{guess}.")
        return None


# ---------------------------------------------------------------- shorthand


METHODS = get_args(fields_of(AuthConfig)["method"])
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
        if key in whole:
            part = write_out(whole.pop(key), reader)
            if part is not None:
                whole[key] = part
    return whole


def _auth(value: Any, reader: ConfigReader) -> Any:
    if value is None or isinstance(value, Mapping):
        return value
    if value in METHODS:
        return {"method": value}
    guess = did_you_mean(value, METHODS) if isinstance(value, str) else ""
    got = "another text" if isinstance(value, str) else reader.quote_value("auth", value)  # the text may be the secret
    methods = ", ".join(repr(method) for method in METHODS)
    reader.report("auth", f"expected null, one of {methods}, or an object with `method`, got {got}{guess}.")
    return None


def _authorization(value: Any, reader: ConfigReader) -> Any:
    if value is None or isinstance(value, Mapping):
        return value
    if isinstance(value, str) and value in BACKENDS:
        return {"backend": BACKENDS[value]}
    if isinstance(value, str) and OBJECT_PATH.fullmatch(value):
        return {"backend": "custom", "path": value}
    guess = did_you_mean(value, BACKENDS) if isinstance(value, str) else ""
    reader.report(
        "authorization",
        f"expected null, one of {', '.join(repr(backend) for backend in BACKENDS)}, a 'module:attribute', or an object "
        f"with `backend`, got {reader.quote_value('authorization', value)}{guess}.",
    )
    return None
