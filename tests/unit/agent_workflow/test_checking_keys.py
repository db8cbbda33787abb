"""Keys that no node can give, in templates, input keys and maps."""

from __future__ import annotations

from typing import Any

import pytest
from tests.unit.agent_workflow.document_parts import HERE, document, edge, nodes, problems_of

from perdure.agent_workflow.builder.workflow import AgentWorkflow

VERDICT = {"output_mode": "structured", "output_types": [f"{HERE}:Verdict"]}
THERE = "Outputs: a.draft, b.answer, input; a key of the execution's input is written"


def of(b: dict[str, Any], a: dict[str, Any] | None = None) -> dict[str, Any]:
    """Two nodes, one after the other."""
    return document(agents=nodes(a={"output_key": "draft"} if a is None else a, b=b), edges=[edge("a", "b")])


@pytest.mark.parametrize(
    ("definition", "problem"),
    [
        (
            of({"input_template": "Mend {{ drft }}, {{draft}} and {{drft}}."}),
            f"agents.b.input_template: no node outputs 'drft' (did you mean 'draft'?). {THERE} 'input.drft'",
        ),
        (
            of({"input_key": "dr"}),
            f"agents.b.input_key: no node outputs 'dr'. {THERE} 'input.dr'",
        ),
        (
            of({"map": {"over": "items"}}),
            f"agents.b.map.over: no node outputs 'items'. {THERE} 'input.items'",
        ),
        (
            of({"map": {"over": "draft"}, "input_template": "{{itm}}"}),
            f"agents.b.input_template: no node outputs 'itm'. {THERE} 'input.itm'",
        ),
        (
            of({"input_template": "{{a.advise}}"}, VERDICT),
            "agents.b.input_template: 'a' has no output 'advise' (did you mean 'advice'?). It has: score, advice",
        ),
        (
            document(agents=nodes(a={"input_key": "b.x"}, b={}), edges=[]),
            "agents.a.input_key: 'b' has no output 'x'. It has: answer",
        ),
    ],
)
def test_a_key_that_no_node_gives_is_rejected(definition: dict[str, Any], problem: str) -> None:
    assert problems_of(definition) == [problem]


@pytest.mark.parametrize(
    "definition",
    [
        of({"input_template": "{{draft}} {{a.draft}} {{a.draft.title}} {{input}} {{input.topic}}"}),
        of({"input_template": "{{ title }}"}, {"approval": {}}),  # the approver may add it
        of({"input_template": "{{a.title}}"}, {"approval": {}}),
        of({"input_key": "score"}, VERDICT),
        of({"map": {"over": "draft"}, "input_template": "{{index}}: {{item.name}}"}),
        of({}, {"map": {"over": "items"}}),  # nothing comes before it: a key of the input
        of({}, {"input_template": "{{topic}}, {{b.answer}}"}),
        document(agents=nodes(a={"input_key": "topic"}), edges=[edge("a", "a")], settings={"max_iterations": 2}),
    ],
)
def test_key_that_may_exist_is_accepted(definition: dict[str, Any]) -> None:
    assert AgentWorkflow.from_config(definition).build().node_count > 0


async def test_input_key_is_addressed_by_its_path() -> None:
    definition = of({"input_template": "{{input.style}}: {{draft}}"}, {"input_key": "topic", "output_key": "draft"})
    result = await AgentWorkflow.from_config(definition).build().run({"topic": "tides", "style": "brief"})
    assert result.final_answer == "<brief: <tides>>"
