"""Workflows of agents as documents: whatever is written down is read again as the same, and does the same."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from typing import Any, get_args

import msgspec
from hypothesis import given, settings, strategies as st
from tests.chance import SOAK
from tests.unit.agent_workflow.making_schema import make_schema

from perdure.agent_workflow import condition, definition
from perdure.agent_workflow.builder.node import AgentNodeOptions
from perdure.agent_workflow.builder.workflow import AgentWorkflow
from perdure.agent_workflow.condition import JOINED, TYPES, Condition
from perdure.agent_workflow.definition import Draft, WorkflowConfig
from perdure.agent_workflow.documents.convert import config_of, export_draft
from perdure.agent_workflow.documents.text import Format, read_text
from perdure.agent_workflow.documents.validate import takes_value
from perdure.agent_workflow.execution.node import ApprovalContext
from perdure.agents.conversation.message import Message
from perdure.testing import ScriptedAgent

FORMATS: tuple[Format, Format] = ("json", "yaml")


def examples(count: int) -> settings:
    return settings() if SOAK else settings(max_examples=count)


# ---------------------------------------------------------------- any definition, whether it is sound or not

ODD = ["yes", "no", "~", "null", "1e3", "0x1f", "012", "1_0", "2026-11-15", "12:30", ".", "- a", "a: b", "#", "<<", ""]
TEXTS = st.text(max_size=12) | st.sampled_from(ODD) | st.text("a \n\t'\"\u2028\x85\x7f\ufeff{}:-", max_size=12)
NAMES = TEXTS.filter(lambda text: bool(text.strip()))
IDS = st.text("abcXYZ019_-", min_size=1, max_size=4)
PLAIN = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | TEXTS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXTS, inner, max_size=3),
    max_leaves=5,
)
MAPPINGS = st.dictionaries(TEXTS, PLAIN, max_size=2)
COUNTS = st.integers(1, 9)
DURATIONS = st.floats(0.001, 1e6)
FIELDS: Mapping[tuple[type, str], st.SearchStrategy[Any]] = {
    (part, name): strategy
    for part, names, strategy in (
        (definition.WorkflowConfig, ("name", "version"), NAMES),
        (definition.SettingsConfig, ("model",), NAMES),
        (definition.SettingsConfig, ("max_iterations",), COUNTS),
        (definition.ConversationConfig, ("session_id", "root_thread_id", "thread_prefix"), NAMES),
        (definition.AgentConfig, ("model",), NAMES),
        (definition.NodeConfig, ("input_key", "output_key"), NAMES),
        (definition.NodeConfig, ("max_concurrent",), COUNTS),
        (definition.RetryConfig, ("max_attempts",), COUNTS),
        (definition.MapConfig, ("over",), NAMES),
        (definition.MapConfig, ("max_parallel",), COUNTS),
    )
    for name in names
}


def conditions_of(kind: str) -> st.SearchStrategy[Condition]:
    if kind == "always":
        return st.just(Condition(kind))
    values: st.SearchStrategy[Any] = PLAIN if takes_value(kind) else st.none()
    if kind in ("starts_with", "ends_with"):
        values = TEXTS
    elif kind == "matches_regex":
        values = st.sampled_from(["a+", r"^\d{3}$", "(x|y)\\.", ""])
    elif kind in ("contains_any", "contains_all"):
        values = st.lists(PLAIN, max_size=2)
    elif kind.startswith(("less", "greater")):
        values = TEXTS | st.integers() | st.floats(allow_nan=False, allow_infinity=False)
    ignores = st.booleans() if kind == "matches_regex" else st.just(False)
    return st.builds(Condition, st.just(kind), st.text(min_size=1, max_size=5), values, ignore_case=ignores)


SIMPLE = st.sampled_from(sorted(TYPES - JOINED)).flatmap(conditions_of)
CONDITIONS = st.recursive(
    SIMPLE,
    lambda inner: (
        st.builds(condition.not_, inner)
        | st.builds(
            lambda kind, some: Condition(kind, conditions=tuple(some)),
            st.sampled_from(["and", "or"]),
            st.lists(inner, min_size=1, max_size=3),
        )
    ),
    max_leaves=4,
)


def parts_of(part: type, **fields: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    """Any of its kind: each field as its default or anything that it takes."""
    strategies: dict[str, st.SearchStrategy[Any]] = {}
    for field in msgspec.structs.fields(part):
        chosen = fields.get(field.name, FIELDS.get((part, field.name)))
        strategy = of(field.type) if chosen is None else chosen
        if not field.required:
            default = field.default if field.default is not msgspec.NODEFAULT else field.default_factory()
            strategy = st.just(default) | strategy
        strategies[field.name] = strategy
    return st.builds(part, **strategies)


def of(kind: Any) -> st.SearchStrategy[Any]:
    known: dict[Any, st.SearchStrategy[Any]] = {
        str: TEXTS,
        str | None: TEXTS,
        bool: st.booleans(),
        definition.Duration | None: DURATIONS,
        definition.Delay: DURATIONS,
        definition.Delay | None: DURATIONS,
        dict[str, Any]: MAPPINGS,
        Condition | None: CONDITIONS,
        tuple[str, ...]: st.lists(TEXTS, max_size=2).map(tuple),
    }
    return known[kind] if kind in known else st.sampled_from(get_args(kind))


def nodes_with(workflows: st.SearchStrategy[Any]) -> st.SearchStrategy[definition.NodeConfig]:
    return parts_of(
        definition.NodeConfig,
        agent=TEXTS | parts_of(definition.AgentConfig),
        workflow=TEXTS | workflows,
        retry=parts_of(definition.RetryConfig),
        on_error=parts_of(definition.ErrorConfig),
        approval=parts_of(definition.ApprovalConfig),
        handoffs=st.lists(parts_of(definition.HandoffConfig), max_size=2).map(tuple),
        map=parts_of(definition.MapConfig),
    )


def documents_with(workflows: st.SearchStrategy[Any]) -> st.SearchStrategy[WorkflowConfig]:
    return parts_of(
        WorkflowConfig,
        format=st.just("1"),
        agents=st.dictionaries(IDS, nodes_with(workflows), max_size=2),
        edges=st.lists(parts_of(definition.EdgeConfig), max_size=2).map(tuple),
        settings=parts_of(definition.SettingsConfig, conversation=parts_of(definition.ConversationConfig)),
    )


DOCUMENTS = documents_with(st.none() | documents_with(st.none()))


@examples(60)
@given(DOCUMENTS)
def test_any_definition_is_read_as_it_was_written(config: WorkflowConfig) -> None:
    for written_in in FORMATS:
        text = export_draft(Draft.from_config(config), written_in)
        read = config_of(read_text(text, written_in))
        assert read == config
        assert export_draft(Draft.from_config(read), written_in) == text


@examples(10)
@given(DOCUMENTS)
def test_any_definition_is_valid_for_the_schema(config: WorkflowConfig) -> None:
    import jsonschema  # type: ignore[import-untyped]

    tree = read_text(export_draft(Draft.from_config(config), "json"), "json")
    jsonschema.Draft202012Validator(make_schema()).validate(tree)


# ---------------------------------------------------------------- workflows that run


class Verdict(msgspec.Struct):
    score: int
    advice: str | None


class Praise(msgspec.Struct):
    score: int
    thanks: str


def echo(messages: list[Message]) -> str:
    return f"<{messages[-1].text}>"


def measured(messages: list[Message]) -> dict[str, Any]:
    return {"score": len(messages[-1].text), "advice": None}


echoing = ScriptedAgent("echoing", echo)
judging = ScriptedAgent("judging", measured)
INSIDE = AgentWorkflow.create().with_name("inside").add_agent("one", echoing).build()


def is_even(outputs: Mapping[str, Any]) -> bool:
    return len(str(outputs)) % 2 == 0


def never(context: ApprovalContext) -> bool:
    return False


def count(text: str) -> int:
    """How long it is."""
    return len(text)


Configure = Callable[[AgentNodeOptions], Any]
KINDS: Mapping[str, tuple[Any, Configure]] = {
    "plain": (echoing, lambda node: node.with_tools(count).with_context("ü", ["–", 1.5])),
    "named": (f"{__name__}:echoing", lambda node: node.with_input_template("{{input}} \u2028 ✓").with_retry(2)),
    "judging": (judging, lambda node: node.structured_output(Verdict)),
    "either": (judging, lambda node: node.union_output(Praise, Verdict)),
    "asked": (echoing, lambda node: node.requires_approval("Sure?", when=never)),
    "routing": (echoing, lambda node: node.with_default_handoff("END")),
    "mapping": (echoing, lambda node: node.map_over("input.items", max_parallel=2)),
    "inside": (INSIDE, lambda node: node.with_output_key("said")),
}
FIELD = {"judging": "score", "either": "advice", "inside": "said", "routing": "handoff"}
"""Of each kind's outputs, if it is not `answer`."""


