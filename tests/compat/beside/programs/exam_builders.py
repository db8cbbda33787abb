"""What a builder refuses, with which words, and what a built workflow shows."""

import logging
import warnings
from typing import Any, Never

from flows import (
    Case,
    Default,
    EdgeDuplicationError,
    Executor,
    SingleEdgeGroup,
    WorkflowBuilder,
    WorkflowContext,
    WorkflowValidationError,
    handler,
    validate_workflow_graph,
)


class Send(Executor):
    @handler
    async def take(self, message: str, ctx: WorkflowContext[str, str]) -> None:
        await ctx.send_message(message)


class Yield(Executor):
    @handler
    async def take(self, message: str, ctx: WorkflowContext[Never, str]) -> None:
        await ctx.yield_output(f"{self.id}:{message}")


class Silent(Executor):
    @handler
    async def take(self, message: str, ctx: WorkflowContext) -> None: ...


class Lines(logging.Handler):
    def __init__(self) -> None:
        super().__init__()
        self.lines: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.lines.append(record.getMessage())


def refusal(call: Any, *phrases: str) -> Any:
    """Which phrases the error contains, and whether it is an error of these kinds."""
    try:
        call()
    except Exception as error:  # noqa: BLE001  # any error is the result
        kinds = [isinstance(error, kind) for kind in (ValueError, TypeError, WorkflowValidationError)]
        return [[phrase in str(error) for phrase in phrases], any(kinds)]
    return "nothing was raised"


def refusals() -> Any:
    a, b, c = Send("a"), Yield("b"), Yield("c")

    def start() -> Any:
        return WorkflowBuilder(start_executor=a)

    return [
        refusal(lambda: start().add_edge(a, Send("a")), "Duplicate executor ID 'a' detected in workflow."),
        refusal(
            lambda: start().add_edge(a, b).add_edge(a, b).build(), "a->b. Each edge in the workflow must be unique"
        ),
        refusal(lambda: start().add_edge(a, b).add_edge(c, c).build(), "from the start executor 'a': ['c']."),
        refusal(lambda: start().add_fan_out_edges(a, [b]), "FanOutEdgeGroup must contain at least two targets"),
        refusal(lambda: start().add_fan_in_edges([a], b), "FanInEdgeGroup must contain at least two sources"),
        refusal(lambda: start().add_switch_case_edge_group(a, [Default(b)]), "must contain at least two cases"),
        refusal(
            lambda: start().add_switch_case_edge_group(a, [Case(bool, b), Case(bool, c)]),
            "SwitchCaseEdgeGroup must contain exactly one default case",
        ),
        refusal(lambda: WorkflowBuilder(start_executor=a, output_from="x"), "Unsupported output_from literal 'x'; use"),
        EdgeDuplicationError("a->b").edge_id,
    ]


def validation() -> Any:
    a, b = Send("a"), Yield("b")
    group = SingleEdgeGroup("a", "b")
    nodes = {"a": a, "b": b}
    return [
        refusal(lambda: validate_workflow_graph([group], nodes, a, [])),
        refusal(lambda: validate_workflow_graph([group], nodes, a, ["b"])),
        refusal(lambda: validate_workflow_graph([group], {"b": b}, a, []), "'a' is not present in the workflow graph"),
        refusal(lambda: validate_workflow_graph([group, group], nodes, a, []), "Duplicate edge detected: a->b"),
    ]


def warned() -> Any:
    lines, logger = Lines(), logging.getLogger()
    logger.addHandler(lines)
    a, silent = Send("a"), Silent("silent")
    WorkflowBuilder(start_executor=a).add_edge(a, a).add_edge(a, silent).add_edge(silent, Yield("b")).build()
    logger.removeHandler(lines)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        WorkflowBuilder(start_executor=a, output_executors=[a])
    text = " ".join(lines.lines)
    phrases = (
        "Self-loop detected: Executor 'a' connects to itself",
        "Executor 'silent' has no output type annotations. Type compatibility validation will be skipped",
    )
    kinds = [item.category.__name__ for item in caught if "`output_executors` is deprecated" in str(item.message)]
    return [[phrase in text for phrase in phrases], kinds]


async def main() -> Any:
    return {"refusals": refusals(), "validation": validation(), "warned": warned()}
