"""The reply of an agent as the outputs of its node: texts, structured values, one of several types."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import msgspec
import pydantic
import pytest
from tests.unit.agent_workflow.making import RecordingAgent, drafted, kept, stub

from perdure.agent_workflow.builder.workflow import AgentWorkflow, Configure
from perdure.agent_workflow.execution.execution import WorkflowResult
from perdure.testing import FakeClock


class Struct(msgspec.Struct):
    score: int
    tags: list[str] = msgspec.field(default_factory=list)


@dataclass
class Record:
    score: int
    tags: list[str]


class Model(pydantic.BaseModel):
    score: int
    tags: list[str] = []


class Invoice(msgspec.Struct):
    total: int


@dataclass
class Complaint:
    why: str


class Praise(pydantic.BaseModel):
    stars: int


REPLIES = [
    {"score": 3, "tags": ["a"]},
    '{"score": 3, "tags": ["a"]}',
    'Here it is:\n```json\n{"score": 3, "tags": ["a"]}\n```',
]


async def run(reply: Any, configure: Configure | None = None) -> WorkflowResult:
    return await drafted().add_agent("a", stub(reply), configure).build().run("i")


async def test_a_text_is_the_answer() -> None:
    assert (await run("said")).outputs == {"a.answer": "said"}
    assert (await run("said", lambda node: node.with_output_key("draft"))).outputs == {"a.draft": "said"}


@pytest.mark.parametrize("kind", [Struct, Record, Model])
@pytest.mark.parametrize("reply", REPLIES, ids=["value", "json", "fenced"])
async def test_each_field_of_a_structured_answer_is_an_output(kind: type, reply: Any) -> None:
    result = await run(reply, lambda node: node.structured_output(kind))

    assert result.outputs == {"a.score": 3, "a.tags": ["a"]}
    assert result.final_answer == '{"score":3,"tags":["a"]}'


@pytest.mark.parametrize("kind", [Struct, Record, Model])
async def test_with_an_output_key_a_structured_answer_is_one_output(kind: type) -> None:
    result = await run(REPLIES[0], lambda node: node.structured_output(kind).with_output_key("review"))

    assert result.outputs == {"a.review": {"score": 3, "tags": ["a"]}}


async def test_invalid_structured_answer_fails_the_node_and_is_quoted() -> None:
    result = await run("no idea", lambda node: node.structured_output(Struct))

    assert result.state == "failed"
    assert "Not a Struct" in str(result.error)
    assert "no idea" in str(result.error)


async def test_a_wrong_answer_is_tried_again() -> None:
    clock = FakeClock()
    agent = RecordingAgent("no idea", {"score": "many"}, {"score": 3})
    builder = kept(clock=clock).add_agent("a", agent, lambda node: node.structured_output(Struct).with_retry(3))
    async with clock.skipping():
        result = await builder.build().run("i")

    assert result.outputs == {"a.score": 3, "a.tags": []}
    assert agent.turns == 3


async def test_a_wrong_answer_is_asked_for_again_by_a_resume() -> None:
    agent = RecordingAgent("no idea", {"score": 3})
    workflow = kept().add_agent("a", agent, lambda node: node.structured_output(Struct)).build()
    assert (await workflow.run("i", "e")).state == "failed"

    assert (await workflow.resume("e")).outputs == {"a.score": 3, "a.tags": []}


@pytest.mark.parametrize(
    ("reply", "expected"),
    [
        ({"total": 3}, {"a.total": 3, "a.matched_type": "Invoice"}),
        ({"why": "late"}, {"a.why": "late", "a.matched_type": "Complaint"}),
        ('{"stars": 5}', {"a.stars": 5, "a.matched_type": "Praise"}),
    ],
)
async def test_a_union_answer_names_its_type(reply: Any, expected: dict[str, Any]) -> None:
    assert (await run(reply, lambda node: node.union_output(Invoice, Complaint, Praise))).outputs == expected


async def test_a_union_answer_with_an_output_key_is_one_output_and_its_type() -> None:
    result = await run({"total": 3}, lambda node: node.union_output(Invoice, Complaint).with_output_key("found"))

    assert result.outputs == {"a.found": {"total": 3}, "a.matched_type": "Invoice"}


async def test_a_union_answer_of_no_type_fails_the_node() -> None:
    result = await run({"else": 1}, lambda node: node.union_output(Invoice, Complaint))

    assert result.state == "failed"
    assert "none of Invoice, Complaint" in str(result.error)


# ---------------------------------------------------------------- the final answer


def joined(*finals: str) -> AgentWorkflow:
    builder = drafted().add_agent("a", stub("first"))
    for name in finals:
        builder.add_agent(name, stub(f"said by {name}"))
    return builder.from_("a").to(*finals)


async def test_final_answer_is_the_answer_of_the_last_node() -> None:
    assert (await joined("b").build().run("i")).final_answer == "said by b"


async def test_answers_of_several_last_nodes_follow_the_definition_order() -> None:
    assert (await joined("c", "b").build().run("i")).final_answer == "said by c\n\nsaid by b"


async def test_the_final_answer_is_found_under_any_output_key() -> None:
    assert (await run("said", lambda node: node.with_output_key("draft"))).final_answer == "said"


# ---------------------------------------------------------------- where agents come from


async def test_an_agent_is_made_of_a_config() -> None:
    from perdure.agent_workflow.definition import AgentConfig

    builder = drafted().add_agent("a", AgentConfig(model="test", instructions="Be brief."))
    result = await builder.build().run("i")

    assert result.success, result.error
    assert result.final_answer


async def test_a_function_may_configure_an_agent_or_give_one() -> None:
    builder = drafted().add_agent("a", lambda config: config.with_model("test").with_name("writer"))
    result = await builder.add_agent("b", lambda config: stub("from b")).build().run("i")

    assert result.success, result.error
    assert result.outputs["b.answer"] == "from b"


async def test_configs_without_a_model_take_that_of_the_workflow() -> None:
    from perdure.agent_workflow.definition import AgentConfig

    builder = drafted().with_model("test").add_agent("a", AgentConfig(instructions="Be brief."))

    assert (await builder.build().run("i")).success


async def test_a_model_gives_structured_output() -> None:
    from perdure.agent_workflow.definition import AgentConfig

    builder = drafted().add_agent("a", AgentConfig(model="test"), lambda node: node.structured_output(Struct))
    result = await builder.build().run("i")

    assert result.success, result.error
    assert set(result.outputs) == {"a.score", "a.tags"}


async def test_a_model_gives_one_of_several_types() -> None:
    from perdure.agent_workflow.definition import AgentConfig

    builder = drafted().add_agent("a", AgentConfig(model="test"), lambda node: node.union_output(Invoice, Praise))
    result = await builder.build().run("i")

    assert result.success, result.error
    assert result.outputs["a.matched_type"] in ("Invoice", "Praise")
