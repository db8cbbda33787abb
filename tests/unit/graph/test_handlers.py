"""How an executor's handlers are found, and which handler gets a message."""

from __future__ import annotations

import functools
import threading
from dataclasses import dataclass
from typing import Any, Never, TypeVar

import pytest
from tests.unit.graph.real_annotations import Later, Real

from perdure import (
    Executor,
    FunctionExecutor,
    Workflow,
    WorkflowBuilder,
    WorkflowContext,
    WorkflowExecutor,
    WorkflowMessage,
    executor,
    handler,
    response_handler,
)

T = TypeVar("T")


@dataclass
class Animal:
    name: str = "rex"


@dataclass
class Dog(Animal): ...


@dataclass
class Puppy(Dog): ...


async def outputs(start: Executor, message: Any) -> list[Any]:
    return (await WorkflowBuilder(start_executor=start).build().run(message)).get_outputs()


# ---------------------------------------------------------------- found


class Textual(Executor):
    """Of a module with `from __future__ import annotations`: every annotation is text."""

    @handler
    async def words(self, message: str, ctx: WorkflowContext[int, str]) -> None: ...

    @handler
    async def quoted(self, message: Afterwards, ctx: WorkflowContext[Afterwards]) -> None: ...

    @response_handler
    async def answer(self, original_request: str, response: bool, ctx: WorkflowContext[Never, str]) -> None: ...


class Afterwards:
    """Defined after the class that names it."""


@pytest.mark.parametrize(("kind", "later"), [(Textual, Afterwards), (Real, Later)], ids=["text", "types"])
def test_types_are_inferred_from_annotations(kind: type[Executor], later: type) -> None:
    made = kind("x")
    assert made.input_types == [str, later]
    assert made.output_types == [int, later] and made.workflow_output_types == [str]
    assert made.is_request_response_capable and made.is_request_supported(str, bool)
    assert not made.is_request_supported(int, bool) and not made.is_request_supported(str, str)


def test_classes_of_an_enclosing_function_are_found_in_textual_annotations() -> None:
    class Note:
        pass

    class Local(Executor):
        @handler
        async def take(self, message: Note, ctx: WorkflowContext[Note]) -> None: ...

        @response_handler
        async def receive(self, request: Note, answer: Note, ctx: WorkflowContext[Never, Note]) -> None: ...

    made = Local("x")
    assert made.input_types == made.output_types == made.workflow_output_types == [Note]
    assert made.is_request_supported(Note, Note)


def test_explicit_types_replace_annotations() -> None:
    class Explicit(Executor):
        @handler(input=str | int, output=bytes, workflow_output=float | bool)
        async def take(self, message: Any, ctx: Any) -> None: ...

        @response_handler(request="Animal", response="Dog", output=int)
        async def receive(self, request: Any, answer: Any, ctx: Any) -> None: ...

    made = Explicit("x")
    assert made.input_types == [str | int]
    assert made.output_types == [bytes, int] and made.workflow_output_types == [float, bool]
    assert made.is_request_supported(Animal, Dog)


def test_explicit_types_may_be_text() -> None:
    class Explicit(Executor):
        @handler(input="Animal | None", output="list[Animal]")
        async def take(self, message: Any, ctx: Any) -> None: ...

    assert Explicit("x").input_types == [Animal | None] and Explicit("x").output_types == [list[Animal]]


@pytest.mark.parametrize(
    ("annotation", "sent", "yielded"),
    [
        (WorkflowContext, [], []),
        (WorkflowContext[str], [str], []),
        (WorkflowContext[str, int], [str], [int]),
        (WorkflowContext[Never, int], [], [int]),
        (WorkflowContext[str | bytes, int | float], [str, bytes], [int, float]),
        (WorkflowContext[Any, Any], [Any], [Any]),
    ],
)
def test_context_annotation_declares_sent_and_yielded_types(annotation: Any, sent: Any, yielded: Any) -> None:
    async def work(message: str, ctx: Any) -> None: ...

    work.__annotations__["ctx"] = annotation
    made = FunctionExecutor(work)
    assert (made.output_types, made.workflow_output_types) == (sent, yielded)


class Base(Executor):
    @handler
    async def take(self, message: str, ctx: WorkflowContext[Never, str]) -> None:
        await ctx.yield_output(f"base {message}")

    @handler
    async def count(self, message: int, ctx: WorkflowContext[Never, str]) -> None:
        await ctx.yield_output(f"base {message}")


class Overriding(Base):
    @handler
    async def take(self, message: str, ctx: WorkflowContext[Never, str]) -> None:
        await ctx.yield_output(f"derived {message}")


