"""Reads the tree of a file as configuration values, and collects all mistakes, without secrets."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Annotated, Any, get_args, get_origin

import msgspec

from perdure.errors import did_you_mean
from perdure.server.config.schema import AuthConfig, ConfigProblem, ServerConfig
from perdure.tree_reader import INVALID, TreeReader, bare, choices_of, fields_of, is_struct

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


def config_fields(kind: type[msgspec.Struct]) -> dict[str, msgspec.structs.FieldInfo]:
    """The keys that a file may contain."""
    return {key: field for key, field in fields_of(kind).items() if (kind, key) != (ServerConfig, SET_BY_THE_LOADER)}


# ---------------------------------------------------------------- shorthand


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
    methods = reader.list_choices(METHODS)
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
    backends = reader.list_choices(tuple(BACKENDS))
    words = f"null, one of {backends}, a 'module:attribute', or an object with `backend`"
    reader.report_expected("authorization", words, value, guess)
    return None
