"""A tree of keys, as it stands in a file, turned into a configuration. All that is wrong is found at once."""

from __future__ import annotations

import re
from collections.abc import Mapping
from types import NoneType, UnionType
from typing import Any, Literal, Union, get_args, get_origin, get_type_hints

import msgspec

from perdure.errors import did_you_mean
from perdure.server.config.errors import ConfigProblem
from perdure.server.config.schema import AuthConfig, ConfigPart, ServerConfig

SET_BY_THE_LOADER = "folder"
LONGEST_SHOWN = 60
_WORDS: dict[Any, str] = {str: "a text", int: "a whole number", float: "a number", bool: "true or false"}
_NEVER_SHOWN = ("auth.secret_env", "redis")
_SIGNS_OF_A_SECRET = ("@", "://", "password", "secret", "token")


class ConfigReader:
    """What was found out while a configuration is read."""

    def __init__(self, source: str | None) -> None:
        self.source = source
        self.problems: list[ConfigProblem] = []
        self.warnings: list[str] = []
        self.variables: dict[str, str] = {}
        """The environment variable that a key's value came from."""
        self.as_written: dict[str, str] = {}
        """Values with `${NAME}` in them, as the file has them: what they became may be a secret."""
        self._troubled: set[str] = set()

    def say(self, path: str, sentence: str) -> None:
        """That something is wrong with a key."""
        self._troubled.add(path)
        variable, place = self._variable_of(path)
        self.problems.append(ConfigProblem(self.source if variable is None else None, place, sentence))

    def _variable_of(self, path: str) -> tuple[str | None, str]:
        """The variable that this key, or a part that it is in, came from, and how the place is called then."""
        above = path
        while above:
            variable = self.variables.get(above)
            if variable is not None:
                return variable, f"{variable}: {path}" if path != above else variable
            above = above.rpartition(".")[0]
        return None, path

    def expected(self, path: str, what: str, value: Any) -> None:
        self.say(path, f"expected {what}, got {self.shown(path, value)}.")

    def is_well(self, *paths: str) -> bool:
        """Whether nothing is wrong with these keys, or anything below them."""
        below = tuple(f"{path}{mark}" for path in paths for mark in ".[")
        return not any(path in paths or path.startswith(below) for path in self._troubled)

    def shown(self, path: str, value: Any) -> str:
        """A value for people, never with a secret."""
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


def required(hint: Any) -> tuple[Any, bool]:
    """A type without None, and whether None is allowed."""
    if get_origin(hint) not in (Union, UnionType):
        return hint, False
    [rest] = [one for one in get_args(hint) if one is not NoneType]
    return rest, True


def is_part(hint: Any) -> bool:
    return isinstance(hint, type) and issubclass(hint, ConfigPart)


def words_for(hint: Any) -> str:
    """What is expected, for people."""
    hint, may_be_null = required(hint)
    origin = get_origin(hint)
    if origin is Literal:
        words = f"one of {', '.join(repr(one) for one in get_args(hint))}"
    elif origin is tuple:
        words = f"a list of {_plural(get_args(hint)[0])}"
    else:
        words = _WORDS.get(hint, "an object")
    return f"{words}, or null" if may_be_null else words


def _plural(hint: Any) -> str:
    return "texts" if hint is str else "values"


def read_part(kind: type[ConfigPart], tree: Any, path: str, reading: ConfigReader) -> dict[str, Any]:
    """The values of a part that are as they should be."""
    if tree is None:
        return {}
    if not isinstance(tree, Mapping):
        reading.expected(path, "an object", tree)
        return {}
    fields = fields_of(kind)
    values = {}
    for key, given in tree.items():
        place = f"{path}.{key}" if path else str(key)
        if key not in fields:
            reading.say(place, _no_such_key(kind, str(key), list(fields)))
            continue
        is_read, value = read_value(fields[key], given, place, reading)
        if is_read:
            values[key] = value
    return values


def _no_such_key(kind: type[ConfigPart], key: str, known: list[str]) -> str:
    if kind is AuthConfig and "secret" in key.lower():
        return "a secret does not stand in a file. Put it into the environment variable that secret_env names."
    if kind is ServerConfig and key == SET_BY_THE_LOADER:
        return "the project's folder is the one that the file is in. Remove the key."
    guess = did_you_mean(key, known)
    return f"there is no such key{guess}." + ("" if guess else f" There are: {', '.join(known)}.")


def read_value(hint: Any, given: Any, path: str, reading: ConfigReader) -> tuple[bool, Any]:
    """Whether it is as it should be, and the value."""
    wanted, may_be_null = required(hint)
    if given is None and (may_be_null or is_part(wanted)):
        return may_be_null, None  # of a part that is not optional: as if it was not given
    before = len(reading.problems)
    value = given
    if is_part(wanted):
        value = msgspec.convert(read_part(wanted, given, path, reading), wanted)
    elif get_origin(wanted) is tuple and isinstance(given, list | tuple):
        kind = get_args(wanted)[0]
        value = tuple(read_value(kind, one, f"{path}[{index}]", reading)[1] for index, one in enumerate(given))
    elif get_origin(wanted) is dict and isinstance(given, Mapping):
        kind = get_args(wanted)[1]
        read = {key: read_value(kind, one, f"{path}.{key}", reading) for key, one in given.items()}
        return True, {key: value for key, (is_read, value) in read.items() if is_read}
    else:
        value = _leaf(wanted, hint, given, path, reading)
    return is_part(wanted) or len(reading.problems) == before, value


def _leaf(wanted: Any, hint: Any, given: Any, path: str, reading: ConfigReader) -> Any:
    try:
        return msgspec.convert(given, wanted)
    except msgspec.ValidationError:
        guess = ""
        if get_origin(wanted) is Literal and isinstance(given, str):
            guess = did_you_mean(given, get_args(wanted))
        reading.say(path, f"expected {words_for(hint)}, got {reading.shown(path, given)}{guess}.")
        return None


# ---------------------------------------------------------------- config shapes


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


def in_full(tree: Mapping[str, Any], reading: ConfigReader) -> dict[str, Any]:
    """The same with an object for each part. What cannot be one is told of, and left out."""
    whole = dict(tree)
    for key, write_out in (("auth", _auth), ("authorization", _authorization)):
        if key in whole:
            part = write_out(whole.pop(key), reading)
            if part is not None:
                whole[key] = part
    return whole


def _auth(given: Any, reading: ConfigReader) -> Any:
    if given is None or isinstance(given, Mapping):
        return given
    if given in METHODS:
        return {"method": given}
    guess = did_you_mean(given, METHODS) if isinstance(given, str) else ""
    got = "another text" if isinstance(given, str) else reading.shown("auth", given)  # it may be the secret itself
    methods = ", ".join(repr(one) for one in METHODS)
    reading.say("auth", f"expected null, one of {methods}, or an object with `method`, got {got}{guess}.")
    return None


def _authorization(given: Any, reading: ConfigReader) -> Any:
    if given is None or isinstance(given, Mapping):
        return given
    if isinstance(given, str) and given in BACKENDS:
        return {"backend": BACKENDS[given]}
    if isinstance(given, str) and OBJECT_PATH.fullmatch(given):
        return {"backend": "custom", "path": given}
    guess = did_you_mean(given, BACKENDS) if isinstance(given, str) else ""
    reading.say(
        "authorization",
        f"expected null, one of {', '.join(repr(one) for one in BACKENDS)}, a 'module:attribute', or an object with "
        f"`backend`, got {reading.shown('authorization', given)}{guess}.",
    )
    return None