class Widening(Base):
    @handler
    async def take(self, message: bytes, ctx: WorkflowContext[Never, str]) -> None:  # type: ignore[override]  # the point
        await ctx.yield_output("bytes")


class Unmarked(Base):
    async def take(self, message: str, ctx: WorkflowContext[Never, str]) -> None: ...


async def test_handlers_are_inherited_and_an_override_replaces_them() -> None:
    assert await outputs(Overriding("x"), "m") == ["derived m"]
    assert await outputs(Overriding("x"), 1) == ["base 1"]
    assert await outputs(Base("x"), "m") == ["base m"]


def test_override_with_another_type_replaces_the_inherited_handler() -> None:
    assert Widening("x").input_types == [bytes, int]


def test_override_without_the_decorator_is_not_a_handler() -> None:
    assert Unmarked("x").input_types == [int]


# ---------------------------------------------------------------- refused


def test_an_executor_without_handlers_is_rejected() -> None:
    class Empty(Executor):
        pass

    with pytest.raises(ValueError, match=r"Executor .*Empty has no handlers defined. Mark a method with @handler"):
        Empty("x")


@pytest.mark.parametrize("wrong", ["", None, 5])
def test_id_that_is_not_text_is_rejected(wrong: Any) -> None:
    with pytest.raises(ValueError, match="Executor ID must be a non-empty string"):
        Base(wrong)


def test_two_handlers_for_one_type_are_rejected() -> None:
    class Twice(Executor):
        @handler
        async def one(self, message: str, ctx: WorkflowContext) -> None: ...

        @handler
        async def two(self, message: str, ctx: WorkflowContext) -> None: ...

    with pytest.raises(ValueError, match=r"Duplicate handler for type str in .*Twice: '.*one' and '.*two'. Keep one"):
        Twice("x")


def test_a_handler_must_be_async() -> None:
    class Plain(Executor):
        @handler
        def take(self, message: str, ctx: WorkflowContext) -> None: ...

    with pytest.raises(ValueError, match=r"take' must be an `async def`. For a plain function use @executor"):
        Plain("x")


def test_a_handler_needs_an_annotation_on_its_message() -> None:
    async def take(self: Any, message, ctx: WorkflowContext) -> None: ...  # type: ignore[no-untyped-def]  # the point

    with pytest.raises(ValueError, match=r"must have a type annotation for the message.*or give explicit types"):
        handler(take)


def test_a_type_variable_matches_no_message_and_is_rejected() -> None:
    async def take(self: Any, message: T, ctx: WorkflowContext) -> None: ...

    with pytest.raises(ValueError, match=r"has an unresolved TypeVar '~T' as its message type.*Use a concrete type"):
        handler(take)
    with pytest.raises(ValueError, match=r"has an unresolved TypeVar '~T' as its output type"):
        handler(input=str, output=T)(take)


def test_a_handler_context_must_be_annotated_with_types() -> None:
    async def bare(self: Any, message: str, ctx) -> None: ...  # type: ignore[no-untyped-def]  # the point
    async def number(self: Any, message: str, ctx: WorkflowContext[123]) -> None: ...  # type: ignore[valid-type]

    with pytest.raises(ValueError, match=r"Handler parameter 'ctx' must have a WorkflowContext.*bare' has none"):
        handler(bare)
    with pytest.raises(ValueError, match="Handler parameter 'ctx' OutT contains invalid type entry: 123"):
        handler(number)


def test_a_handler_takes_a_message_and_a_context_and_nothing_else() -> None:
    async def take(self: Any, message: str, ctx: WorkflowContext, more: int) -> None: ...

    with pytest.raises(ValueError, match=r"take must have \(self, message: T, ctx: .*\. Got 4 parameters"):
        handler(take)


def test_a_context_of_another_type_is_rejected() -> None:
    async def take(self: Any, message: str, ctx: dict[str, str]) -> None: ...

    with pytest.raises(ValueError, match=r"'ctx' must be annotated as WorkflowContext.*, got dict\[str, str\]"):
        handler(take)


@pytest.mark.parametrize("types", [{"output": int}, {"workflow_output": int}])
def test_explicit_types_are_all_or_nothing(types: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match="must specify 'input' type"):
        handler(**types)
    with pytest.raises(ValueError, match="must specify 'request' type"):
        response_handler(**types)


