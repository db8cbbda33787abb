"""The JSON Schema that is shipped is that of the parts, and says of documents what perdure says."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import jsonschema  # type: ignore[import-untyped]
import pytest
from msgspec import inspect as types
from tests.unit.orchestrations.agent_workflow.document_parts import document, edge, nodes

from perdure.agent_workflow.definition.config import WorkflowConfig
from perdure.agent_workflow.documents import schema
from perdure.agent_workflow.documents.validate import RULES, form_of, problems_in

MAKE = (
    "from pathlib import Path; from perdure.agent_workflow import schema; "
    "Path(schema.__file__).with_name(schema.FILE).write_text(schema.make_text(), encoding='utf-8')"
)
VALIDATOR = jsonschema.Draft202012Validator(schema.document_schema())


def test_the_file_is_what_the_parts_make() -> None:
    assert schema.make_text() == schema.schema_text(), f'make it again: python -c "{MAKE}"'


def test_it_is_a_schema_of_draft_2020_12() -> None:
    assert schema.document_schema()["$schema"] == "https://json-schema.org/draft/2020-12/schema"
    VALIDATOR.check_schema(schema.document_schema())


def test_it_lies_beside_the_code() -> None:
    assert (Path(schema.__file__).parent / schema.FILE).read_text(encoding="utf-8") == schema.schema_text()


def test_fields_are_described() -> None:
    parts = schema.document_schema()["$defs"]
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
    "given",
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
def test_what_is_a_document_is_one_for_the_schema(given: Any) -> None:
    assert problems_in(given) == []
    VALIDATOR.validate(given)


@pytest.mark.parametrize(
    ("given", "place"),
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
def test_what_is_no_document_is_none_for_the_schema(given: Any, place: str) -> None:
    assert problems_in(given) != []
    assert [".".join(map(str, one.path)) for one in VALIDATOR.iter_errors(given)] == [place]


@pytest.mark.parametrize("node_id", ["START", "END", "a b", "a.b", ""])
def test_ids_that_no_node_can_have_are_refused_by_the_schema(node_id: str) -> None:
    assert not VALIDATOR.is_valid(document(agents={node_id: {"agent": "a:b"}}))


def test_every_number_has_a_rule() -> None:
    """By its type alone a count could be negative, and a duration endless."""

    def forms(form: types.StructType, seen: set[type]) -> list[tuple[type, str, Any]]:
        if form.cls in seen:
            return []
        seen.add(form.cls)
        found = [(form.cls, one.name, one.type) for one in form_of(form.cls).fields]
        return found + [more for _, _, inner in list(found) for part in _parts(inner) for more in forms(part, seen)]

    numbers = [(part, name) for part, name, form in forms(form_of(WorkflowConfig), set()) if _is_number(form)]
    assert len(numbers) >= 9
    assert [one for one in numbers if one not in RULES] == []


def _choices(form: Any) -> list[Any]:
    return list(form.types) if isinstance(form, types.UnionType) else [form]


def _parts(form: Any) -> list[types.StructType]:
    inner = [getattr(one, "item_type", getattr(one, "value_type", one)) for one in _choices(form)]
    return [one for one in inner if isinstance(one, types.StructType)]


def _is_number(form: Any) -> bool:
    return any(isinstance(one, types.IntType | types.FloatType) for one in _choices(form))
