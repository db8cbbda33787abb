"""The JSON Schema of documents: generated from the parts of a definition, and shipped as a file for editors."""

from __future__ import annotations

import ast
import inspect
import json
import textwrap
from collections.abc import Iterator
from importlib import resources
from itertools import pairwise
from typing import Any

import msgspec
from msgspec import inspect as types

from perdure.agent_workflow.definition.condition import JOINED, TYPES, Condition
from perdure.agent_workflow.definition.config import END, FORMAT, START, WorkflowConfig
from perdure.agent_workflow.documents.validate import RULES, SCHEMA_KEY, Rule, form_of, takes_field, takes_value

FILE = "agent-workflow.schema.json"
DRAFT = "https://json-schema.org/draft/2020-12/schema"


def schema_text() -> str:
    """The shipped file."""
    return resources.files(__package__ or "").joinpath(FILE).read_text(encoding="utf-8")


def document_schema() -> dict[str, Any]:
    """The schema for editors. perdure itself checks more than the schema."""
    shipped: dict[str, Any] = json.loads(schema_text())
    return shipped


def make_schema() -> dict[str, Any]:
    """From the source of the parts: docstrings below fields are their descriptions."""
    making = _Making()
    making.refer(form_of(WorkflowConfig))
    whole = making.parts[WorkflowConfig.__name__]
    whole["properties"] = {SCHEMA_KEY: {"type": "string"}, **whole["properties"]}
    return {
        "$schema": DRAFT,
        "title": "A workflow of agents",
        "$ref": f"#/$defs/{WorkflowConfig.__name__}",
        "$defs": dict(sorted(making.parts.items())),
    }


def make_text() -> str:
    return json.dumps(make_schema(), indent=2, ensure_ascii=False) + "\n"


class _Making:
    def __init__(self) -> None:
        self.parts: dict[str, dict[str, Any]] = {}

    def refer(self, form: types.StructType) -> dict[str, Any]:
        name = form.cls.__name__
        if name not in self.parts:
            self.parts[name] = {}  # it may refer to itself
            self.parts[name] = self._part(form_of(form.cls))
        return {"$ref": f"#/$defs/{name}"}

    def _part(self, form: types.StructType) -> dict[str, Any]:
        descriptions = _descriptions(form.cls)
        properties = {}
        for field in form.fields:
            schema = self._of(field.type, RULES.get((form.cls, field.name)))
            if field.name in descriptions:
                schema = {**schema, "description": descriptions[field.name]}
            if field.default not in (msgspec.NODEFAULT, None, ()) and not isinstance(field.default, msgspec.Struct):
                schema = {**schema, "default": field.default}
            properties[field.encode_name] = schema
        part: dict[str, Any] = {"type": "object", "properties": properties, "additionalProperties": False}
        required = [field.encode_name for field in form.fields if field.required]
        if required:
            part["required"] = required
        docstring = inspect.getdoc(form.cls) if form.cls.__doc__ else None
        part = part if docstring is None else {"description": _in_json(docstring), **part}
        return {**part, **_more(form.cls, properties)}

    def _of(self, form: types.Type, rule: Rule | None) -> dict[str, Any]:
        if isinstance(form, types.UnionType):
            inner = [kind for kind in form.types if not isinstance(kind, types.NoneType)]
            schemas = [self._of(kind, rule if len(inner) == 1 else None) for kind in inner]
            has_null = len(inner) < len(form.types)
            return {"anyOf": [*schemas, *([{"type": "null"}] if has_null else [])]}
        if rule is not None:
            return dict(rule.schema)
        if isinstance(form, types.StructType):
            return self.refer(form)
        if isinstance(form, types.DictType):
            return {"type": "object", "additionalProperties": self._of(form.value_type, None)}
        if isinstance(form, types.VarTupleType):
            return {"type": "array", "items": self._of(form.item_type, None)}
        if isinstance(form, types.LiteralType):
            return {"enum": list(form.values)}
        return dict(_SIMPLE[type(form)])


_SIMPLE: dict[type, dict[str, Any]] = {
    types.StrType: {"type": "string"},
    types.BoolType: {"type": "boolean"},
    types.AnyType: {},
}


def _more(part: type, properties: dict[str, Any]) -> dict[str, Any]:
    """Rules that the types do not express."""
    if part is WorkflowConfig:
        properties["format"] = {"const": FORMAT, "description": "The format of the document."}
        names = {"pattern": "^[A-Za-z0-9_-]+$", "not": {"enum": [START, END]}}
        properties["agents"] = {**properties["agents"], "propertyNames": names}
    if part is not Condition:
        return {}
    properties["type"] = {"enum": sorted(TYPES)}
    with_field, with_value = (sorted(kind for kind in TYPES if takes(kind)) for takes in (takes_field, takes_value))
    rules = [(with_field, ["field"]), (with_value, ["value"]), (sorted(JOINED), ["conditions"])]
    return {
        "allOf": [
            {"if": {"properties": {"type": {"enum": kinds}}}, "then": {"required": needed}} for kinds, needed in rules
        ]
    }


def _descriptions(part: type) -> dict[str, str]:
    """The docstring below each field."""
    body = ast.parse(textwrap.dedent(inspect.getsource(part))).body[0]
    assert isinstance(body, ast.ClassDef)  # noqa: S101  # a part is a class
    return dict(_below(body.body))


def _below(statements: list[ast.stmt]) -> Iterator[tuple[str, str]]:
    for field, text in pairwise(statements):
        if not isinstance(field, ast.AnnAssign) or not isinstance(field.target, ast.Name):
            continue
        if isinstance(text, ast.Expr) and isinstance(text.value, ast.Constant) and isinstance(text.value.value, str):
            yield field.target.id, _in_json(text.value.value)


def _in_json(text: str) -> str:
    return " ".join(text.split()).replace("None", "null")
