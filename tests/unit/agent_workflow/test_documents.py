"""Documents are read from files, dicts and configs. Problems are reported with their places."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from tests.unit.agent_workflow.document_parts import agent, document, edge, nodes, problems_of

from perdure.agent_workflow.builder.workflow import AgentWorkflow
from perdure.agent_workflow.definition import AgentConfig, EdgeConfig, NodeConfig, RetryConfig, WorkflowConfig
from perdure.agent_workflow.documents.convert import read_draft
from perdure.agent_workflow.execution.execution import WorkflowResult
from perdure.errors import InvalidDefinition


def conditioned(**when: Any) -> dict[str, Any]:
    return document(edges=[edge("draft", "review", when=when)])


async def result_of(source: Any) -> WorkflowResult:
    return await AgentWorkflow.from_config(source).build().run("tides")


# ---------------------------------------------------------------- where it comes from

YAML = f"""
name: w
agents:
  draft: {{agent: "{agent("writer")}", output_key: draft}}
  review: {{agent: "{agent("editor")}", input_key: draft}}
edges:
  - {{from: draft, to: review}}
"""


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("w.json", json.dumps(document())),
        ("w.JSON", "\ufeff" + json.dumps(document())),
        ("w.yaml", YAML),
        ("w.yml", YAML),
    ],
)
async def test_a_file_of_json_or_yaml_is_run(tmp_path: Path, name: str, text: str) -> None:
    path = tmp_path / name
    path.write_text(text, encoding="utf-8")
    for source in (path, str(path)):
        assert (await result_of(source)).final_answer == "[<tides>]"


async def test_a_dict_and_a_config_are_run() -> None:
    assert (await result_of(document())).final_answer == "[<tides>]"
    config = WorkflowConfig(name="w", agents={"one": NodeConfig(agent=agent("writer"))})
    assert (await result_of(config)).final_answer == "<tides>"


def test_a_dict_may_hold_parts_and_is_not_kept() -> None:
    context = {"x": [1]}
    definition = document(
        agents={"a": NodeConfig(agent=agent(), context=context)}, edges=[EdgeConfig(source="a", target="END")]
    )
    draft = read_draft(definition)
    context["x"].append(2)
    definition["agents"].clear()
    assert draft.nodes["a"].config == NodeConfig(agent=agent(), context={"x": [1]})
    assert draft.edges[0].config == EdgeConfig(source="a", target="END")


async def test_a_function_that_makes_an_agent_is_called_for_it() -> None:
    result = await result_of(document(agents=nodes(one={"agent": agent("made")}), edges=[]))
    assert result.final_answer == "made by a function"


async def test_builder_can_extend_a_document() -> None:
    builder = AgentWorkflow.from_config(document()).add_agent("more", agent("editor"))
    workflow = builder.from_("review").to("more").build()
    assert list(workflow.definition.agents) == ["draft", "review", "more"]


def test_editors_may_name_the_schema_in_it() -> None:
    assert read_draft(document(**{"$schema": "agent-workflow.schema.json"})).config.name == "w"


@pytest.mark.parametrize(
    ("source", "problem"),
    [
        ("w.toml", "expected the path of a file that ends in .json, .yaml or .yml, got 'w.toml'"),
        ('{"name": "w"}', 'expected the path of a file that ends in .json, .yaml or .yml, got \'{"name": "w"}\''),
        ("nowhere/w.json", "nowhere/w.json: the file cannot be read: No such file or directory"),
    ],
)
def test_path_that_is_not_a_document_is_rejected(source: str, problem: str) -> None:
    assert problems_of(source) == [problem]


def test_from_config_rejects_a_value_that_is_not_a_document() -> None:
    with pytest.raises(
        TypeError, match=r"^from_config expects the path of a file, a dict or a WorkflowConfig, got 3\.$"
    ):
        read_draft(3)  # type: ignore[arg-type]


# ---------------------------------------------------------------- its format


@pytest.mark.parametrize(("version", "shown"), [("2", '"2"'), (2, "2"), ("1.1", '"1.1"')])
def test_newer_format_is_rejected_without_further_problems(version: Any, shown: str) -> None:
    newer = {"format": version, "title": "other keys", "agents": 3}
    problem = f'format: the document has format {shown}; this perdure reads "1". Use a newer perdure'
    assert problems_of(newer) == [problem]


def test_a_newer_format_of_a_workflow_inside_is_rejected_with_its_place() -> None:
    definition = document(agents={"sub": {"workflow": {"format": "2", "name": "x"}}}, edges=[])
    problem = 'agents.sub.workflow.format: the document has format "2"; this perdure reads "1". Use a newer perdure'
    assert problems_of(definition) == [problem]


def test_the_format_is_a_text() -> None:
    assert problems_of(document(format=1)) == ["format: expected a text, got 1: write it in quotes"]


# ---------------------------------------------------------------- every field

MODES = '"fork_per_agent", "none", "per_agent", "shared"'
PLAIN = "texts, numbers, true, false, null, lists and mappings"
OF_AN_AGENT = "model, name, instructions, description, tools, model_settings"
KNOWN = "name, format, version, description, agents, edges, settings"


def review(**config: Any) -> dict[str, Any]:
    return document(agents=nodes(review=config), edges=[])


@pytest.mark.parametrize(
    ("definition", "problem"),
    [
        ({}, "name: missing: expected a text that is not empty"),
        (document(name=" "), 'name: expected a text that is not empty, got " "'),
        (document(name=None), "name: expected a text that is not empty, got null"),
        (document(version=1.0), "version: expected a text that is not empty, got 1.0: write it in quotes"),
        (document(description=3), "description: expected a text, got 3: write it in quotes"),
        (document(agent={}), f"agent: unknown key (did you mean 'agents'?). Known: {KNOWN}"),
        (document(agents=[]), "agents: expected a mapping, got []"),
        (document(agents={"a": None}), "agents.a: expected a mapping, got null"),
        (document(agents={"a b": 3}), 'agents["a b"]: expected a mapping, got 3'),
        (document(edges={}), "edges: expected a list, got {}"),
        (document(edges=[{"from": "draft"}]), "edges[0].to: missing: expected a text"),
        (document(edges=["draft"]), 'edges[0]: expected a mapping, got "draft"'),
        (
            document(edges=[edge("draft", "review", delay=-1)]),
            "edges[0].delay: expected a number of seconds, from 0 to a century, got -1",
        ),
        (document(settings={"max_iterations": 0}), "settings.max_iterations: expected a positive integer, got 0"),
        (document(settings={"max_iterations": True}), "settings.max_iterations: expected a positive integer, got true"),
        (document(settings={"checkpointing": "yes"}), 'settings.checkpointing: expected true or false, got "yes"'),
        (
            document(settings={"timeout": 0}),
            "settings.timeout: expected a positive number of seconds, at most a century, got 0",
        ),
        (
            document(settings={"timeout": 1e11}),
            "settings.timeout: expected a positive number of seconds, at most a century, got 100000000000.0",
        ),
        (
            document(settings={"conversation": {"mode": "shard"}}),
            f"settings.conversation.mode: expected one of {MODES}, got \"shard\" (did you mean 'shared'?)",
        ),
        (
            review(retry={"max_attempts": "three"}),
            'agents.review.retry.max_attempts: expected a positive integer, got "three"',
        ),
        (review(retry={"max_attempts": 2.5}), "agents.review.retry.max_attempts: expected a positive integer, got 2.5"),
        (
            review(retry={"initial_delay": "1s"}),
            'agents.review.retry.initial_delay: expected a number of seconds, from 0 to a century, got "1s"',
        ),
        (review(retry=3), "agents.review.retry: expected a mapping, got 3"),
        (
            review(timeout=-3),
            "agents.review.timeout: expected a positive number of seconds, at most a century, got -3",
        ),
        (review(max_concurrent=0), "agents.review.max_concurrent: expected a positive integer, got 0"),
        (
            review(map={"over": "x", "max_parallel": 0}),
            "agents.review.map.max_parallel: expected a positive integer, got 0",
        ),
        (review(map={}), "agents.review.map.over: missing: expected a text that is not empty"),
        (
            review(approval={"timeout": -1}),
            "agents.review.approval.timeout: expected a number of seconds, from 0 to a century, got -1",
        ),
        (
            review(on_error={"mode": "halt"}),
            'agents.review.on_error.mode: expected one of "fallback", "isolate", "skip", "stop", got "halt"',
        ),
        (review(handoffs=[{}]), "agents.review.handoffs[0].target: missing: expected a text"),
        (review(output_types=["a:b", 3]), "agents.review.output_types[1]: expected a text, got 3: write it in quotes"),
        (
            review(agent=3),
            "agents.review.agent: expected a mapping, or an import path such as 'package.module:name', got 3",
        ),
        (
            review(agent={"modle": "x"}),
            f"agents.review.agent.modle: unknown key (did you mean 'model'?). Known: {OF_AN_AGENT}",
        ),
        (review(context={3: "x"}), "agents.review.context: expected a text as key, got 3: write it in quotes"),
        (review(context={"x": float("nan")}), "agents.review.context.x: expected a number that JSON has, got nan"),
        (
            review(metadata={"x": [{"y": {1, 2}}]}),
            f"agents.review.metadata.x[0].y: not plain data: a document holds {PLAIN}; got {{1, 2}}",
        ),
        (
            review(instructions="\ud800"),
            'agents.review.instructions: expected a text that can be written as UTF-8, got "\ud800"',
        ),
    ],
)
def test_invalid_field_is_reported_with_its_place_and_value(definition: Any, problem: str) -> None:
    assert problems_of(definition) == [problem]


TYPES = (
    "always, and, contains, contains_all, contains_any, ends_with, equals, exists, greater_than, "
    "greater_than_or_equal, is_empty, is_not_empty, less_than, less_than_or_equal, matches_regex, not, not_equals, "
    "not_exists, or, starts_with"
)


@pytest.mark.parametrize(
    ("definition", "problem"),
    [
        (conditioned(), f".type: missing: expected one of {TYPES}"),
        (conditioned(type="equal"), f".type: expected one of {TYPES}; got \"equal\" (did you mean 'equals'?)"),
        (
            conditioned(type="always", feld="x"),
            ".feld: unknown key (did you mean 'field'?). Known: type, field, value, conditions, ignore_case",
        ),
        (conditioned(type="exists"), ".field: missing: 'exists' asks about a field"),
        (conditioned(type="exists", field=""), '.field: expected a text that is not empty, got ""'),
        (conditioned(type="always", field="x"), ".field: 'always' asks about no field, got \"x\""),
        (conditioned(type="equals", field="draft"), ".value: missing: 'equals' compares with a value"),
        (conditioned(type="exists", field="draft", value=1), ".value: 'exists' takes no value, got 1"),
        (conditioned(type="less_than", field="draft", value=None), ".value: expected a number or a text, got null"),
        (conditioned(type="starts_with", field="draft", value=3), ".value: expected a text, got 3"),
        (conditioned(type="contains_any", field="draft", value="x"), '.value: expected a list, got "x"'),
        (
            conditioned(type="matches_regex", field="draft", value="(a"),
            '.value: not a regular expression: missing ), unterminated subpattern at position 0; got "(a"',
        ),
        (conditioned(type="and"), ".conditions: missing: 'and' joins other conditions"),
        (
            conditioned(type="not", conditions=[{"type": "always"}] * 2),
            ".conditions: expected one condition in 'not', got 2",
        ),
        (conditioned(type="or", conditions=[3]), ".conditions[0]: expected a mapping, got 3"),
        (conditioned(type="always", conditions=[{}]), ".conditions: 'always' joins no conditions, got 1"),
        (conditioned(type="and", conditions={}), ".conditions: expected a list, got {}"),
        (
            conditioned(type="not", conditions=[{"type": "or", "conditions": [{"type": "exists"}]}]),
            ".conditions[0].conditions[0].field: missing: 'exists' asks about a field",
        ),
        (conditioned(type="always", ignore_case=1), ".ignore_case: expected true or false, got 1"),
        (
            conditioned(type="exists", field="draft", ignore_case=True),
            ".ignore_case: only 'matches_regex' has it, not 'exists'",
        ),
    ],
)
def test_invalid_condition_is_reported_with_its_place(definition: Any, problem: str) -> None:
    assert problems_of(definition) == [f"edges[0].when{problem}"]


def test_all_problems_are_reported_at_once() -> None:
    definition = document(
        agents={"review": {"agent": agent(), "retry": {"max_attempts": "three"}, "time_out": 3}, "b": {"agent": 1}},
        edges=[{"from": "review", "to": "b", "when": {"type": "equals"}}],
        setings={},
    )
    assert [line.split(": ")[0] for line in problems_of(definition)] == [
        "setings",
        "agents.review.time_out",
        "agents.review.retry.max_attempts",
        "agents.b.agent",
        "edges[0].when.field",
        "edges[0].when.value",
    ]


def test_values_that_are_long_are_cut_off() -> None:
    [problem] = problems_of(document(edges="x" * 1000))
    assert problem == f'edges: expected a list, got "{"x" * 79}...'


def test_config_made_in_python_is_checked_like_a_document() -> None:
    """Structs do not check the types of their fields."""
    node = NodeConfig(agent=AgentConfig(model="x"), retry=RetryConfig(max_attempts="three"))  # type: ignore[arg-type]
    problem = 'agents.review.retry.max_attempts: expected a positive integer, got "three"'
    assert problems_of(WorkflowConfig(name="w", agents={"review": node})) == [problem]
    builder = AgentWorkflow.create().add_agent("review", AgentConfig(model="x"), lambda node: node.with_retry("three"))  # type: ignore[arg-type]
    with pytest.raises(InvalidDefinition) as refused:
        builder.build()
    assert str(refused.value) == problem


def test_builder_accepts_context_that_a_document_cannot_hold() -> None:
    builder = AgentWorkflow.create().add_agent("a", agent(), lambda node: node.with_context("x", {1, 2}))
    assert builder.build().node_count == 1


def test_problem_in_a_file_is_reported_with_the_path(tmp_path: Path) -> None:
    path = tmp_path / "w.json"
    path.write_text(json.dumps(document(edges=[edge("draft", "reviw")])))
    with pytest.raises(InvalidDefinition) as refused:
        AgentWorkflow.from_config(path).build()
    assert str(refused.value) == f"{path}: edges[0].to: no node 'reviw' exists (did you mean 'review'?)"
    assert refused.value.source == str(path)
    assert refused.value.problems == (("edges[0].to", "no node 'reviw' exists (did you mean 'review'?)"),)


def test_a_dict_that_contains_itself_is_rejected() -> None:
    definition = document()
    definition["settings"] = definition
    assert problems_of(definition) == ["nested too deeply: at most 100 levels of mappings and lists"]
