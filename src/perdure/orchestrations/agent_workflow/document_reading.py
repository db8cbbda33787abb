"""Documents as they come: a file of JSON or YAML, a dict, or a WorkflowConfig, made into plain data."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Literal, TypeAlias

from perdure.errors import InvalidDefinition
from perdure.orchestrations.agent_workflow.definition import WorkflowConfig
from perdure.orchestrations.agent_workflow.document_shape import as_tree
from perdure.orchestrations.agent_workflow.places import Problem, at

Source: TypeAlias = "str | os.PathLike[str] | Mapping[str, Any] | WorkflowConfig"
Format: TypeAlias = Literal["json", "yaml"]

MOST_LEVELS = 100
"""Of mappings and lists in each other."""
MOST_VALUES = 200_000
"""With each alias counted as what it stands for."""
_FORMATS: Mapping[str, Format] = {".json": "json", ".yaml": "yaml", ".yml": "yaml"}


def read(source: Source) -> tuple[Any, str | None]:
    """What is in it, and the file that it was read from. Raises InvalidDefinition."""
    if isinstance(source, WorkflowConfig | Mapping):
        return _measured(as_tree(_measured(source, None)), None), None
    if not isinstance(source, str | os.PathLike):
        raise TypeError(f"from_config expects the path of a file, a dict or a WorkflowConfig, got {source!r:.200}.")
    path = Path(source)
    written_in = _FORMATS.get(path.suffix.lower())
    if written_in is None:
        problem = f"expected the path of a file that ends in .json, .yaml or .yml, got {str(source)!r:.200}"
        raise InvalidDefinition([("", problem)])
    name = str(path)
    try:
        text = path.read_text(encoding="utf-8-sig")
    except OSError as error:
        raise InvalidDefinition([("", f"the file cannot be read: {error.strerror or error}")], name) from error
    except UnicodeDecodeError as error:
        raise InvalidDefinition([("", f"the file is not UTF-8, from byte {error.start} on")], name) from error
    return read_text(text, written_in, name), name


def read_text(text: str, format: Format, source: str | None = None) -> Any:
    """What a document's text says. Raises InvalidDefinition, with line and column, or the place."""
    from perdure.orchestrations.agent_workflow.yaml_text import from_yaml

    try:
        tree = from_yaml(text, source) if format == "yaml" else _from_json(text, source)
    except RecursionError as error:
        raise InvalidDefinition([("", _TOO_DEEP)], source) from error
    measured = _measured(tree, source)
    repeated = list(_repeated(measured, ""))
    if repeated:
        raise InvalidDefinition(repeated, source)
    return measured


# ---------------------------------------------------------------- JSON


class _WithRepeated(dict[str, Any]):
    """A mapping of which some keys were there twice."""

    repeated: tuple[str, ...] = ()


def _from_json(text: str, source: str | None) -> Any:
    try:
        return json.loads(text, object_pairs_hook=_mapping, parse_constant=_refuse)
    except json.JSONDecodeError as error:
        place = f"line {error.lineno}, column {error.colno}"
        raise InvalidDefinition([(place, f"not JSON: {error.msg}")], source) from error
    except ValueError as error:
        raise InvalidDefinition([("", f"not JSON: {error}")], source) from error


def _mapping(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    made = dict(pairs)
    if len(made) == len(pairs):
        return made
    keys = [key for key, _ in pairs]
    odd = _WithRepeated(made)
    odd.repeated = tuple(dict.fromkeys(key for key in keys if keys.count(key) > 1))
    return odd


def _refuse(constant: str) -> Any:
    raise ValueError(f"{constant} is no number that JSON has")


def _repeated(tree: Any, place: str) -> Iterator[Problem]:
    if isinstance(tree, _WithRepeated):
        yield from ((at(place, key), "the key is there twice") for key in tree.repeated)
    if isinstance(tree, Mapping):
        for key, value in tree.items():
            yield from _repeated(value, at(place, key))
    elif isinstance(tree, list):
        for index, value in enumerate(tree):
            yield from _repeated(value, at(place, index))


# ---------------------------------------------------------------- how much there is

_TOO_DEEP = f"nested too deeply: at most {MOST_LEVELS} mappings and lists in each other"


def _measured(tree: Any, source: str | None) -> Any:
    """The tree. Raises InvalidDefinition for one that nobody can have written, such as aliases of aliases."""
    left, count = [(tree, 1)], 0
    while left:
        value, level = left.pop()
        count += 1
        if level > MOST_LEVELS:
            raise InvalidDefinition([("", _TOO_DEEP)], source)
        if count > MOST_VALUES:
            problem = f"too large: at most {MOST_VALUES:,} values, with aliases counted as what they stand for"
            raise InvalidDefinition([("", problem)], source)
        if isinstance(value, Mapping):
            left += [(one, level + 1) for one in value.values()]
        elif isinstance(value, list | tuple):
            left += [(one, level + 1) for one in value]
    return tree
