"""The words that programs look for in errors, such as those of `pytest.raises(match=...)`."""

import asyncio
from typing import Any, Never, TypeVar

from flows import (
    Edge,
    Executor,
    FanInEdgeGroup,
    FanOutEdgeGroup,
    InMemoryCheckpointStorage,
    SubWorkflowRequestMessage,
    SwitchCaseEdgeGroup,
    SwitchCaseEdgeGroupCase,
    SwitchCaseEdgeGroupDefault,
    WorkflowBuilder,
    WorkflowContext,
    WorkflowEvent,
    WorkflowExecutor,
    WorkflowMessage,
    WorkflowRunResult,
    executor,
    handler,
    response_handler,
)

T = TypeVar("T")


class Echo(Executor):
    @handler
    async def take(self, message: str, ctx: WorkflowContext[str, str]) -> None:
        await ctx.yield_output(message)

    @response_handler
    async def answered(self, request: str, answer: bool, ctx: WorkflowContext[str, str]) -> None: ...


class Asker(Echo):
    @handler
    async def ask(self, message: int, ctx: WorkflowContext[str, str]) -> None:
        await ctx.request_info("sure?", bool, request_id="sure")


class Silent(Executor):
    @handler
    async def take(self, message: str, ctx: WorkflowContext) -> None: ...


def echo() -> Any:
    return WorkflowBuilder(start_executor=Echo(id="echo")).build()


async def words_of(call: Any, *phrases: str) -> Any:
    """The phrases that the error does not contain."""
    try:
        made = call()
        if hasattr(made, "__await__"):
            made = await made
    except Exception as error:  # noqa: BLE001
        return [phrase for phrase in phrases if phrase not in str(error)]
    return ["nothing was raised"]


async def of_runs() -> Any:
    storage = InMemoryCheckpointStorage()
    asker = WorkflowBuilder(start_executor=Asker(id="asker")).build()
    await asker.run(1)
    waits, ends = asyncio.Event(), asyncio.Event()

    @executor(id="slow")
    async def slow(message: str, ctx: WorkflowContext) -> None:
        waits.set()
        await ends.wait()

    workflow = WorkflowBuilder(start_executor=slow).build()
    task = asyncio.ensure_future(workflow.run("x"))
    await waits.wait()
    stored = WorkflowBuilder(start_executor=Echo(id="echo"), name="w", checkpoint_storage=storage).build()
    await stored.run("x")
    [first, *_] = await storage.list_checkpoint_ids(workflow_name="w")
    other = Echo(id="other")
    changed = WorkflowBuilder(start_executor=other, name="w", checkpoint_storage=storage).build()
    results = {
        "concurrent": await words_of(lambda: workflow.run("y"), "Workflow is already running"),
        "both": await words_of(lambda: asker.run(1, responses={}), "Cannot provide both 'message' and 'responses'"),
        "with checkpoint": await words_of(
            lambda: asker.run(1, checkpoint_id="x"), "Cannot provide both 'message' and 'checkpoint_id'"
        ),
        "nothing": await words_of(lambda: echo().run(), "Must provide at least one of", "'message'", "'responses'"),
        "no storage": await words_of(lambda: echo().run(checkpoint_id="x"), "Cannot restore from checkpoint"),
        "unknown checkpoint": await words_of(lambda: stored.run(checkpoint_id="unknown"), "unknown", "heckpoint"),
        "changed": await words_of(
            lambda: changed.run(checkpoint_id=first), "Workflow graph has changed since the checkpoint was created"
        ),
        "nothing pending": await words_of(lambda: echo().run(responses={"x": 1}), "No pending requests found"),
        "unknown request": await words_of(lambda: asker.run(responses={"other": True}), "unknown request ID", "other"),
        "wrong answer": await words_of(lambda: asker.run(responses={"sure": "text"}), "Response type mismatch", "sure"),
        "wrong input": await words_of(lambda: echo().run(5), "cannot handle input of type", "int"),
        "no status": await words_of(lambda: WorkflowRunResult([], []).get_final_state(), "Final state is unknown"),
    }
    ends.set()
    await task
    return results


async def of_loops() -> Any:
    @executor(id="again")
    async def again(message: str, ctx: WorkflowContext[str]) -> None:
        await ctx.send_message(message)

    workflow = WorkflowBuilder(start_executor=again, max_iterations=2).add_edge(again, again).build()
    return [await words_of(lambda: workflow.run("x"), "did not converge after 2 iterations")]


