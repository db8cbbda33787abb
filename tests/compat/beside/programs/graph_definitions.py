"""Graphs as data: edge groups by ids, definitions as dicts, and what a wrong definition raises."""

from __future__ import annotations

import json
from typing import Any, Never, TypeVar

from flows import (
    Case,
    Default,
    Edge,
    EdgeDuplicationError,
    Executor,
    FanInEdgeGroup,
    FanOutEdgeGroup,
    GraphConnectivityError,
    SingleEdgeGroup,
    SwitchCaseEdgeGroup,
    SwitchCaseEdgeGroupCase,
    SwitchCaseEdgeGroupDefault,
    TypeCompatibilityError,
    WorkflowBuilder,
    WorkflowContext,
    WorkflowEvent,
    WorkflowExecutor,
    executor,
    handler,
    response_handler,
    validate_workflow_graph,
)

T = TypeVar("T")


class Relay(Executor):
    @handler
    async def take(self, message: str, ctx: WorkflowContext[str, str]) -> None:
        await ctx.send_message(message)


class Join(Executor):
    @handler
    async def take(self, messages: list[str], ctx: WorkflowContext[Never, str]) -> None:
        await ctx.yield_output(",".join(messages))


class Numbers(Executor):
    @handler
    async def take(self, number: int | float, ctx: WorkflowContext[Never, int]) -> None: ...


def is_long(message: str) -> bool:
    return len(message) > 3


def pick(message: str, targets: list[str]) -> list[str]:
    return targets[:1]


class Progress(WorkflowEvent):  # type: ignore[type-arg]
    def __init__(self, text: str, percent: int) -> None:
        super().__init__("progress", data=text)
        self.percent = percent


def raised(make: Any, *words: str) -> Any:
    try:
        return ["nothing was raised", repr(make())]
    except (ValueError, TypeError, RuntimeError) as error:
        kinds = [kind.__name__ for kind in (ValueError, TypeError, RuntimeError) if isinstance(error, kind)]
        return [kinds, [word for word in words if word not in str(error)]]


def wrong_handlers() -> dict[str, Any]:
    async def no_type(self: Any, message, ctx: WorkflowContext[str]) -> None: ...
    async def no_context_type(self: Any, message: str, ctx) -> None: ...
    async def other_context(self: Any, message: str, ctx: int) -> None: ...
    async def many(self: Any, message: str, ctx: WorkflowContext[str], more: int) -> None: ...
    async def variable(self: Any, message: T, ctx: WorkflowContext[str]) -> None: ...
    async def number(self: Any, message: str, ctx: WorkflowContext[123]) -> None: ...  # type: ignore[valid-type]
    async def answer(self: Any, request, response: str, ctx: WorkflowContext[str]) -> None: ...

    async def right(self: Any, message: str, ctx: WorkflowContext[str]) -> None: ...

    async def right_answer(self: Any, request: str, response: str, ctx: WorkflowContext[str]) -> None: ...

    words = {
        no_type: ("must have a type annotation for the message parameter",),
        no_context_type: ("must have a WorkflowContext",),
        other_context: ("must be annotated as", "WorkflowContext"),
        many: ("must have", "Got 4 parameters"),
        variable: ("has an unresolved TypeVar",),
        number: ("invalid type entry", "123"),
    }
    results = {function.__name__: raised(lambda f=function: handler(f), *texts) for function, texts in words.items()}
    results["answer"] = raised(lambda: response_handler(answer), "must have a type annotation for the original_request")
    results["only output"] = raised(lambda: handler(output=str)(right), "must specify 'input' type")
    results["only request"] = raised(lambda: response_handler(request=str)(right_answer))
    results["static"] = raised(lambda: executor(staticmethod(is_long)), "cannot be used with @staticmethod")
    return results


