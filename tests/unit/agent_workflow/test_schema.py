"""The shipped JSON Schema matches the parts, and judges documents as perdure does."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import jsonschema  # type: ignore[import-untyped]
import pytest
from tests.unit.agent_workflow import making_schema
from tests.unit.agent_workflow.document_parts import document, edge, nodes

from perdure.agent_workflow.documents import validate
from perdure.agent_workflow.documents.validate import read_config

FILE = Path(validate.__file__).with_name("agent-workflow.schema.json")
SCHEMA = json.loads(FILE.read_text(encoding="utf-8"))
VALIDATOR = jsonschema.Draft202012Validator(SCHEMA)
MAKE = f"python -m {making_schema.__name__} > {FILE}"


def test_schema_file_matches_the_parts() -> None:
    assert json.loads(json.dumps(making_schema.make_schema())) == SCHEMA, f"make it again: {MAKE}"


def test_schema_declares_draft_2020_12() -> None:
    assert SCHEMA["$schema"] == "https://json-schema.org/draft/2020-12/schema"
    VALIDATOR.check_schema(SCHEMA)


def test_fields_are_described() -> None:
    parts = SCHEMA["$defs"]
    assert parts["RetryConfig"]["properties"]["max_attempts"] == {
        "type": "integer",
        "minimum": 1,
        "description": "Includes the first attempt.",
        "default": 3,
    }
    assert parts["EdgeConfig"]["required"] == ["from", "to"]
    assert "null:" in parts["AgentConfig"]["properties"]["name"]["description"]


def when(**condition: Any) -> dict[str, Any]:
    return document(edges=[edge("draft", "review", when=condition)])


@pytest.mark.parametrize(
    "definition",
    [
        document(),
        document(**{"$schema": "x"}, format="1", version="2", description=None),
        document(agents=nodes(a={"agent": {"model": "x", "tools": ["a:b"]}, "retry": {"max_attempts": 1}})),
        document(agents={"sub": {"workflow": document()}}),
        when(type="equals", field="draft", value=None),
        when(type="not", conditions=[{"type": "always"}]),
        document(settings={"timeout": 0.5, "max_iterations": 1, "conversation": {"mode": "shared"}}),
    ],
)
def test_schema_accepts_a_valid_document(definition: Any) -> None:
    assert read_config(definition)[1] == []
    VALIDATOR.validate(definition)


@pytest.mark.parametrize(
    ("definition", "place"),
    [
        ({}, ""),
        (document(name=""), "name"),
        (document(format="2"), "format"),
        (document(format=1), "format"),
        (document(titel="x"), ""),
        (document(agents=[]), "agents"),
        (document(agents={"a": {"agent": 3}}), "agents.a.agent"),
        (document(agents={"a": {"retry": {"max_attempts": "three"}}}), "agents.a.retry"),
        (document(agents={"a": {"timeout": 0}}), "agents.a.timeout"),
        (document(agents={"a": {"on_error": {"mode": "halt"}}}), "agents.a.on_error.mode"),
        (document(settings={"max_iterations": 0}), "settings.max_iterations"),
        (document(edges=[{"from": "a"}]), "edges.0"),
        (when(type="equal"), "edges.0.when"),
        (when(type="equals", field="x"), "edges.0.when"),
        (when(type="exists"), "edges.0.when"),
        (when(type="and"), "edges.0.when"),
    ],
)
def test_schema_rejects_an_invalid_document(definition: Any, place: str) -> None:
    assert read_config(definition)[1] != []
    assert [".".join(map(str, error.path)) for error in VALIDATOR.iter_errors(definition)] == [place]


@pytest.mark.parametrize("node_id", ["START", "END", "a b", "a.b", ""])
def test_schema_rejects_invalid_node_ids(node_id: str) -> None:
    assert not VALIDATOR.is_valid(document(agents={node_id: {"agent": "a:b"}}))


def test_every_number_has_a_range() -> None:
    """By its type alone a count could be negative, and a duration endless."""
    numbers = [
        (part, key, choice)
        for part, described in SCHEMA["$defs"].items()
        for key, field in described["properties"].items()
        for choice in field.get("anyOf", [field])
        if choice.get("type") in ("integer", "number")
    ]
    assert len(numbers) >= 9
    for part, key, choice in numbers:
        assert choice.keys() & {"minimum", "exclusiveMinimum"}, (part, key)
        assert choice["type"] == "integer" or "maximum" in choice, (part, key)
