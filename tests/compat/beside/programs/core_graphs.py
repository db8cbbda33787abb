"""Designated executors, edges and cases as data, and the texts of drawings."""

import json
import logging
from typing import Any, Never

from flows import (
    Case,
    Default,
    Edge,
    Executor,
    FanOutEdgeGroup,
    SwitchCaseEdgeGroup,
    SwitchCaseEdgeGroupCase,
    SwitchCaseEdgeGroupDefault,
    WorkflowBuilder,
    WorkflowContext,
    WorkflowExecutor,
    WorkflowViz,
    handler,
)


class Step(Executor):
    @handler
    async def take(self, message: str, ctx: WorkflowContext[str, str]) -> None:
        await ctx.yield_output(self.id)
        await ctx.send_message(message)


class Join(Executor):
    @handler
    async def take(self, messages: list[str], ctx: WorkflowContext[Never, int]) -> None: ...


def is_long(message: str) -> bool:
    return len(message) > 3


async def designations() -> Any:
    choices: list[dict[str, Any]] = [
        {},
        {"output_from": "all"},
        {"intermediate_output_from": "all"},
        {"output_from": [1]},
        {"output_from": [1], "intermediate_output_from": "all_other"},
        {"output_from": [], "intermediate_output_from": "all_other"},
    ]
    results = []
    for choice in choices:
        a, b = Step("a"), Step("b")
        chosen = {name: [b] if value == [1] else value for name, value in choice.items()}
        workflow = WorkflowBuilder(start_executor=a, **chosen).add_edge(a, b).build()
        result = await workflow.run("x")
        definition = workflow.to_dict()
        assert workflow.to_json() == json.dumps(definition)
        results.append(
            [
                [
                    result.get_outputs(),
                    result.get_intermediate_outputs(),
                    [each.__name__ for each in workflow.output_types],
                ],
                [workflow.is_terminal_executor(each) for each in ("a", "b", "unknown")],
                [definition["output_executors"], definition["intermediate_executors"]],
            ]
        )
    return results


def edges() -> Any:
    cases = [SwitchCaseEdgeGroupCase(is_long, "b"), SwitchCaseEdgeGroupDefault("c")]
    switch = SwitchCaseEdgeGroup("a", cases)
    missing = SwitchCaseEdgeGroupCase(condition=None, target_id="b", condition_name="gone")
    case, default = Case(is_long, "b"), Default("c")
    case.target = default.target = "d"
    errors = []
    for call in (
        lambda: missing.condition("x"),
        lambda: SwitchCaseEdgeGroupCase.from_dict(cases[0].to_dict()).condition(1),
    ):
        try:
            call()
        except RuntimeError as error:
            errors.append(str(error).partition(" after serialization")[0])
    return [
        [edge.to_dict() for edge in switch.edges],
        [switch.selection_func(message, ["b", "c"]) for message in ("long text", "x")],
        [repr(each) for each in (Edge("a", "b", is_long), *cases, default)],
        [Edge("a", "b", is_long) == Edge("a", "b", condition_name="is_long"), cases[0] == missing, Edge.ID_SEPARATOR],
        [errors, case.target, FanOutEdgeGroup("a", ["b", "c"], is_long).selection_func_name],
    ]


def drawings() -> Any:
    a, b, c, d, e = Step("a"), Step("b"), Step("c"), Step("d"), Join("e")
    child = WorkflowExecutor(WorkflowBuilder(start_executor=Step("inner")).build(), id="child")
    builder = WorkflowBuilder(start_executor=a).add_edge(a, b, condition=is_long).add_fan_in_edges([c, d], e)
    builder.add_switch_case_edge_group(b, [Case(is_long, c), Default(d)]).add_edge(d, child)
    viz = WorkflowViz(builder.build())
    texts = [viz.to_mermaid(), viz.to_digraph(), viz.to_mermaid(include_internal_executors=True)]
    wanted = (
        'a["a (Start)"];\n  b["b"];',
        "a -. conditional .-> b;",
        "b --> c;",
        "((fan-in))",
        "fan_in__e",
        "subgraph child",
        'child__inner["inner (Start)"];',
        "rankdir=TD;",
        '"a" -> "b" [style=dashed, label="conditional"];',
        '"b" -> "d";',
        '" [shape=ellipse, fillcolor=lightgoldenrod, label="fan-in"];',
        '"child/inner" [fillcolor=lightgreen, label="inner\\n(Start)"];',
        "internal_c --> c;",
    )
    joins = sorted(word for line in texts[1].split('"') for word in [line] if word.startswith("fan_in::"))
    return [
        [[part in text for part in wanted] for text in texts],
        joins[0].startswith("fan_in::e"),
        texts[1].endswith("}"),
    ]


def lines() -> Any:
    class Lines(logging.Handler):
        texts: list[str]

        def emit(self, record: logging.LogRecord) -> None:
            self.texts.append(record.getMessage())

    collected, logger = Lines(), logging.getLogger()
    collected.texts, level = [], logger.level
    logger.addHandler(collected)
    logger.setLevel(logging.DEBUG)
    a, b = Step("a"), Step("b")
    WorkflowBuilder(start_executor=a).add_edge(a, b).build()
    logger.removeHandler(collected)
    logger.setLevel(level)
    return any("Dead-end executors detected (no outgoing edges): ['b']" in text for text in collected.texts)


async def main() -> Any:
    return {"designations": await designations(), "edges": edges(), "drawings": drawings(), "lines": lines()}
