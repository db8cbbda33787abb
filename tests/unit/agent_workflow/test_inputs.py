"""The input of a node: by template, by key or by default, and with the instructions of the node."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from tests.unit.agent_workflow.making import RecordingAgent, drafted, echo, kept, stub

from perdure.agent_workflow.builder.workflow import Configure
from perdure.agent_workflow.instance import AgentWorkflowInstance
from perdure.agents.conversation.message import Message
from perdure.errors import InvalidDefinition, InvalidRun


class Review(msgspec.Struct):
    score: int
    by: dict[str, str]


async def second_input(
    configure: Configure | None, workflow_input: Any = "tides", *, first: Any = "a draft", key: str | None = "draft"
) -> str:
    """Return the input of the second of two nodes."""
    listener = RecordingAgent("heard")
    named: Configure | None = None if key is None else lambda node: node.with_output_key(key)
    builder = drafted().add_agent("write", stub(first), named).add_agent("read", listener, configure)
    result = await builder.from_("write").to("read").build().run(workflow_input)
    assert result.success, result.error
    return listener.inputs[0]


@pytest.mark.parametrize(
    ("template", "expected"),
    [
        ("Read: {{draft}}", "Read: a draft"),
        ("{{ draft }} of {{write.draft}} on {{input}}", "a draft of a draft on tides"),
        ("{{draft}}{{draft}}", "a drafta draft"),
        ("no place { {draft} }", "no place { {draft} }"),
    ],
)
async def test_a_template_is_filled(template: str, expected: str) -> None:
    assert await second_input(lambda node: node.with_input_template(template)) == expected


async def test_template_values_are_not_parsed_as_templates() -> None:
    first = "{{input}} \\1 \\g<0>"

    assert await second_input(lambda node: node.with_input_template("<{{draft}}>"), first=first) == f"<{first}>"


@pytest.mark.parametrize("key", ["draft", "write.draft"])
async def test_an_input_key_names_an_output(key: str) -> None:
    assert await second_input(lambda node: node.with_input_key(key)) == "a draft"


async def test_the_template_comes_before_the_input_key() -> None:
    text = await second_input(lambda node: node.with_input_key("draft").with_input_template("T {{input}}"))

    assert text == "T tides"


@pytest.mark.parametrize("key", ["question", "input", "message", "query", "prompt"])
async def test_output_with_a_usual_name_is_the_input_of_the_next_node(key: str) -> None:
    assert await second_input(None, key=key) == "a draft"


async def test_the_input_key_comes_before_an_output_of_a_usual_name() -> None:
    assert await second_input(lambda node: node.with_input_key("input.topic"), {"topic": "t"}, key="question") == "t"


async def test_node_without_a_key_or_template_receives_the_workflow_input() -> None:
    assert await second_input(None) == "tides"
    assert await second_input(None, key=None) == "tides"


@pytest.mark.parametrize(
    ("key", "expected"),
    [("review.score", "3"), ("review.by.name", "Ann"), ("review.by", '{"name":"Ann"}'), ("score", "3")],
)
async def test_fields_of_structured_outputs_are_reached_by_their_path(key: str, expected: str) -> None:
    listener = RecordingAgent("heard")
    builder = drafted().add_agent(
        "review", stub({"score": 3, "by": {"name": "Ann"}}), lambda node: node.structured_output(Review)
    )
    builder.add_agent("read", listener, lambda node: node.with_input_key(key))
    await builder.from_("review").to("read").build().run("i")

    assert listener.inputs == [expected]


async def test_a_node_further_back_is_reached_by_its_name() -> None:
    listener = RecordingAgent("heard")
    builder = drafted()
    builder.add_agent("a", stub("from a")).add_agent("b", stub("from b"))
    builder.add_agent("c", listener, lambda node: node.with_input_template("{{a.answer}} {{b.answer}} {{answer}}"))
    await builder.from_("a").to("b").from_("b").to("c").build().run("i")

    assert listener.inputs == ["from a from b from b"]


async def test_keys_of_an_input_mapping_fill_templates() -> None:
    workflow_input = {"topic": "t", "deep": {"er": 1}, "n": [1], "input": "own"}
    template = "{{input.topic}} {{input.deep.er}} {{input.n}}"

    assert await second_input(lambda node: node.with_input_template(template), workflow_input) == "t 1 [1]"


@pytest.mark.parametrize("workflow_input", [{"question": "q", "other": 1}, {"input": "q"}])
async def test_usual_key_of_an_input_mapping_is_the_question(workflow_input: dict[str, Any]) -> None:
    assert await second_input(None, workflow_input) == "q"


async def test_mapping_without_a_usual_key_is_passed_as_json() -> None:
    assert await second_input(None, {"topic": "t"}) == '{"topic":"t"}'


def branched(configure: Configure) -> tuple[AgentWorkflowInstance, RecordingAgent]:
    """`b`, which gives `extra`, runs only if `a` replies "yes"; `c` comes after both."""
    listener = RecordingAgent("heard")
    builder = drafted().add_agent("a", RecordingAgent(echo)).add_agent("c", listener, configure)
    builder.add_agent("b", stub("y"), lambda node: node.with_output_key("extra"))
    edges = builder.from_("a").to("b").when_contains("answer", "yes").from_("a", "b").to("c")
    return edges.build(), listener


async def test_template_key_of_a_skipped_node_is_empty() -> None:
    workflow, listener = branched(lambda node: node.with_input_template("[{{extra}}{{b.extra}}]"))
    await workflow.run("yes")
    await workflow.run("no")

    assert listener.inputs == ["[yy]", "[]"]


async def test_input_key_of_a_skipped_node_fails_the_node_with_its_place() -> None:
    workflow, listener = branched(lambda node: node.with_input_key("extra"))
    assert (await workflow.run("yes")).success

    result = await workflow.run("no")

    assert result.state == "failed"
    assert "agents.c.input_key: no earlier node returned 'extra'" in str(result.error)
    assert listener.inputs == ["y"]


def test_build_rejects_a_key_that_no_node_gives() -> None:
    builder = drafted().add_agent("a", stub("x"), lambda node: node.with_output_key("draft"))
    builder.add_agent("b", stub("y"), lambda node: node.with_input_template("{{drafft}}")).from_("a").to("b")

    with pytest.raises(InvalidDefinition, match=r"agents\.b\.input_template.*'drafft'"):
        builder.build()


# ---------------------------------------------------------------- context and instructions


async def test_instructions_and_context_precede_the_input() -> None:
    listener = RecordingAgent("heard")
    builder = drafted().add_agent(
        "a",
        listener,
        lambda node: node.with_instructions("Be brief.").with_context("tone", "dry").with_context("n", [1]),
    )
    await builder.build().run("tides")

    assert [(message.role, message.text) for message in listener.received[0]] == [
        ("system", "Be brief.\n\ntone: dry\n\nn: [1]"),
        ("user", "tides"),
    ]


async def test_instructions_and_context_reach_the_model_of_an_agent() -> None:
    from pydantic_ai.messages import ModelMessage, ModelResponse, TextPart
    from pydantic_ai.models.function import AgentInfo, FunctionModel

    from perdure import Agent

    requests: list[str] = []

    def model(messages: list[ModelMessage], info: AgentInfo) -> ModelResponse:
        requests.append(f"{info.instructions} {messages!r}")
        return ModelResponse(parts=[TextPart("said")])

    agent = Agent(FunctionModel(model), name="writer", instructions="You write.")
    workflow = kept().add_agent(
        "a", agent, lambda node: node.with_instructions("Be brief.").with_context("tone", "dry")
    )
    result = await workflow.build().run("tides")

    assert result.final_answer == "said"
    for text in ("You write.", "Be brief.", "tone: dry", "tides"):
        assert text in requests[0]


async def test_execution_accepts_only_a_text_or_a_mapping() -> None:
    workflow = drafted().add_agent("a", stub("x")).build()
    for value in (3, None, ["x"], {1: "x"}, Message("user", "x")):
        wrong: Any = value
        with pytest.raises(InvalidRun, match="is a text, or a mapping"):
            await workflow.run(wrong)
