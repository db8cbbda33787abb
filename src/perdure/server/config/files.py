"""Loads the configuration of a project: its file, environment variables, and `${NAME}` references."""

from __future__ import annotations

import json
import os
import re
import tomllib
from collections.abc import Iterator, Mapping, MutableMapping
from pathlib import Path
from typing import Any, Literal, NamedTuple, get_origin

import msgspec

from perdure.errors import did_you_mean
from perdure.log import get_logger
from perdure.server.config import agentflow as agentflow_file
from perdure.server.config.reading import ConfigReader, check, config_fields, expand_shorthand
from perdure.server.config.schema import ConfigPart, ConfigProblem, InvalidConfig, ServerConfig, invalid
from perdure.tree_reader import INVALID, bare, choices_of, is_struct

PREFIX = "PERDURE_"
NAMES = ("perdure.json", "perdure.toml")
VARIABLES_INSTEAD_OF_A_FILE = (f"{PREFIX}AGENT", f"{PREFIX}WORKFLOWS")
"""With one of these variables no file is needed."""
_log = get_logger(__name__)


class LoadedConfig(NamedTuple):
    config: ServerConfig
    file: Path | None
    """None: the environment alone."""
    warnings: list[str]


def load_config(
    path: str | os.PathLike[str] | None = None,
    *,
    folder: str | os.PathLike[str] | None = None,
    environ: MutableMapping[str, str] = os.environ,
) -> ServerConfig:
    """Load the configuration of a file, or of the file in the folder; the default is the current folder.

    Paths in it are relative to the folder, which is the file's unless it is named. Variables of its `env` file are
    added to `environ`. Raises InvalidConfig with all mistakes; then `environ` is unchanged.
    """
    loaded = read_config(path, folder=folder, environ=environ)
    for warning in loaded.warnings:
        _log.warning("%s", warning)
    return loaded.config


def read_config(
    path: str | os.PathLike[str] | None = None,
    *,
    folder: str | os.PathLike[str] | None = None,
    environ: MutableMapping[str, str] = os.environ,
) -> LoadedConfig:
    """The same, with the file and the warnings."""
    if path is not None and Path(path).is_dir():
        path, folder = None, path if folder is None else folder
    if path is None:
        home = Path(folder or ".").absolute()
        file = find_file(home)
        if file is None and not any(environ.get(name) for name in VARIABLES_INSTEAD_OF_A_FILE):
            if not home.is_dir():
                raise invalid("", f"Folder {str(home)!r} does not exist.")
            raise invalid(
                "",
                f"No {' or '.join(NAMES)} in {str(home)!r}. `perdure init` creates a project that works; --config "
                "names another file.",
            )
    else:
        file = Path(path).absolute()
        home = file.parent if folder is None else Path(folder).absolute()
    reader = ConfigReader(None if file is None else file.name)
    tree = {} if file is None else _read_file(file)
    return LoadedConfig(_read_tree(tree, file, home, environ, reader), file, reader.warnings)


def config_from(
    tree: Mapping[str, Any],
    *,
    folder: str | os.PathLike[str] = ".",
    environ: MutableMapping[str, str] = os.environ,
) -> ServerConfig:
    """The configuration of the keys of a file. Raises InvalidConfig."""
    return _read_tree(dict(tree), None, Path(folder).absolute(), environ, ConfigReader(None))


def _read_tree(
    tree: dict[str, Any], file: Path | None, home: Path, environ: MutableMapping[str, str], reader: ConfigReader
) -> ServerConfig:
    variables = _load_variables(tree, home, environ, reader)
    tree = expand_references(tree, variables, reader)
    if file is not None and "agentflow" in file.name:
        tree = agentflow_file.translate(tree, reader)
    tree = apply_variables(expand_shorthand(tree, reader), variables, reader)
    config: ServerConfig = msgspec.structs.replace(reader.read_struct(ServerConfig, tree, ""), folder=str(home))
    check(config, reader)
    if reader.problems:
        raise InvalidConfig(reader.problems)
    environ.update({name: value for name, value in variables.items() if name not in environ})
    return config


