"""Makes the JSON Schema of documents, for editors, from the parts of a definition; the package ships it as a file."""

from __future__ import annotations

import ast
import inspect
import json
import textwrap
from collections.abc import Iterator
from itertools import pairwise
from typing import Any

import msgspec

from perdure.agent_workflow.condition import JOINED, TYPES, Condition
from perdure.agent_workflow.definition import END, FORMAT, START, DefinitionPart, WorkflowConfig
from perdure.agent_workflow.documents.validate import SCHEMA_KEY, takes_field, takes_value
from perdure.tree_reader import fields_of

_JSON_SCHEMA = "https://json-schema.org/draft/2020-12/schema"


def make_schema() -> dict[str, Any]:
    """That of the shipped file, from the types of the parts and their source: docstrings below fields are their
    descriptions. perdure itself checks more than the schema."""
    _, schemas = msgspec.json.schema_components([WorkflowConfig])
    parts: list[type[msgspec.Struct]] = [Condition, *DefinitionPart.__subclasses__()]
    for part in parts:
        _complete(schemas[part.__name__], part)
    whole = schemas[WorkflowConfig.__name__]
    whole["properties"] = {SCHEMA_KEY: {"type": "string"}, **whole["properties"]}
    return {
        "$schema": _JSON_SCHEMA,
        "title": "A workflow of agents",
        "$ref": f"#/$defs/{WorkflowConfig.__name__}",
        "$defs": dict(sorted(schemas.items())),
    }


def _complete(schema: dict[str, Any], part: type[msgspec.Struct]) -> None:
    """Add the descriptions of the fields, and the rules that types do not express."""
    schema["description"] = _in_json(schema["description"])
    properties, descriptions = schema["properties"], _descriptions(part)
    for key, field in fields_of(part).items():
        if field.name in descriptions:
            properties[key]["description"] = descriptions[field.name]
    if part is WorkflowConfig:
        properties["format"] = {"const": FORMAT, "description": "The format of the document."}
        properties["agents"]["propertyNames"] = {"pattern": "^[A-Za-z0-9_-]+$", "not": {"enum": [START, END]}}
    if part is Condition:
        properties["type"] = {"enum": sorted(TYPES)}
        with_field, with_value = (sorted(kind for kind in TYPES if takes(kind)) for takes in (takes_field, takes_value))
        needs = [(with_field, "field"), (with_value, "value"), (sorted(JOINED), "conditions")]
        schema["allOf"] = [
            {"if": {"properties": {"type": {"enum": kinds}}}, "then": {"required": [key]}} for kinds, key in needs
        ]


def _descriptions(part: type) -> dict[str, str]:
    """The docstring below each field."""
    body = ast.parse(textwrap.dedent(inspect.getsource(part))).body[0]
    assert isinstance(body, ast.ClassDef)
    return dict(_below(body.body))


def _below(statements: list[ast.stmt]) -> Iterator[tuple[str, str]]:
    for field, text in pairwise(statements):
        if not isinstance(field, ast.AnnAssign) or not isinstance(field.target, ast.Name):
            continue
        if isinstance(text, ast.Expr) and isinstance(text.value, ast.Constant) and isinstance(text.value.value, str):
            yield field.target.id, _in_json(text.value.value)


def _in_json(text: str) -> str:
    return " ".join(text.split()).replace("None", "null")


if __name__ == "__main__":
    print(json.dumps(make_schema(), indent=2))
