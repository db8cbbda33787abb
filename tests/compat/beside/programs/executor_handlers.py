"""Handlers: which message goes where, declared types, explicit types, inheritance, functions, what is refused."""

from dataclasses import dataclass
from typing import Any, Generic, Never, Optional, TypeVar, Union

from flows import (
    Executor,
    WorkflowBuilder,
    WorkflowContext,
    WorkflowMessage,
    executor,
    handler,
    response_handler,
)

T = TypeVar("T")


@dataclass
class Base:
    n: int


@dataclass
class Special(Base):
    extra: str = ""


@dataclass
class Box(Generic[T]):
    value: T


class Kinds(Executor):
    @handler
    async def text(self, message: str, ctx: WorkflowContext[str, str]) -> None:
        await ctx.yield_output("str")

    @handler
    async def numbers(self, message: int | float, ctx: WorkflowContext[str, str]) -> None:
        await ctx.yield_output("number")

    @handler
    async def texts(self, message: list[str], ctx: WorkflowContext[str, str]) -> None:
        await ctx.yield_output("list[str]")

    @handler
    async def ints(self, message: list[int], ctx: WorkflowContext[str, str]) -> None:
        await ctx.yield_output("list[int]")

    @handler
    async def mapping(self, message: dict[str, Any], ctx: WorkflowContext[str, str]) -> None:
        await ctx.yield_output("dict")

    @handler
    async def base(self, message: Base, ctx: WorkflowContext[str, str]) -> None:
        await ctx.yield_output("Base")

    @handler
    async def pair(self, message: tuple[int, str], ctx: WorkflowContext[str, str]) -> None:
        await ctx.yield_output("tuple")


def names(types: Any) -> list[str]:
    return sorted(str(getattr(kind, "__name__", kind)) if isinstance(kind, type) else str(kind) for kind in types)


def raised(make: Any) -> Any:
    try:
        made = make()
    except (ValueError, TypeError, RuntimeError) as error:
        return [kind.__name__ for kind in (ValueError, TypeError, RuntimeError) if isinstance(error, kind)]
    return ["made", getattr(made, "id", "")]


def handles(each: Any, *values: Any) -> list[bool]:
    return [each.can_handle(WorkflowMessage(data=value, source_id="test")) for value in values]


async def dispatch() -> Any:
    kinds = Kinds(id="kinds")
    values = ("x", 1, 1.5, ["a"], [1], {"k": 1}, Base(1), Special(1), (1, "x"), [], b"x", None, {1: 2}, True, {1})
    workflow = WorkflowBuilder(start_executor=kinds).build()
    results = [(await workflow.run(value)).get_outputs() for value in ("x", 1, ["a"], [1], {"k": 1}, Special(1))]
    return [handles(kinds, *values), results]


async def declared() -> Any:
    class Declares(Executor):
        @handler
        async def one(self, message: str, ctx: WorkflowContext[int | str, bool]) -> None: ...

        @handler
        async def two(self, message: int, ctx: WorkflowContext[float]) -> None: ...

        @handler
        async def three(self, message: float, ctx: WorkflowContext) -> None: ...

        @handler
        async def four(self, message: Optional[bytes], ctx: WorkflowContext[Never, Union[int, str]]) -> None: ...

        @response_handler
        async def five(self, request: str, answer: int, ctx: WorkflowContext[dict, list]) -> None: ...

    each = Declares(id="d")
    lists = [names(each.input_types), names(each.output_types), names(each.workflow_output_types)]
    asks = [each.is_request_response_capable, each.is_request_supported(str, int), each.is_request_supported(str, str)]
    return [lists, asks, Kinds(id="k").is_request_response_capable]


async def explicit() -> Any:
    class Explicit(Executor):
        @handler(input=str, output=int, workflow_output=bool)
        async def one(self, message, ctx) -> None:  # type: ignore[no-untyped-def]
            await ctx.yield_output(len(message))

        @handler(input=bytes)
        async def two(self, message, ctx) -> None:  # type: ignore[no-untyped-def]
            await ctx.yield_output("number")

        @handler(input="Base", output="Special")
        async def three(self, message, ctx) -> None:  # type: ignore[no-untyped-def]
            await ctx.yield_output("base")

    each = Explicit(id="e")
    workflow = WorkflowBuilder(start_executor=each).build()
    outputs = [(await workflow.run(value)).get_outputs() for value in ("abc", b"2", Special(1))]
    return [names(each.input_types), names(each.output_types), names(each.workflow_output_types), outputs]