def test_explicit_types_of_a_function_replace_each_its_annotation() -> None:
    async def take(message: str, ctx: WorkflowContext[bytes, float]) -> None: ...

    sends, yields = executor(output=int)(take), executor(workflow_output=int | bool)(take)
    assert (sends.input_types, sends.output_types, sends.workflow_output_types) == ([str], [int], [float])
    assert (yields.input_types, yields.output_types, yields.workflow_output_types) == ([str], [bytes], [int, bool])


@pytest.mark.parametrize("types", [{"request": int}, {"response": int}])
def test_response_handler_takes_both_types_or_neither(types: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=r"must specify '(request|response)' type"):
        response_handler(**types)


def test_unresolvable_annotation_raises_with_its_name() -> None:
    class Lost(Executor):
        @handler
        async def take(self, message: Nowhere, ctx: WorkflowContext) -> None: ...  # type: ignore[name-defined]  # noqa: F821

    with pytest.raises(ValueError, match="Nowhere"):
        Lost("x")


# ---------------------------------------------------------------- chosen


class Zoo(Executor):
    """The names of the methods are in the wrong order on purpose: alphabetical choice would be wrong."""

    @handler
    async def a_anything(self, message: object, ctx: WorkflowContext[Never, str]) -> None:
        await ctx.yield_output("object")

    @handler
    async def b_animal(self, message: Animal, ctx: WorkflowContext[Never, str]) -> None:
        await ctx.yield_output("Animal")

    @handler
    async def c_dog(self, message: Dog, ctx: WorkflowContext[Never, str]) -> None:
        await ctx.yield_output("Dog")

    @handler
    async def d_numbers(self, message: list[int], ctx: WorkflowContext[Never, str]) -> None:
        await ctx.yield_output("list[int]")

    @handler
    async def e_lists(self, message: list[Any], ctx: WorkflowContext[Never, str]) -> None:
        await ctx.yield_output("list")

    @handler
    async def f_int(self, message: int, ctx: WorkflowContext[Never, str]) -> None:
        await ctx.yield_output("int")

    @handler
    async def g_bool(self, message: bool, ctx: WorkflowContext[Never, str]) -> None:
        await ctx.yield_output("bool")


@pytest.mark.parametrize(
    ("message", "taken"),
    [
        (Animal(), "Animal"),
        (Dog(), "Dog"),
        (Puppy(), "Dog"),
        (5, "int"),
        (True, "bool"),
        ([1, 2], "list[int]"),
        (["a"], "list"),
        ("text", "object"),
    ],
)
async def test_the_most_specific_handler_takes_the_message(message: Any, taken: str) -> None:
    assert await outputs(Zoo("zoo"), message) == [taken]


async def test_handler_is_chosen_for_each_list_by_its_items() -> None:
    zoo = WorkflowBuilder(start_executor=Zoo("zoo")).build()
    taken = [(await zoo.run(message)).get_outputs()[0] for message in ([1], ["a"], [1], [])]
    assert taken[:3] == ["list[int]", "list", "list[int]"]


def test_can_handle_follows_the_handled_types() -> None:
    made = Base("x")
    assert made.can_handle(WorkflowMessage("m", "src")) and not made.can_handle(WorkflowMessage(1.5, "src"))


# ---------------------------------------------------------------- return values


async def chained(first: Executor) -> list[Any]:
    @executor(id="last")
    async def last(message: Any, ctx: WorkflowContext[Never, str]) -> None:
        await ctx.yield_output(f"sent {message}")

    workflow: Workflow = WorkflowBuilder(start_executor=first).add_edge(first, last).build()
    return (await workflow.run("m")).get_outputs()


async def test_return_value_is_sent_if_its_annotation_declares_it() -> None:
    @executor(id="first")
    async def first(message: str) -> int:
        return len(message)

    assert first.output_types == [int] and await chained(first) == ["sent 1"]


async def test_return_value_is_yielded_where_only_outputs_are_declared() -> None:
    @executor(id="first")
    async def first(message: str, ctx: WorkflowContext[Never, str]) -> str:
        return f"yielded {message}"

    assert first.workflow_output_types == [str]
    assert await outputs(first, "m") == ["yielded m"]


async def test_return_value_is_sent_where_messages_and_outputs_are_declared() -> None:
    @executor(id="first")
    async def first(message: str, ctx: WorkflowContext[str, int]) -> str:
        await ctx.yield_output(1)
        return message

    assert await chained(first) == [1, "sent m"]


async def test_none_is_not_sent_even_if_it_may_be_returned() -> None:
    @executor(id="first")
    async def first(message: str) -> str | None:
        return None

    assert await chained(first) == []


