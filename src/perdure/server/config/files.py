"""The configuration of a project, found in its folder: a file, what the environment says instead, all of it checked."""

from __future__ import annotations

import json
import os
import tomllib
from collections.abc import Mapping, MutableMapping
from pathlib import Path
from typing import Any, NamedTuple

import msgspec

from perdure.errors import did_you_mean
from perdure.log import get_logger
from perdure.server.config import agentflow as agentflow_file
from perdure.server.config.checks import check
from perdure.server.config.environment import PREFIX, expanded, overridden, read_variables
from perdure.server.config.errors import ConfigProblem, InvalidConfig
from perdure.server.config.reading import ConfigReader, in_full, read_part
from perdure.server.config.schema import ServerConfig

NAMES = ("perdure.json", "perdure.toml")
ENOUGH = (f"{PREFIX}AGENT", f"{PREFIX}WORKFLOWS")
"""With one of these in the environment no file is needed."""
_log = get_logger(__name__)


class Loaded(NamedTuple):
    config: ServerConfig
    file: Path | None
    """None: all of it came from the environment."""
    warnings: list[str]


def load_config(
    path: str | os.PathLike[str] | None = None,
    *,
    folder: str | os.PathLike[str] | None = None,
    environ: MutableMapping[str, str] = os.environ,
) -> ServerConfig:
    """The configuration in a file, or the one that is found in the folder: this one, unless it is named.

    Paths in it are relative to the folder, which is the file's unless it is named. Variables of its `env` file are put
    into `environ`. Raises InvalidConfig with all that is wrong; then `environ` stays as it was.
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
) -> Loaded:
    """The same, with what it was read from, and what is odd about it."""
    if path is not None and Path(path).is_dir():
        path, folder = None, path if folder is None else folder
    if path is None:
        home = Path(folder or ".").absolute()
        file = find_file(home)
        if file is None and not any(environ.get(name) for name in ENOUGH):
            raise InvalidConfig([ConfigProblem(None, "", _nothing_in(home))])
    else:
        file = Path(path).absolute()
        home = file.parent if folder is None else Path(folder).absolute()
    reading = ConfigReader(None if file is None else file.name)
    tree = {} if file is None else _read_file(file)
    return Loaded(_read_tree(tree, file, home, environ, reading), file, reading.warnings)


def config_from(
    tree: Mapping[str, Any],
    *,
    folder: str | os.PathLike[str] = ".",
    environ: MutableMapping[str, str] = os.environ,
) -> ServerConfig:
    """What would stand in a file. Raises InvalidConfig."""
    return _read_tree(dict(tree), None, Path(folder).absolute(), environ, ConfigReader(None))


def _read_tree(
    tree: dict[str, Any], file: Path | None, home: Path, environ: MutableMapping[str, str], reading: ConfigReader
) -> ServerConfig:
    variables = _with_file(tree, home, environ, reading)
    tree = expanded(tree, variables, reading)
    if file is not None and "agentflow" in file.name:
        tree = agentflow_file.translated(tree, reading)
    tree = overridden(in_full(tree, reading), variables, reading)
    config = msgspec.convert({**read_part(ServerConfig, tree, "", reading), "folder": str(home)}, ServerConfig)
    check(config, reading)
    if reading.problems:
        raise InvalidConfig(reading.problems)
    environ.update({name: value for name, value in variables.items() if name not in environ})
    return config


def find_file(folder: Path) -> Path | None:
    """The one to read. Raises InvalidConfig if it is not clear which."""
    ours = [name for name in NAMES if (folder / name).is_file()]
    if len(ours) > 1:
        named = " and ".join(ours)
        raise InvalidConfig(
            [ConfigProblem(None, "", f"{named} are both in {folder}. Keep one of them, or use --config.")]
        )
    theirs = [name for name in agentflow_file.NAMES if (folder / name).is_file()]
    return next((folder / name for name in (*ours, *theirs)), None)


def _nothing_in(folder: Path) -> str:
    if not folder.is_dir():
        return f"There is no folder {str(folder)!r}."
    return (
        f"There is no {' or '.join(NAMES)} in {str(folder)!r}. `perdure init` makes a project that works; --config "
        "names a file elsewhere."
    )


# ---------------------------------------------------------------- the file


def _read_file(file: Path) -> dict[str, Any]:
    """Raises InvalidConfig."""
    try:
        text = file.read_text(encoding="utf-8-sig")
        tree = tomllib.loads(text) if file.suffix == ".toml" else _read_json(text)
    except FileNotFoundError:
        near = [one.name for one in file.parent.glob("*") if one.suffix in (".json", ".toml")]
        raise _unreadable(file, f"there is no such file{did_you_mean(file.name, near)} in {file.parent}") from None
    except OSError as error:
        raise _unreadable(file, f"it cannot be read: {error.strerror}") from None
    except UnicodeDecodeError as error:
        raise _unreadable(file, f"it is not UTF-8: byte {error.start}") from None
    except RecursionError:
        raise _unreadable(file, "it is nested too deeply") from None
    except ValueError as error:
        kind = "TOML" if file.suffix == ".toml" else "JSON"
        raise _unreadable(file, f"it is not {kind}: {error}") from None
    if not isinstance(tree, dict):
        raise _unreadable(file, 'expected an object, such as {"agent": "graph.react:app"}')
    return tree


def _unreadable(file: Path, sentence: str) -> InvalidConfig:
    return InvalidConfig([ConfigProblem(file.name, "", f"{sentence}.")])


def _read_json(text: str) -> Any:
    def unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        keys = [key for key, _ in pairs]
        twice = next((key for key in keys if keys.count(key) > 1), None)
        if twice is not None:
            raise ValueError(f"the key {twice!r} stands twice in one object")
        return dict(pairs)

    def refuse(word: str) -> Any:
        raise ValueError(f"{word} is no number of JSON")

    return json.loads(text, object_pairs_hook=unique, parse_constant=refuse)


# ---------------------------------------------------------------- the file of variables


def _with_file(
    tree: Mapping[str, Any], home: Path, environ: Mapping[str, str], reading: ConfigReader
) -> dict[str, str]:
    """The environment and, below it, what the file of the key `env` adds."""
    variable = f"{PREFIX}ENV"
    if environ.get(variable):
        reading.variables["env"] = variable
    named = environ.get(variable) or tree.get("env")
    if not isinstance(named, str) or not named:
        return dict(environ)
    path = home / named
    try:
        return {**read_variables(path), **environ}
    except FileNotFoundError:
        near = [one.name for one in path.parent.glob("*env*")]
        reading.say("env", f"there is no file {str(path)!r}{did_you_mean(path.name, near)}.")
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) else error
        reading.say("env", f"{str(path)!r} cannot be read: {reason}.")
    return dict(environ)
