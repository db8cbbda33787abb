"""The environment: variables that set keys, `${NAME}` in values, and files of variables."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Literal, get_origin

from perdure.errors import did_you_mean
from perdure.server.config.reading import ConfigReader, fields_of, in_full, is_part, required, words_for
from perdure.server.config.schema import ConfigPart, ServerConfig

PREFIX = "PERDURE_"
OF_OTHERS = (
    *("PERDURE_LOG", "PERDURE_KEYS", "PERDURE_STORE", "PERDURE_REDIS_URL", "PERDURE_COMPLETE"),
    *("PERDURE_TRACING", "PERDURE_URL", "PERDURE_API_KEY", "PERDURE_TOKEN"),
)
"""Variables of the command line, the client and the log."""
_OF_TESTS = ("PERDURE_TEST", "PERDURE_SOAK")
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_REFERENCE = re.compile(r"\$(\$\{)|\$\{([^}]*)\}")
_LINE = re.compile(r"(?:export\s+)?([A-Za-z_][A-Za-z0-9_]*)\s*=\s*(.*)", re.DOTALL)
_ESCAPES = {"n": "\n", "r": "\r", "t": "\t"}


# ---------------------------------------------------------------- variables that set keys


def variables(
    kind: type[ConfigPart] = ServerConfig, above: tuple[str, ...] = ()
) -> Iterator[tuple[str, tuple[str, ...], Any]]:
    """Every variable, the key that it sets, and the key's type; a part comes before what is in it."""
    for key, hint in fields_of(kind).items():
        path = (*above, key)
        yield PREFIX + "__".join(path).upper(), path, hint
        part, _ = required(hint)
        if is_part(part):
            yield from variables(part, path)


def overridden(tree: Mapping[str, Any], environ: Mapping[str, str], reading: ConfigReader) -> dict[str, Any]:
    """The tree with what variables say instead. A variable that is empty says nothing."""
    whole = dict(tree)
    known = []
    for name, path, hint in variables():
        known.append(name)
        text = environ.get(name, "")
        if not text:
            continue
        reading.variables[".".join(path)] = name
        is_read, value = _value_of(text, path, hint, reading)
        if is_read:
            _put(whole, path, value)
            if len(path) == 1:
                whole = in_full(whole, reading)
    _warn_of_unknown(environ, known, reading)
    return whole


def _value_of(text: str, path: tuple[str, ...], hint: Any, reading: ConfigReader) -> tuple[bool, Any]:
    wanted, may_be_null = required(hint)
    if text == "null" and (may_be_null or is_part(wanted)):
        return True, None
    if wanted is str or get_origin(wanted) is Literal:
        return True, text
    try:
        return True, json.loads(text)
    except ValueError:
        if path in (("auth",), ("authorization",)):  # these may be a word
            return True, text
        place = ".".join(path)
        example = {"list": '["a", "b"]', "obje": '{"name": "value"}'}.get(words_for(hint).split(" ", 1)[1][:4])
        such = "" if example is None else f" as JSON, such as {example}"
        reading.say(place, f"expected {words_for(hint)}{such}, got {reading.shown(place, text)}.")
        return False, None


def _put(tree: dict[str, Any], path: tuple[str, ...], value: Any) -> None:
    *above, key = path
    for one in above:
        inner = tree.get(one)
        tree[one] = dict(inner) if isinstance(inner, Mapping) else {}
        tree = tree[one]
    tree[key] = value


def _warn_of_unknown(environ: Mapping[str, str], known: list[str], reading: ConfigReader) -> None:
    for name in sorted(environ):
        if name.startswith(PREFIX) and name not in known and name not in OF_OTHERS and not name.startswith(_OF_TESTS):
            guess = did_you_mean(name, [*known, *OF_OTHERS])
            reading.warnings.append(f"The environment variable {name} sets no key of the server{guess}.")


# ---------------------------------------------------------------- ${NAME}


def expanded(tree: Any, environ: Mapping[str, str], reading: ConfigReader, path: str = "") -> Any:
    """The tree with the values of variables in its texts; `$${` stands for `${`."""
    if isinstance(tree, Mapping):
        return {
            key: expanded(one, environ, reading, f"{path}.{key}" if path else str(key)) for key, one in tree.items()
        }
    if isinstance(tree, list):
        return [expanded(one, environ, reading, f"{path}[{index}]") for index, one in enumerate(tree)]
    if not isinstance(tree, str) or "${" not in tree:
        return tree
    reading.as_written[path] = tree

    def value_of(found: re.Match[str]) -> str:
        if found[1]:
            return found[1]
        name = found[2]
        if not _NAME.fullmatch(name):
            reading.say(path, f"'${{{name}}}' names no environment variable: expected letters, digits and '_'.")
        elif name not in environ:
            guess = did_you_mean(name, environ)
            reading.say(path, f"the environment variable {name} is not set{guess}.")
        return environ.get(name, "")

    return _REFERENCE.sub(value_of, tree)


# ---------------------------------------------------------------- files of variables


def read_variables(path: Path) -> dict[str, str]:
    """Those of a file with lines such as `NAME=value`. Raises OSError, and ValueError, which never shows a value."""
    try:
        text = path.read_text(encoding="utf-8-sig")
    except UnicodeDecodeError:
        raise ValueError("it is not UTF-8") from None
    found = {}
    for number, line in enumerate(text.splitlines(), 1):
        stripped = line.strip()
        if not stripped or stripped.startswith("#"):
            continue
        parts = _LINE.fullmatch(stripped)
        if parts is None:
            raise ValueError(f"line {number} is not of the form NAME=value")
        try:
            found[parts[1]] = _unquoted(parts[2])
        except ValueError as error:
            raise ValueError(f"line {number}, {parts[1]}: {error}") from None
    return found


def _unquoted(text: str) -> str:
    mark = text[:1]
    if mark not in ("'", '"'):
        return re.split(r"(?:^|\s)#", text, maxsplit=1)[0].rstrip()
    pattern = r'"((?:[^"\\]|\\.)*)"' if mark == '"' else r"'([^']*)'"
    parts = re.fullmatch(rf"{pattern}\s*(#.*)?", text)
    if parts is None:
        raise ValueError("the quotation mark is not closed in this line, or something stands behind it")
    if mark == "'":
        return parts[1]
    return re.sub(r"\\(.)", lambda found: _ESCAPES.get(found[1], found[1]), parts[1])