@st.composite
def workflows(draw: st.DrawFn) -> AgentWorkflow:
    """Up to four nodes; each leads to some of those after it."""
    builder = AgentWorkflow.create().with_name(draw(NAMES)).with_version(draw(NAMES))
    kinds = draw(st.lists(st.sampled_from(sorted(KINDS)), min_size=1, max_size=4))
    for index, kind in enumerate(kinds):
        work, configure = KINDS[kind]
        add = builder.add_workflow if kind == "inside" else builder.add_agent
        add(f"n{index}", work, configure)
    for index, kind in enumerate(kinds):
        for other in draw(st.lists(st.integers(index + 1, len(kinds)), unique=True, max_size=2)):
            edge = builder.from_(f"n{index}").to(f"n{other}" if other < len(kinds) else "END")
            test = draw(st.sampled_from([None, is_even, ~condition.is_empty(FIELD.get(kind, "answer"))]))
            if test is not None:
                edge.when(test)
    return builder


@examples(10)
@given(workflows(), st.sampled_from(FORMATS))
def test_a_workflow_that_is_read_again_is_the_same_and_does_the_same(builder: AgentWorkflow, format: Format) -> None:
    built = builder.build()
    text = built.export_config(format)
    again = AgentWorkflow.from_config(read_text(text, format)).build()
    assert again.to_config() == built.to_config()
    assert again.export_config(format) == text

    async def run() -> None:
        inputs = {"input": "tides", "items": ["a", "b"]}
        first, second = await built.run(inputs), await again.run(inputs)
        assert (second.outputs, second.final_answer) == (first.outputs, first.final_answer)
        assert (second.success, second.error) == (first.success, first.error) == (True, None)

    asyncio.run(run())