async def of_graphs() -> Any:
    a, b, c, silent = Echo(id="a"), Echo(id="b"), Echo(id="c"), Silent(id="silent")

    def chosen(**options: Any) -> Any:
        return lambda: WorkflowBuilder(start_executor=a, **options).add_edge(a, b).add_edge(b, silent).build()

    def self_loop() -> Any:
        return WorkflowBuilder(start_executor=a).add_edge(a, b).add_edge(a, b).build()

    def unreachable() -> Any:
        return WorkflowBuilder(start_executor=a).add_edge(b, c).build()

    case = SwitchCaseEdgeGroupCase(lambda message: True, "b")
    return {
        "same id": await words_of(
            lambda: WorkflowBuilder(start_executor=a).add_edge(a, Echo(id="a")), "Duplicate executor ID 'a'"
        ),
        "object": await words_of(
            lambda: WorkflowBuilder(start_executor=object()), "expected an Executor or SupportsAgentRun instance"
        ),
        "chain": await words_of(
            lambda: WorkflowBuilder(start_executor=a).add_chain([a]),
            "At least two executors are required to form a chain",
        ),
        "unreachable": await words_of(unreachable, "unreachable"),
        "twice": await words_of(self_loop, "Duplicate edge detected: a->b"),
        "nothing chosen": await words_of(
            chosen(output_from=[]), "must include at least one output or intermediate executor"
        ),
        "output twice": await words_of(chosen(output_from=[a, a]), "Duplicate output executor designation"),
        "intermediate twice": await words_of(
            chosen(intermediate_output_from=[a, a]), "Duplicate intermediate executor designation"
        ),
        "both": await words_of(
            chosen(output_from=[a], intermediate_output_from=[a]), "cannot be both output and intermediate designated"
        ),
        "elsewhere": await words_of(
            chosen(output_from=[c]), "Output executor 'c' is not present in the workflow graph"
        ),
        "intermediate elsewhere": await words_of(
            chosen(intermediate_output_from=[c]), "Intermediate executor 'c' is not present in the workflow graph"
        ),
        "no outputs": await words_of(
            chosen(output_from=[silent]), "Output executor 'silent' must have output type annotations defined"
        ),
        "no intermediate outputs": await words_of(
            chosen(intermediate_output_from=[silent]),
            "Intermediate executor 'silent' must have output type annotations defined",
        ),
        "literal": await words_of(chosen(output_from="some"), "Unsupported output_from literal 'some'"),
        "other literal": await words_of(
            chosen(intermediate_output_from="some"), "Unsupported intermediate_output_from literal 'some'"
        ),
        "two names": await words_of(chosen(output_from=[a], output_executors=[a]), "output_from", "output_executors"),
        "no such entry": await words_of(
            chosen(output_from=[5]), "expected designation entries to be Executor or SupportsAgentRun instances"
        ),
        "edge without source": await words_of(lambda: Edge("", "b"), "source_id must be a non-empty string"),
        "edge without target": await words_of(lambda: Edge("a", ""), "target_id must be a non-empty string"),
        "fan-out": await words_of(lambda: FanOutEdgeGroup("a", ["b"]), "must contain at least two targets"),
        "fan-in": await words_of(lambda: FanInEdgeGroup(["a"], "b"), "must contain at least two sources"),
        "one case": await words_of(
            lambda: SwitchCaseEdgeGroup("a", [SwitchCaseEdgeGroupDefault("b")]), "must contain at least two cases"
        ),
        "no default": await words_of(
            lambda: SwitchCaseEdgeGroup("a", [case, case]), "must contain exactly one default case"
        ),
        "case without target": await words_of(
            lambda: SwitchCaseEdgeGroupCase(lambda message: True, ""), "requires a target_id"
        ),
        "default without target": await words_of(lambda: SwitchCaseEdgeGroupDefault(""), "requires a target_id"),
    }


