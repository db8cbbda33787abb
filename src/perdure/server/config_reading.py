"""A tree of keys, as it stands in a file, turned into a configuration. All that is wrong is found at once."""

from __future__ import annotations

from collections.abc import Mapping
from types import NoneType, UnionType
from typing import Any, Literal, Union, get_args, get_origin, get_type_hints

import msgspec

from perdure.errors import did_you_mean
from perdure.server.config import AuthConfig, Part, ServerConfig
from perdure.server.config_errors import Problem

SET_BY_THE_LOADER = "folder"
LONGEST_SHOWN = 60
_WORDS: dict[Any, str] = {str: "a text", int: "a whole number", float: "a number", bool: "true or false"}
_NEVER_SHOWN = ("auth.secret_env", "redis")
_SIGNS_OF_A_SECRET = ("@", "://", "password", "secret", "token")


class Reading:
    """What was found out while a configuration is read."""

    def __init__(self, source: str | None) -> None:
        self.source = source
        self.problems: list[Problem] = []
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
        self.problems.append(Problem(self.source if variable is None else None, place, sentence))

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


def fields_of(kind: type[Part]) -> dict[str, Any]:
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
    return isinstance(hint, type) and issubclass(hint, Part)


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


def read_part(kind: type[Part], tree: Any, path: str, reading: Reading) -> dict[str, Any]:
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


def _no_such_key(kind: type[Part], key: str, known: list[str]) -> str:
    if kind is AuthConfig and "secret" in key.lower():
        return "a secret does not stand in a file. Put it into the environment variable that secret_env names."
    if kind is ServerConfig and key == SET_BY_THE_LOADER:
        return "the project's folder is the one that the file is in. Remove the key."
    guess = did_you_mean(key, known)
    return f"there is no such key{guess}." + ("" if guess else f" There are: {', '.join(known)}.")


def read_value(hint: Any, given: Any, path: str, reading: Reading) -> tuple[bool, Any]:
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


def _leaf(wanted: Any, hint: Any, given: Any, path: str, reading: Reading) -> Any:
    try:
        return msgspec.convert(given, wanted)
    except msgspec.ValidationError:
        guess = ""
        if get_origin(wanted) is Literal and isinstance(given, str):
            guess = did_you_mean(given, get_args(wanted))
        reading.say(path, f"expected {words_for(hint)}, got {reading.shown(path, given)}{guess}.")
        return None
