"""Mistakes that would show late, or never, are refused when the graph is made."""

from __future__ import annotations

import functools
from collections.abc import AsyncIterator, Callable, Iterator
from dataclasses import dataclass
from typing import Any, Never

import pytest
from tests.unit.engine.flows import relay, sink

from perdure import (
    Case,
    Default,
    Executor,
    FunctionExecutor,
    InvalidRun,
    Workflow,
    WorkflowBuilder,
    WorkflowContext,
    executor,
    handler,
    response_handler,
)

# ---------------------------------------------------------------- generators


async def yields(word: str) -> AsyncIterator[str]:
    yield word


def yields_in_a_thread(word: str) -> Iterator[str]:
    yield word


class Yields:
    async def __call__(self, word: str) -> AsyncIterator[str]:
        yield word


@pytest.mark.parametrize(
    "generator",
    [yields, yields_in_a_thread, functools.partial(yields), functools.partial(functools.partial(yields)), Yields()],
    ids=["async", "sync", "partial", "partial of a partial", "object"],
)
def test_generator_is_rejected_as_an_executor(generator: Callable[..., Any]) -> None:
    with pytest.raises(ValueError, match=r"is a generator: it would never run.*ctx\.yield_output"):
        FunctionExecutor(generator, "g", input=str)


def test_a_decorated_generator_is_rejected_where_it_is_defined() -> None:
    with pytest.raises(ValueError, match="is a generator"):
        executor(yields)


def test_generator_handler_is_rejected_as_a_generator_and_not_as_sync() -> None:
    class Generating(Executor):
        @handler
        async def take(self, word: str, ctx: WorkflowContext[Never, str]) -> AsyncIterator[str]:
            yield word

    with pytest.raises(ValueError, match=r"take' is a generator: it would never run"):
        Generating("g")


async def test_a_plain_function_that_returns_a_coroutine_is_awaited() -> None:
    async def work(word: str, ctx: WorkflowContext[Never, str]) -> None:
        await ctx.yield_output(word.upper())

    start = FunctionExecutor(lambda word, ctx: work(word.strip(), ctx), "start", input=str, workflow_output=str)
    assert (await WorkflowBuilder(start_executor=start).build().run(" x")).get_outputs() == ["X"]


# ---------------------------------------------------------------- what must be callable, and how it is called


def builder() -> tuple[WorkflowBuilder, Executor, list[Executor]]:
    start = relay("start")
    return WorkflowBuilder(name="w", start_executor=start), start, [sink("left"), sink("right")]


@pytest.mark.parametrize("wrong", ["x", 5, True])
def test_a_condition_must_be_a_function(wrong: Any) -> None:
    making, start, (target, _) = builder()
    with pytest.raises(TypeError, match="condition must be a function, got"):
        making.add_edge(start, target, condition=wrong)


@pytest.mark.parametrize("wrong", ["x", 5, None])
def test_the_condition_of_a_case_must_be_a_function(wrong: Any) -> None:
    making, start, (left, right) = builder()
    with pytest.raises(TypeError, match="the condition of a Case must be a function, got"):
        making.add_switch_case_edge_group(start, [Case(wrong, left), Default(right)])


def test_switch_takes_only_cases() -> None:
    making, start, (left, right) = builder()
    cases: list[Any] = [(lambda message: True, left), Default(right)]
    with pytest.raises(TypeError, match=r"takes Case\(\.\.\.\) and Default\(\.\.\.\), got \("):
        making.add_switch_case_edge_group(start, cases)


@pytest.mark.parametrize("wrong", ["left", 3, None])
def test_a_selection_function_must_be_a_function(wrong: Any) -> None:
    making, start, targets = builder()
    with pytest.raises(TypeError, match="selection_func must be a function, got"):
        making.add_multi_selection_edge_group(start, targets, wrong)


@pytest.mark.parametrize(
    ("state", "message"),
    [
        ({"notes": 5}, "The reducer of state key 'notes' must be a function, got 5"),
        ({"notes": None}, "The reducer of state key 'notes' must be a function, got None"),
        (["notes"], "state= maps keys to reducers"),
    ],
    ids=["number", "none", "list"],
)
def test_a_reducer_must_be_a_function(state: Any, message: str) -> None:
    with pytest.raises(TypeError, match=message):
        WorkflowBuilder(start_executor=relay("start"), state=state)


