"""The pages about workflows of agents name every part of the API, and their documents and diagrams are right."""

from __future__ import annotations

import inspect
import json
import re
from pathlib import Path
from typing import Any

import msgspec
import pytest
from tests.docs.following import blocks_of, python_blocks

import perdure
from perdure import (
    AgentNodeOptions,
    AgentWorkflow,
    AgentWorkflowInstance,
    ApprovalContext,
    ApprovalDecision,
    ApprovalRequest,
    WorkflowResult,
    condition,
)
from perdure.agent_workflow import definition, events
from perdure.agent_workflow.builder import workflow as edge_builder, workflow as router_builder
from perdure.agent_workflow.condition import Condition
from perdure.testing import ScriptedAgent

PACKAGE = "perdure.agent_workflow"
DOCS = Path(__file__).parents[2] / "docs"
REFERENCE = DOCS / "reference"
BUILDERS = (AgentWorkflow, edge_builder.EdgeBuilder, edge_builder.EdgeTargetBuilder, edge_builder.TypeRouteBuilder)
PARTS = [
    part for part in vars(definition).values() if isinstance(part, type) and issubclass(part, definition.DefinitionPart)
]
BETWEEN_MODULES = {"find", "inner", "now", "subscribers"}
"""Members of the instance for its own modules, not for users."""
CONVERSATIONS = {name for name in dir(perdure) if re.search("Session|Conversation", name)}
"""Names that have a page of their own."""
NEWSROOM = '''
import msgspec

from perdure.testing import ScriptedAgent


class Plan(msgspec.Struct):
    aspects: list[str]


class Verdict(msgspec.Struct):
    good: bool
    advice: str = ""
    risk: str = "low"


def search(query: str) -> str:
    """Search the archive."""
    return query


archivist = ScriptedAgent("archivist", ["Old news."])
'''


def words_of(page: str) -> set[str]:
    """The words of all code of a page: inline names and blocks."""
    code = re.findall(r"`+[^`]+`+", (REFERENCE / page).read_text(encoding="utf-8"))
    return {word for piece in code for word in re.findall(r"\w+", piece)}


def public(kind: type) -> set[str]:
    return {name for name in dir(kind) if not name.startswith("_")}


@pytest.mark.parametrize("kind", [*BUILDERS, router_builder.RouterAgentBuilder, AgentNodeOptions, WorkflowResult])
def test_reference_names_every_method_and_field(kind: type) -> None:
    assert sorted(public(kind) - words_of("agent-workflow.md")) == []


def test_reference_names_every_public_member_of_an_instance() -> None:
    assert sorted(public(AgentWorkflowInstance) - BETWEEN_MODULES - words_of("agent-workflow.md")) == []


def test_reference_names_every_export_of_the_package() -> None:
    exported = {name for name, home in perdure._HOME.items() if home.startswith(PACKAGE)}
    assert sorted(exported - words_of("agent-workflow.md") - CONVERSATIONS) == []


def test_reference_names_every_condition() -> None:
    functions = {name: value for name, value in vars(condition).items() if inspect.isfunction(value)}
    made = {name for name, function in functions.items() if function.__annotations__.get("return") == "Condition"}
    assert sorted(made - words_of("agent-workflow.md")) == []


@pytest.mark.parametrize(
    "event", [*events.OWN, events.EventMetadata, ApprovalContext, ApprovalRequest, ApprovalDecision]
)
def test_reference_names_every_event_and_its_fields(event: type[msgspec.Struct]) -> None:
    assert sorted({event.__name__, *event.__struct_fields__} - words_of("agent-workflow.md")) == []


@pytest.mark.parametrize("part", [*PARTS, Condition])
def test_reference_of_documents_names_every_field(part: type[msgspec.Struct]) -> None:
    assert sorted(set(part.__struct_encode_fields__) - words_of("agent-workflow-documents.md")) == []


def shown(language: str) -> str:
    text = (REFERENCE / "agent-workflow-documents.md").read_text(encoding="utf-8")
    [code] = re.findall(rf"^```{language}\n(.*?)^```$", text, re.DOTALL | re.MULTILINE)
    return str(code)


def test_document_of_the_reference_is_equal_in_yaml_and_json_and_builds(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "newsroom.py").write_text(NEWSROOM, encoding="utf-8")
    (tmp_path / "newsroom.yaml").write_text(shown("yaml"), encoding="utf-8")
    monkeypatch.syspath_prepend(tmp_path)

    def built(source: Any) -> AgentWorkflowInstance:
        builder = AgentWorkflow.from_config(source).with_in_memory_workflow_store()
        return builder.with_model("test").build()  # a model that needs no key

    of_yaml, of_json = built(tmp_path / "newsroom.yaml"), built(json.loads(shown("json")))
    assert of_yaml.definition == of_json.definition
    assert of_yaml.node_count == 6


def test_diagram_of_the_page_matches_its_workflow() -> None:
    page = DOCS / "how-to" / "agents" / "build-an-agent-workflow.md"
    [code] = [block.code for block in python_blocks(page) if "announcement = (" in block.code]
    [drawn] = [block.code for block in blocks_of(page) if block.language == "mermaid"]
    names: dict[str, Any] = {"msgspec": msgspec, "AgentWorkflow": AgentWorkflow, "ScriptedAgent": ScriptedAgent}
    exec(code.partition("result = await")[0], names)
    assert names["announcement"].to_diagram().strip() == drawn.strip()
