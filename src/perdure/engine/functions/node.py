"""A function as the one executor of a graph: how its parameters are read, and how it is called."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from perdure.engine.delivery.context import DeliveryContext
from perdure.engine.functions.context import RunContext, current_run_context
from perdure.graph.executor import Executor, HandlerTable
from perdure.graph.handlers import Handler, Returns
from perdure.graph.types.matching import flatten_union, hints_of


@dataclass(frozen=True)
class FunctionShape:
    function: Callable[..., Any]
    name: str
    message_type: Any
    """What it accepts: the annotation of its first parameter; `None` where it takes no message."""
    output_type: Any
    message: inspect.Parameter | None
    context: inspect.Parameter | None
    parameters: int

    def arguments(self, message: Any, context: Any) -> tuple[list[Any], dict[str, Any]]:
        """How it is to be called: those that it takes only by name are given by name."""
        given = [(one, value) for one, value in ((self.message, message), (self.context, context)) if one is not None]
        named = {one.name: value for one, value in given if one.kind is one.KEYWORD_ONLY}
        by_place = [(one, value) for one, value in given if one.kind is not one.KEYWORD_ONLY]
        order = list(inspect.signature(self.function).parameters)
        by_place.sort(key=lambda pair: order.index(pair[0].name))
        return [value for _, value in by_place], named


def read_function(function: Any) -> FunctionShape:
    """Raises TypeError, saying what to do, for what cannot be a workflow."""
    name = getattr(function, "__name__", "") or type(function).__name__
    if inspect.isasyncgenfunction(function) or inspect.isgeneratorfunction(function):
        raise TypeError(
            f"@workflow: {name!r} is a generator, which would never run. Return the result, and tell progress with "
            "`await ctx.add_event(...)`."
        )
    if not inspect.iscoroutinefunction(function):
        what = "must be an `async def`" if callable(function) else "is no function"
        raise TypeError(
            f"@workflow: {name!r} {what}. What is not async belongs into a @step, which runs it in a thread."
        )
    parameters = [one for one in inspect.signature(function).parameters.values() if one.kind is not one.VAR_KEYWORD]
    hints = hints_of(function)
    contexts = [one for one in parameters if _is_context(one, hints)]
    others = [one for one in parameters if one not in contexts]
    needed = [one for one in others[1:] if one.default is one.empty]
    if needed or len(contexts) > 1 or (contexts and parameters.index(contexts[0]) > 1):
        raise TypeError(
            f"@workflow: {name!r} takes {', '.join(one.name for one in parameters)}; expected a message, a RunContext, "
            "or both: `async def f(message: T, ctx: RunContext) -> R`."
        )
    message_type = hints.get(others[0].name, Any) if others else None
    output = hints.get("return", Any)
    message, context = next(iter(others), None), next(iter(contexts), None)
    return FunctionShape(function, name, message_type, output, message, context, len(parameters))


def _is_context(parameter: inspect.Parameter, hints: dict[str, Any]) -> bool:
    hint = hints.get(parameter.name)
    return any(one is RunContext for one in flatten_union(hint)) or (hint is None and parameter.name == "ctx")


class FunctionNode(Executor):
    """The executor of a function workflow: each message runs the function from the top."""

    is_function = True

    def __init__(self, shape: FunctionShape, id: str) -> None:
        super().__init__(id, defer_discovery=True)
        self._shape = shape
        accepted = type(None) if shape.message_type is None else shape.message_type
        outputs = () if shape.output_type in (None, type(None)) else tuple(flatten_union(shape.output_type))
        self.table = HandlerTable(
            id, [Handler(id, _run, accepted, None, (), outputs, True, Returns.YIELDED, own_task=True)]
        )

    @property
    def code(self) -> Any:
        return self._shape.function

    async def run(self, message: Any, ctx: DeliveryContext) -> Any:
        shape = self._shape
        context = RunContext(ctx)
        arguments, named = shape.arguments(message, context)
        outer = current_run_context.get()
        current_run_context.set(context)
        try:
            return await shape.function(*arguments, **named)
        finally:
            current_run_context.set(outer)


async def _run(node: FunctionNode, message: Any, ctx: DeliveryContext) -> Any:
    return await node.run(message, ctx)