def groups() -> list[Any]:
    switch = SwitchCaseEdgeGroup("a", [SwitchCaseEdgeGroupCase(is_long, "b"), SwitchCaseEdgeGroupDefault("c")])
    made = [
        SingleEdgeGroup(source_id="a", target_id="b", condition=is_long, id="1"),
        FanOutEdgeGroup(source_id="a", target_ids=["b", "c"], selection_func=pick, id="2"),
        FanOutEdgeGroup("a", ["b", "c"], id="3"),
        FanInEdgeGroup(source_ids=["a", "b"], target_id="c", id="4"),
    ]
    lists = [[group.source_executor_ids, group.target_executor_ids, group.id, group.type] for group in made]
    names = [made[1].selection_func_name, made[1].target_ids, made[1].selection_func("m", ["b"]), switch.target_ids]
    cases = [case.to_dict() for case in switch.cases]
    edge = Edge(source_id="a", target_id="b", condition=is_long)
    return [lists, names, cases, edge.to_dict(), Edge.from_dict(edge.to_dict()).condition_name, made[3].to_dict()]


def definition() -> Any:
    a, b, c, join = Relay("a"), Relay("b"), Relay("c"), Join("join")
    builder = WorkflowBuilder(start_executor=a, name="w", description="about", output_from=[join])
    workflow = builder.add_fan_out_edges(a, [b, c]).add_fan_in_edges([b, c], join).build()
    outer = WorkflowBuilder(start_executor=WorkflowExecutor(workflow, "inner"), name="outer").build()
    tree = json.loads(workflow.to_json())
    keys = sorted(tree)
    kinds = sorted(group["type"] for group in tree["edge_groups"])
    assert tree["id"] == workflow.id and len(workflow.edge_groups) == len(kinds)
    del tree["edge_groups"], tree["id"]
    inner = json.loads(outer.to_json())["executors"]["inner"]
    return [keys, kinds, tree, inner["type"], inner["workflow"]["name"], Numbers("n").to_dict()]


def wrong_graphs() -> dict[str, Any]:
    def build(*edges: tuple[Any, Any]) -> Any:
        builder = WorkflowBuilder(start_executor=edges[0][0])
        for source, target in edges:
            builder.add_edge(source, target)
        return builder.build()

    a, b, c, n = Relay("a"), Relay("b"), Relay("c"), Numbers("n")
    results: dict[str, Any] = {}
    for name, edges, kind, word in (
        ("twice", [(a, b), (a, b)], EdgeDuplicationError, "Duplicate edge detected: a->b"),
        ("types", [(a, n)], TypeCompatibilityError, "Type incompatibility between executors 'a' -> 'n'"),
        ("unreachable", [(a, b), (c, b)], GraphConnectivityError, "unreachable"),
    ):
        try:
            build(*edges)
        except kind as error:
            results[name] = [word in str(error), error.validation_type.value, word in error.message]
    results["chain"] = raised(lambda: WorkflowBuilder(start_executor=a).add_chain([a]), "At least two executors")
    results["id"] = raised(lambda: build((a, Relay("a"))), "Duplicate executor ID 'a'")
    results["literal"] = raised(
        lambda: WorkflowBuilder(start_executor=a, output_from="some"), "Unsupported output_from"
    )
    results["other"] = raised(lambda: WorkflowBuilder(start_executor=5), "expected an Executor or SupportsAgentRun")
    executors = {"a": a, "b": b}
    for name, start, outputs in (("start", c, []), ("no output", a, ["n"]), ("fine", a, ["b"])):
        try:
            validate_workflow_graph([SingleEdgeGroup("a", "b")], executors, start, outputs)
            results[name] = "valid"
        except Exception as error:  # noqa: BLE001
            results[name] = [type(error).__name__, "is not present in the workflow graph" in str(error)]
    return results


async def events() -> list[Any]:
    @executor(id="reporter", output=int)
    async def reporter(message: str, ctx: WorkflowContext[str, str]) -> None:
        await ctx.add_event(Progress("half", 50))
        await ctx.yield_output(message)

    workflow = WorkflowBuilder(start_executor=reporter).build()
    stream = await workflow_stream(workflow)
    progress = [[event.data, event.percent] for event in stream if event.type == "progress"]
    typed = WorkflowEvent[str]("custom", data="text")
    return [progress, typed.data, reporter.output_types == [int], WorkflowEvent.warning("careful").data]


async def workflow_stream(workflow: Any) -> list[Any]:
    return [event async for event in workflow.run("x", stream=True)]


async def main() -> Any:
    case, default = Case(condition=is_long, target=Relay("x")), Default(target=Relay("y"))
    shown = [case.condition("long"), default.target.id, Numbers("n").input_types == [int | float]]
    return [groups(), definition(), wrong_handlers(), wrong_graphs(), await events(), shown]