async def test_return_value_without_an_annotation_is_dropped() -> None:
    @executor(id="first")
    async def first(message: str, ctx: WorkflowContext):  # type: ignore[no-untyped-def]  # the point
        return message

    assert await chained(first) == []


async def test_method_can_return_the_message_that_it_sends() -> None:
    class Returning(Executor):
        @handler
        async def take(self, message: str) -> str:
            return message * 2

    assert await chained(Returning("first")) == ["sent mm"]


# ---------------------------------------------------------------- functions


def plain(message: str) -> str:
    return f"{message} {threading.current_thread() is threading.main_thread()}"


async def test_a_sync_function_runs_in_a_thread_of_its_own() -> None:
    made = FunctionExecutor(plain)
    assert made.id == "plain" and made.input_types == [str] and made.output_types == [str]
    assert await chained(made) == ["sent m False"]


async def test_an_async_function_runs_in_the_loop() -> None:
    @executor
    async def in_loop(message: str) -> str:
        return plain(message)

    assert in_loop.id == "in_loop" and await chained(in_loop) == ["sent m True"]


async def test_an_executor_made_of_a_function_can_be_called_as_the_function() -> None:
    assert await FunctionExecutor(plain)("m") == "m False"
    assert await executor(plain)("m") == "m False"


class Callable:
    async def __call__(self, message: str) -> str:
        return plain(message)

    async def method(self, message: str) -> str:
        return plain(message)


async def with_suffix(message: str, suffix: str) -> str:
    return plain(message) + suffix


@pytest.mark.parametrize(
    ("called", "sent"),
    [
        (Callable(), "sent m True"),
        (Callable().method, "sent m True"),
        (functools.partial(with_suffix, suffix="!"), "sent m True!"),
    ],
    ids=["object", "method", "partial"],
)
async def test_any_callable_can_be_an_executor(called: Any, sent: str) -> None:
    assert await chained(FunctionExecutor(called, "first")) == [sent]


async def test_a_sync_function_may_use_the_state_of_its_context() -> None:
    @executor
    def remember(message: str, ctx: WorkflowContext[str]) -> str:
        ctx.set_state("seen", message)
        return str(ctx.get_state("seen"))

    assert await chained(remember) == ["sent m"]


async def test_a_sync_function_that_raises_fails_the_run() -> None:
    @executor
    def fails(message: str) -> str:
        raise LookupError(message)

    with pytest.raises(LookupError, match="m"):
        await outputs(fails, "m")


@pytest.mark.parametrize("wrong", [5, staticmethod(plain), classmethod(lambda cls, message: message)])
def test_object_that_is_not_a_plain_function_is_rejected(wrong: Any) -> None:
    with pytest.raises(ValueError, match=r"(needs a function|cannot be used with @(static|class)method)"):
        FunctionExecutor(wrong)


def test_a_function_without_an_annotation_is_rejected() -> None:
    with pytest.raises(ValueError, match="must have a type annotation for the message parameter"):
        FunctionExecutor(lambda message: message)


class Counting(FunctionExecutor):
    """Has state of its own, as a subclass may."""

    def __init__(self, func: Any, seen: list[str]) -> None:
        super().__init__(func, "counting")
        self.seen = seen


def test_function_executor_is_shared_by_threads() -> None:
    """A new thread reads no annotation of the function again."""
    shared = FunctionExecutor(plain)
    assert shared.fresh() is shared


async def test_sub_workflow_executor_is_shared_and_its_children_are_not() -> None:
    child = WorkflowBuilder(name="child", start_executor=Tally("tally")).build()
    sub = WorkflowExecutor(child, "sub", allow_direct_output=True)
    assert sub.fresh() is sub
    flow = WorkflowBuilder(name="parent", start_executor=sub).build()
    assert [(await flow.run("x", thread_id=thread_id)).get_outputs() for thread_id in "ab"] == [["x1"], ["x1"]]


def test_subclass_of_function_executor_gets_an_instance_for_each_thread() -> None:
    first = Counting(plain, ["a"])
    second = first.fresh()
    assert isinstance(second, Counting) and second is not first
    second.seen.append("b")
    assert first.seen == ["a"] and second.fresh().seen == ["a"]  # type: ignore[attr-defined]


def test_instances_of_one_class_share_their_handler_table() -> None:
    first = Tally("tally")
    assert first.fresh() is not first and first.fresh().table is first.table


class Tally(Executor):
    """Counts the messages of its own instance."""

    count = 0

    @handler
    async def add(self, text: str, ctx: WorkflowContext[Never, str]) -> None:
        self.count += 1
        await ctx.yield_output(f"{text}{self.count}")