def find_file(folder: Path) -> Path | None:
    """The configuration file of a folder. Raises InvalidConfig if there are several."""
    ours = [name for name in NAMES if (folder / name).is_file()]
    if len(ours) > 1:
        raise invalid("", f"{' and '.join(ours)} are both in {folder}. Keep one of them, or use --config.")
    theirs = [name for name in agentflow_file.NAMES if (folder / name).is_file()]
    return next((folder / name for name in (*ours, *theirs)), None)


def _read_file(file: Path) -> dict[str, Any]:
    """Raises InvalidConfig."""
    try:
        text = file.read_text(encoding="utf-8-sig")
        tree = tomllib.loads(text) if file.suffix == ".toml" else _read_json(text)
        if isinstance(tree, dict):
            return tree
        reason = 'expected an object, such as {"agent": "graph.react:app"}'
    except FileNotFoundError:
        near = [path.name for path in file.parent.glob("*") if path.suffix in (".json", ".toml")]
        reason = f"the file does not exist{did_you_mean(file.name, near)} in {file.parent}"
    except OSError as error:
        reason = f"it cannot be read: {error.strerror}"
    except UnicodeDecodeError as error:
        reason = f"it is not UTF-8: byte {error.start}"
    except RecursionError:
        reason = "it is nested too deeply"
    except ValueError as error:
        reason = f"it is not valid {'TOML' if file.suffix == '.toml' else 'JSON'}: {error}"
    raise InvalidConfig([ConfigProblem(file.name, "", f"{reason}.")])


def _read_json(text: str) -> Any:
    def unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        keys = [key for key, _ in pairs]
        twice = next((key for key in keys if keys.count(key) > 1), None)
        if twice is not None:
            raise ValueError(f"the key {twice!r} occurs twice in one object")
        return dict(pairs)

    def reject(word: str) -> Any:
        raise ValueError(f"{word} is not a JSON number")

    return json.loads(text, object_pairs_hook=unique, parse_constant=reject)


def _load_variables(
    tree: Mapping[str, Any], home: Path, environ: Mapping[str, str], reader: ConfigReader
) -> dict[str, str]:
    """The environment, with the variables of the `env` file that it does not set."""
    variable = f"{PREFIX}ENV"
    if environ.get(variable):
        reader.variables["env"] = variable
    file_name = environ.get(variable) or tree.get("env")
    if not isinstance(file_name, str) or not file_name:
        return dict(environ)
    path = home / file_name
    try:
        return {**read_variables(path), **environ}
    except FileNotFoundError:
        near = [file.name for file in path.parent.glob("*env*")]
        reader.report("env", f"file {str(path)!r} does not exist{did_you_mean(path.name, near)}.")
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) else error
        reader.report("env", f"{str(path)!r} cannot be read: {reason}.")
    return dict(environ)


OTHER_VARIABLES = (
    *("PERDURE_LOG", "PERDURE_KEYS", "PERDURE_STORE", "PERDURE_REDIS_URL", "PERDURE_COMPLETE"),
    *("PERDURE_TRACING", "PERDURE_URL", "PERDURE_API_KEY", "PERDURE_TOKEN"),
)
"""Variables of the command line, the client and the log."""
_TEST_PREFIXES = ("PERDURE_TEST", "PERDURE_SOAK")
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_REFERENCE = re.compile(r"\$(\$\{)|\$\{([^}]*)\}")
_LINE = re.compile(r"(?:export\s+)?([A-Za-z_][A-Za-z0-9_]*)\s*=\s*(.*)", re.DOTALL)
_ESCAPES = {"n": "\n", "r": "\r", "t": "\t"}


def list_variables(
    kind: type[ConfigPart] = ServerConfig, above: tuple[str, ...] = ()
) -> Iterator[tuple[str, tuple[str, ...], Any]]:
    """Every variable, its key and the key's type; a part comes before its keys."""
    for key, field in config_fields(kind).items():
        path = (*above, key)
        yield PREFIX + "__".join(path).upper(), path, field.type
        if is_struct(bare(field.type)):
            yield from list_variables(bare(field.type), path)