async def take_context(self: Any, word: str, *, ctx: WorkflowContext[str]) -> None: ...


async def receive_answer(self: Any, question: str, *, answer: str) -> None: ...


@pytest.mark.parametrize(
    ("mark", "function", "keyword"), [(handler, take_context, "ctx"), (response_handler, receive_answer, "answer")]
)
def test_handler_with_a_required_keyword_is_rejected(mark: Any, function: Any, keyword: str) -> None:
    with pytest.raises(ValueError, match=f"requires the keyword '{keyword}', but handlers"):
        mark(function)


async def test_handler_keyword_with_a_default_is_accepted() -> None:
    @executor
    async def greet(word: str, ctx: WorkflowContext[Never, str], *, greeting: str = "hello") -> None:
        await ctx.yield_output(f"{greeting} {word}")

    assert (await WorkflowBuilder(start_executor=greet).build().run("you")).get_outputs() == ["hello you"]


# ---------------------------------------------------------------- executors that were not set up


class Forgetful(Executor):
    def __init__(self) -> None:
        self.id = "forgetful"

    @handler
    async def take(self, word: str, ctx: WorkflowContext[str]) -> None: ...


@dataclass
class Sheet(Executor):
    id: str
    size: int = 0

    @handler
    async def take(self, word: str, ctx: WorkflowContext[Never, int]) -> None:
        await ctx.yield_output(self.size)


@dataclass
class SheetSetUp(Sheet):
    def __post_init__(self) -> None:
        Executor.__init__(self, self.id)


@pytest.mark.parametrize("made", [Forgetful, lambda: Sheet("sheet")], ids=["class", "dataclass"])
def test_executor_without_a_call_of_super_init_is_rejected(made: Callable[[], Executor]) -> None:
    message = r"did not call super\(\).__init__\(id\).*in a dataclass: in __post_init__"
    with pytest.raises(TypeError, match=message):
        WorkflowBuilder(start_executor=made())
    start = relay("start")
    with pytest.raises(TypeError, match=message):
        WorkflowBuilder(start_executor=start).add_edge(start, made())


async def test_dataclass_executor_with_super_init_runs_in_every_thread() -> None:
    workflow = WorkflowBuilder(start_executor=SheetSetUp("sheet", 7)).build()
    assert [(await workflow.run("x", thread_id=name)).get_outputs() for name in "ab"] == [[7], [7]]


# ---------------------------------------------------------------- names, and two workflows of one builder


@pytest.mark.parametrize("wrong", [5, "", b"name", "\ud800"], ids=["number", "empty", "bytes", "surrogate"])
def test_workflow_name_that_a_checkpoint_cannot_hold_is_rejected(wrong: Any) -> None:
    with pytest.raises(InvalidRun, match="name"):
        WorkflowBuilder(name=wrong, start_executor=relay("start"))


class Diary(Executor):
    """Keeps its messages in `self`."""

    def __init__(self, id: str = "diary") -> None:
        super().__init__(id)
        self.pages: list[str] = []

    @handler
    async def write(self, word: str, ctx: WorkflowContext[Never, list[str]]) -> None:
        self.pages.append(word)
        await ctx.yield_output(self.pages)


@pytest.mark.parametrize("start", [Diary(), Diary], ids=["instance", "factory"])
async def test_two_workflows_of_one_builder_share_no_executor(start: Any) -> None:
    making = WorkflowBuilder(start_executor=start)
    first, second, third = making.build(), making.build(), making.build()
    assert [await pages(workflow, f"of {n}") for n, workflow in enumerate((first, second, third))] == [
        ["of 0"],
        ["of 1"],
        ["of 2"],
    ]
    assert await pages(second, "more") == ["of 1", "more"]


async def pages(workflow: Workflow, word: str) -> list[str]:
    (written,) = (await workflow.run(word)).get_outputs()
    assert isinstance(written, list)
    return written


async def test_later_additions_to_a_builder_do_not_change_built_workflows() -> None:
    making, start, (left, right) = builder()
    first = making.add_edge(start, left).build()
    second = making.add_edge(start, right).build()
    assert (await first.run("x")).get_outputs() == [("left", "x")]
    assert (await second.run("x")).get_outputs() == [("left", "x"), ("right", "x")]