async def inherited() -> Any:
    class Parent(Executor):
        @handler
        async def text(self, message: str, ctx: WorkflowContext[Never, str]) -> None:
            await ctx.yield_output(self.word(message))

        def word(self, message: str) -> str:
            return f"parent {message}"

    class Child(Parent):
        def word(self, message: str) -> str:
            return f"child {message}"

        @handler
        async def number(self, message: int, ctx: WorkflowContext[Never, str]) -> None:
            await ctx.yield_output("number")

    class Other(Parent):
        @handler
        async def text(self, message: str, ctx: WorkflowContext[Never, str]) -> None:
            await ctx.yield_output(f"other {message}")

    results = []
    for each, values in ((Child("c"), ("x", 1)), (Other("o"), ("x",))):
        workflow = WorkflowBuilder(start_executor=each).build()
        results.append([(await workflow.run(value)).get_outputs() for value in values])
    return [results, names(Child("c").input_types)]


async def functions() -> Any:
    @executor
    async def plain(message: str, ctx: WorkflowContext[Never, str]) -> None:
        await ctx.yield_output(message.upper())

    @executor(id="named")
    def sync(message: str, ctx: WorkflowContext) -> None: ...

    @executor(id="lonely")
    async def lonely(message: str) -> None: ...

    @executor(id="typed", input=int, output=str, workflow_output=bool)
    async def typed(message, ctx: WorkflowContext) -> None:  # type: ignore[no-untyped-def]
        await ctx.yield_output(message + 1)

    shown = [
        [
            each.id,
            type(each).__name__,
            names(each.input_types),
            names(each.output_types),
            names(each.workflow_output_types),
        ]
        for each in (plain, sync, lonely, typed)
    ]
    outputs = [
        (await WorkflowBuilder(start_executor=each).build().run(value)).get_outputs()
        for each, value in ((plain, "a"), (typed, 1))
    ]
    return [shown, outputs]


async def refused() -> Any:
    def no_handlers() -> Any:
        class Empty(Executor):
            pass

        return Empty(id="x")

    def twice() -> Any:
        class Twice(Executor):
            @handler
            async def one(self, message: str, ctx: WorkflowContext) -> None: ...

            @handler
            async def two(self, message: str, ctx: WorkflowContext) -> None: ...

        return Twice(id="x")

    def no_id() -> Any:
        return Kinds(id="")

    def method() -> Any:
        class Has(Executor):
            @executor
            @staticmethod
            async def one(message: str) -> None: ...

        return Has

    def no_parameters() -> Any:
        @executor
        async def none() -> None: ...

        return none

    def three_parameters() -> Any:
        @executor
        async def three(a: str, ctx: WorkflowContext, b: int) -> None: ...

        return three

    def untyped() -> Any:
        @executor
        async def untyped_function(a, ctx: WorkflowContext) -> None: ...  # type: ignore[no-untyped-def]

        return untyped_function

    makers = (no_handlers, twice, no_id, method, no_parameters, three_parameters, untyped)
    return {make.__name__: raised(make) for make in makers}


async def generics() -> Any:
    class Many(Executor):
        @handler
        async def box(self, message: Box[int], ctx: WorkflowContext[Never, str]) -> None:
            await ctx.yield_output("box")

    return [handles(Many(id="m"), Box(1), 5)]


async def constructors() -> Any:
    class Own(Executor):
        def __init__(self, name: str, factor: int = 2, **kwargs: Any) -> None:
            super().__init__(name, **kwargs)
            self.factor = factor

        @handler
        async def take(self, message: int, ctx: WorkflowContext[Never, int]) -> None:
            await ctx.yield_output(message * self.factor)

    own = Own("own", 3)
    positional = Kinds("positional")
    workflow = WorkflowBuilder(start_executor=own).build()
    shown = [own.id, positional.id, own.type, own.to_dict(), Own("x", type="Kind").type]
    return [shown, (await workflow.run(2)).get_outputs(), workflow.get_start_executor() is own]


async def main() -> Any:
    parts = (*(dispatch, declared, explicit, inherited, functions, refused, generics, constructors),)
    return {part.__name__: await part() for part in parts}