async def of_handlers() -> Any:
    async def right(self: Any, message: str, ctx: WorkflowContext[str]) -> None: ...
    async def untyped(self, message, ctx: WorkflowContext[str]) -> None: ...  # type: ignore[no-untyped-def]
    async def no_context(self, message: str, ctx) -> None: ...  # type: ignore[no-untyped-def]
    async def wrong_context(self: Any, message: str, ctx: str) -> None: ...
    async def too_many(self: Any, message: str, ctx: WorkflowContext, more: int) -> None: ...
    async def variable(self: Any, message: T, ctx: WorkflowContext) -> None: ...
    async def sent_variable(self: Any, message: str, ctx: WorkflowContext[T]) -> None: ...
    async def sent_number(self: Any, message: str, ctx: WorkflowContext[5]) -> None: ...  # type: ignore[valid-type]
    async def answer(self: Any, request: str, response: str, ctx: WorkflowContext[str]) -> None: ...
    async def short_answer(self: Any, request: str) -> None: ...
    async def untyped_answer(self, request: str, response, ctx: WorkflowContext[str]) -> None: ...  # type: ignore[no-untyped-def]
    async def function(message: str, ctx: WorkflowContext[str]) -> None: ...
    async def untyped_function(message, ctx: WorkflowContext[str]) -> None: ...  # type: ignore[no-untyped-def]
    async def long_function(message: str, ctx: WorkflowContext, more: int) -> None: ...
    async def function_of_a_variable(message: T, ctx: WorkflowContext) -> None: ...
    async def function_without_context(message: str, ctx: int) -> None: ...

    class Method:
        @staticmethod
        async def static(message: str) -> None: ...

    def no_handlers() -> Any:
        class Empty(Executor): ...

        return Empty(id="empty")

    def twice() -> Any:
        class Twice(Executor):
            first = handler(right)

            @handler
            async def two(self, message: str, ctx: WorkflowContext[str]) -> None: ...

        return Twice(id="twice")

    def answered_twice() -> Any:
        class AnsweredTwice(Echo):
            @response_handler
            async def again(self, request: str, answer: bool, ctx: WorkflowContext[str]) -> None: ...

        return AnsweredTwice(id="twice")

    typed = "must have a type annotation for the message parameter"
    context = "must have a WorkflowContext, WorkflowContext[T] or WorkflowContext[T, U] type annotation"
    annotated = "must be annotated as WorkflowContext, WorkflowContext[T], or WorkflowContext[T, U]"
    return {
        "untyped": await words_of(lambda: handler(untyped), "untyped", typed),
        "no context": await words_of(lambda: handler(no_context), context),
        "wrong context": await words_of(lambda: handler(wrong_context), annotated),
        "too many": await words_of(lambda: handler(too_many), "must have", "Got 4 parameters"),
        "variable": await words_of(lambda: handler(variable), "has an unresolved TypeVar"),
        "sent variable": await words_of(lambda: handler(sent_variable), "unresolved TypeVar"),
        "explicit variable": await words_of(lambda: handler(input=T)(right), "has an unresolved TypeVar", "concrete"),
        "sent number": await words_of(lambda: handler(sent_number), "invalid type entry", "5"),
        "no input": await words_of(
            lambda: handler(output=str)(right), "explicit type parameters must specify 'input' type"
        ),
        "no handlers": await words_of(no_handlers, "has no handlers defined", "handler"),
        "twice": await words_of(twice, "Duplicate handler for type", "Twice"),
        "answered twice": await words_of(
            answered_twice, "Duplicate response handler for request type", "AnsweredTwice"
        ),
        "no id": await words_of(lambda: Echo(id=""), "Executor ID must be a non-empty string"),
        "no request": await words_of(
            lambda: response_handler(response=str)(answer), "explicit type parameters must specify 'request' type"
        ),
        "no response": await words_of(
            lambda: response_handler(request=str)(answer), "explicit type parameters must specify 'response' type"
        ),
        "short answer": await words_of(lambda: response_handler(short_answer), "must have", "Got 2 parameters"),
        "untyped answer": await words_of(
            lambda: response_handler(untyped_answer), "must have a type annotation for the response parameter"
        ),
        "static": await words_of(lambda: executor(Method.__dict__["static"]), "cannot be used with @staticmethod"),
        "untyped function": await words_of(lambda: executor(untyped_function), typed),
        "long function": await words_of(lambda: executor(long_function), "must have", "Got 3 parameters"),
        "variable function": await words_of(lambda: executor(function_of_a_variable), "has an unresolved TypeVar"),
        "explicit function": await words_of(lambda: executor(input=T)(function), "has an unresolved TypeVar"),
        "context of a function": await words_of(lambda: executor(function_without_context), annotated),
    }


async def of_objects() -> Any:
    storage = InMemoryCheckpointStorage()
    return {
        "message without data": await words_of(lambda: WorkflowMessage.from_dict({"source_id": "a"}), "'data'"),
        "message without source": await words_of(lambda: WorkflowMessage.from_dict({"data": 1}), "'source_id'"),
        "event of data": await words_of(
            lambda: WorkflowEvent.from_dict({"type": "request_info", "data": 1}), "Missing 'request_id'"
        ),
        "unknown checkpoint": await words_of(lambda: storage.load("none"), "No checkpoint", "none"),
    }


async def of_selections() -> Any:
    a, b = Echo(id="a"), Echo(id="b")

    @executor(id="start")
    async def start(message: str, ctx: WorkflowContext[str]) -> None:
        await ctx.send_message(message)

    def wrong(message: str, targets: list[str]) -> list[str]:
        return ["nowhere"]

    builder = WorkflowBuilder(start_executor=start).add_multi_selection_edge_group(start, [a, b], wrong)
    return [await words_of(lambda: builder.build().run("x"), "nvalid selection result", "nowhere")]


async def of_children() -> Any:
    seen: list[Any] = []

    class Parent(Executor):
        @handler
        async def begin(self, message: int, ctx: WorkflowContext[int]) -> None:
            await ctx.send_message(message)

        @handler
        async def asked(self, request: SubWorkflowRequestMessage, ctx: WorkflowContext[Never, str]) -> None:
            seen.append(await words_of(lambda: request.create_response("text"), "expected", "str"))

    parent = Parent(id="parent")
    child = WorkflowExecutor(WorkflowBuilder(start_executor=Asker(id="asker")).build(), id="child")
    await WorkflowBuilder(start_executor=parent).add_edge(parent, child).add_edge(child, parent).build().run(1)
    return seen


async def main() -> Any:
    parts = (of_runs, of_loops, of_graphs, of_handlers, of_objects, of_selections, of_children)
    return {part.__name__: await part() for part in parts}
