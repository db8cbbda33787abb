"""What type checkers say about functions, steps, sub-workflows and policies. Checked by tests/typing/test_cases.py, never run."""

from datetime import timedelta

from typing_extensions import Never, assert_type

from perdure import (
    Executor,
    FunctionalWorkflow,
    ResponseStream,
    RetryPolicy,
    RunContext,
    RunHandle,
    SubWorkflowRequestMessage,
    SubWorkflowResponseMessage,
    Workflow,
    WorkflowBuilder,
    WorkflowContext,
    WorkflowEvent,
    WorkflowExecutor,
    WorkflowRunResult,
    executor,
    get_run_context,
    handler,
    step,
    workflow,
)

# ---------------------------------------------------------------- steps


@step
async def fetch(page: str, depth: int = 1) -> bytes:
    return page.encode() * depth


@step
def parse(body: bytes) -> list[str]:
    return [body.decode()]


@step(name="summary", retry=RetryPolicy(3, initial_delay=timedelta(seconds=1)), timeout=30)
async def summarise(lines: list[str]) -> str:
    return lines[0]


@step(retry=2, on_error="skip")
def count(lines: list[str]) -> int:
    return len(lines)


async def steps() -> None:
    assert_type(await fetch("a", depth=2), bytes)
    assert_type(await parse(b"a"), list[str])
    assert_type(await summarise(["a"]), str)
    assert_type(await count(["a"]), int)
    await fetch(1)  # expect: error [arg-type]
    await fetch()  # expect: error [call-arg]
    await parse("a")  # expect: error [arg-type]
    await summarise("a")  # expect: error [arg-type]
    await count([1])  # expect: error [list-item]
    fetch("a")  # expect: error [unused-coroutine]
    number: int = await summarise(["a"])  # expect: error [assignment]
    step(nmae="a")  # expect: error [call-overload, call-arg]
    step(retry="often")  # expect: error [call-overload, arg-type]


# ---------------------------------------------------------------- functions


@workflow
async def digest(pages: list[str], ctx: RunContext) -> str:
    answer = await ctx.request_info("A title?", str, request_id="title")
    await ctx.sleep(timedelta(hours=1))
    await ctx.add_event(WorkflowEvent("mood", "fine"))
    assert_type(ctx.idempotency_key, str)
    assert_type(ctx.is_streaming(), bool)
    ctx.logger.info("%s", answer)
    await ctx.sleep("tomorrow")  # expect: error [arg-type]
    ctx.request_info("A title?", str)  # expect: error [unused-coroutine]
    await ctx.step(fetch.function, "a", timeot=1)  # expect: error [call-overload]
    return str(answer)


@workflow(name="short", description="not long")
async def short(page: str) -> int:
    return len(await fetch(page))


@workflow  # expect: error [arg-type, call-overload, type-var]
def not_async(page: str) -> int:
    return len(page)


async def functions() -> None:
    assert_type(await digest.run(["a"]), WorkflowRunResult)
    stream = assert_type(digest.run(["a"], stream=True), ResponseStream[WorkflowEvent, WorkflowRunResult])
    assert_type(await stream.get_final_response(), WorkflowRunResult)
    built: FunctionalWorkflow[..., str] = digest.build()
    assert_type(await built.run(["a"]), WorkflowRunResult)
    assert_type(digest.open(thread_id="t"), RunHandle)
    assert_type(await short("a"), int)
    assert_type(get_run_context(), RunContext | None)
    await short(1)  # expect: error [arg-type]
    await digest.run(["a"], chekpoint_id="c1")  # expect: error [call-overload, call-arg]
    digest.run(["a"])  # expect: error [unused-coroutine, unused-awaitable]
    digest.build(clock="noon")  # expect: error [arg-type]


# ---------------------------------------------------------------- sub-workflows and policies


class Clerk(Executor):
    @handler
    async def answer(
        self, asked: SubWorkflowRequestMessage, ctx: WorkflowContext[SubWorkflowResponseMessage, str]
    ) -> None:
        await ctx.send_message(asked.create_response(1), target_id=asked.executor_id)
        await ctx.send_message(1)  # expect: error [arg-type]
        assert_type(asked.source_event, WorkflowEvent)
        await ctx.sleep(1)
        await ctx.step(fetch.function, "a", key="k", retry=3, timeout=1.5)
        await ctx.step(fetch.function, "a", retry="often")  # expect: error [arg-type]


@executor(id="careful", retry=RetryPolicy(2), timeout=timedelta(minutes=1), on_error="isolate")
async def careful(text: str, ctx: WorkflowContext[Never, str]) -> None:
    await ctx.yield_output(text)


def composed(inner: Workflow) -> Workflow:
    child = WorkflowExecutor(inner, "child", allow_direct_output=True, propagate_request=True)
    builder = WorkflowBuilder(start_executor=child).add_edge(child, Clerk("clerk", retry=3))
    WorkflowExecutor(inner)  # expect: error [call-arg]
    RetryPolicy(max_attempts="three")  # expect: error [arg-type]
    RetryPolicy(delay=1)  # expect: error [call-arg]
    builder.with_policy(child, retry="often")  # expect: error [arg-type]
    builder.with_policy(child, retires=3)  # expect: error [call-arg]
    return builder.with_policy(careful, retry=2, timeout=5, on_error=Clerk("other")).build()