def apply_variables(tree: Mapping[str, Any], environ: Mapping[str, str], reader: ConfigReader) -> dict[str, Any]:
    """The tree with the values of environment variables. Empty variables are ignored."""
    whole = dict(tree)
    names = []
    for name, path, hint in list_variables():
        names.append(name)
        text = environ.get(name, "")
        if not text:
            continue
        reader.variables[".".join(path)] = name
        value = _value_of(text, path, hint, reader)
        if value is not INVALID:
            _set_key(whole, path, value)
            if len(path) == 1:
                whole = expand_shorthand(whole, reader)
    known = [*names, *OTHER_VARIABLES]
    for name in sorted(environ):
        if name.startswith(PREFIX) and not name.startswith(_TEST_PREFIXES) and name not in known:
            reader.warnings.append(
                f"The environment variable {name} sets no key of the server{did_you_mean(name, known)}."
            )
    return whole


def _value_of(text: str, path: tuple[str, ...], hint: Any, reader: ConfigReader) -> Any:
    """INVALID for a value that was reported."""
    expected, (_, may_be_null) = bare(hint), choices_of(hint)
    if text == "null" and (may_be_null or is_struct(expected)):
        return None
    if expected is str or get_origin(expected) is Literal:
        return text
    try:
        return json.loads(text)
    except ValueError:
        if expected in (int, float, bool) or path in (("auth",), ("authorization",)):
            return text  # a short form, or reported with the other keys
        example = '["a", "b"]' if get_origin(expected) is tuple else '{"name": "value"}'
        return reader.report_expected(".".join(path), f"{reader.describe(hint)} as JSON, such as {example}", text)


def _set_key(tree: dict[str, Any], path: tuple[str, ...], value: Any) -> None:
    *above, key = path
    for part in above:
        inner = tree.get(part)
        tree[part] = dict(inner) if isinstance(inner, Mapping) else {}
        tree = tree[part]
    tree[key] = value


def expand_references(tree: Any, environ: Mapping[str, str], reader: ConfigReader, path: str = "") -> Any:
    """The tree with `${NAME}` replaced by the variable; `$${` stands for `${`."""
    if isinstance(tree, Mapping):
        return {key: expand_references(value, environ, reader, reader.at(path, key)) for key, value in tree.items()}
    if isinstance(tree, list):
        return [expand_references(value, environ, reader, reader.at(path, index)) for index, value in enumerate(tree)]
    if not isinstance(tree, str) or "${" not in tree:
        return tree
    reader.as_written[path] = tree

    def value_of(match: re.Match[str]) -> str:
        if match[1]:
            return match[1]
        name = match[2]
        if not _NAME.fullmatch(name):
            reader.report(path, f"'${{{name}}}' is not an environment variable: expected letters, digits and '_'.")
        elif name not in environ:
            reader.report(path, f"the environment variable {name} is not set{did_you_mean(name, environ)}.")
        return environ.get(name, "")

    return _REFERENCE.sub(value_of, tree)


def read_variables(path: Path) -> dict[str, str]:
    """Read a file with lines such as `NAME=value`. Raises OSError, and ValueError without values."""
    try:
        text = path.read_text(encoding="utf-8-sig")
    except UnicodeDecodeError:
        raise ValueError("it is not UTF-8") from None
    values = {}
    for number, line in enumerate(text.splitlines(), 1):
        stripped = line.strip()
        if not stripped or stripped.startswith("#"):
            continue
        parts = _LINE.fullmatch(stripped)
        if parts is None:
            raise ValueError(f"line {number} is not of the form NAME=value")
        try:
            values[parts[1]] = _unquote(parts[2])
        except ValueError as error:
            raise ValueError(f"line {number}, {parts[1]}: {error}") from None
    return values


def _unquote(text: str) -> str:
    mark = text[:1]
    if mark not in ("'", '"'):
        return re.split(r"(?:^|\s)#", text, maxsplit=1)[0].rstrip()
    pattern = r'"((?:[^"\\]|\\.)*)"' if mark == '"' else r"'([^']*)'"
    parts = re.fullmatch(rf"{pattern}\s*(#.*)?", text)
    if parts is None:
        raise ValueError("the quotation mark is not closed in this line, or text follows it")
    if mark == "'":
        return parts[1]
    return re.sub(r"\\(.)", lambda match: _ESCAPES.get(match[1], match[1]), parts[1])
