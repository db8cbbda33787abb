"""The workloads, the same code for every engine with the names of agent_framework.

Each function takes the module of the engine, so both sides run the same lines. A workload checks its
own result, because a number of a run that did not do the work is worthless.
"""

# The classes are made from a module given at run time, which mypy cannot follow:
# mypy: disable-error-code="misc, valid-type, attr-defined, untyped-decorator"

from collections.abc import Awaitable, Callable
from functools import cache
from typing import Any

NAME = "bench"
WIDTH = 100
DELIVERIES_PER_ROUND = WIDTH + 2
ENDLESS = 1_000_000_000
TEXT = "x" * 100
"""The text of one message of a conversation."""

Run = Callable[[], Awaitable[None]]


@cache
def _countdown_class(engine: Any) -> Any:
    Context = engine.WorkflowContext[int, int]

    class Countdown(engine.Executor):
        @engine.handler
        async def count(self, message: int, ctx: Context) -> None:
            if message:
                await ctx.send_message(message - 1)
            else:
                await ctx.yield_output(message)

    return Countdown


@cache
def _talk_class(engine: Any) -> Any:
    Context = engine.WorkflowContext[int, int]

    class Talk(engine.Executor):
        @engine.handler
        async def talk(self, left: int, ctx: Context) -> None:
            messages = ctx.get_state("messages", [])
            message = {"role": "assistant" if left % 2 else "user", "text": f"turn {left}: {TEXT}", "id": left}
            ctx.set_state("messages", [*messages, message])
            if left:
                await ctx.send_message(left - 1)
            else:
                await ctx.yield_output(0)

    return Talk


@cache
def _fan_classes(engine: Any) -> tuple[Any, Any]:
    Context = engine.WorkflowContext[int, int]

    class Relay(engine.Executor):
        @engine.handler
        async def relay(self, message: int, ctx: Context) -> None:
            await ctx.send_message(message)

    class Collector(engine.Executor):
        @engine.handler
        async def collect(self, messages: list[int], ctx: Context) -> None:
            _expect("messages joined", len(messages), WIDTH)
            if messages[0]:
                await ctx.send_message(messages[0] - 1)
            else:
                await ctx.yield_output(0)

    return Relay, Collector


def countdown(engine: Any, storage: Any = None) -> Any:
    """One executor that sends itself the next lower number, and yields 0 at the end."""
    counter = _countdown_class(engine)(id="counter")
    builder = engine.WorkflowBuilder(
        max_iterations=ENDLESS, name=NAME, start_executor=counter, checkpoint_storage=storage
    )
    return builder.add_edge(counter, counter).build()


def fan(engine: Any) -> Any:
    """A source, 100 workers and a collector that sends the next lower number back to the source."""
    Relay, Collector = _fan_classes(engine)
    source, collector = Relay(id="source"), Collector(id="collector")
    workers = [Relay(id=f"worker-{number}") for number in range(WIDTH)]
    builder = engine.WorkflowBuilder(max_iterations=ENDLESS, name=NAME, start_executor=source)
    builder.add_fan_out_edges(source, workers).add_fan_in_edges(workers, collector)
    return builder.add_edge(collector, source).build()


def loop_run(engine: Any, supersteps: int) -> Run:
    """A countdown of that many supersteps, without storage."""
    workflow = countdown(engine)

    async def run() -> None:
        _expect_zero(await workflow.run(supersteps - 1))

    return run


def stored_loop_run(engine: Any, supersteps: int) -> tuple[Run, Run]:
    """The same with a checkpoint in memory per superstep, and a check of their number."""
    storage = engine.InMemoryCheckpointStorage()
    workflow = countdown(engine, storage)

    async def run() -> None:
        _expect_zero(await workflow.run(supersteps - 1))

    async def check() -> None:
        kept = await storage.list_checkpoint_ids(workflow_name=NAME)
        _expect("checkpoints (entry and one per superstep)", len(kept), supersteps + 1)

    return run, check


def conversation_run(engine: Any, turns: int) -> tuple[Run, Run]:
    """A state whose list of messages grows by one dict in each superstep, set whole, with a checkpoint in memory of
    each, and a check of its length."""
    storage = engine.InMemoryCheckpointStorage()
    talk = _talk_class(engine)(id="talk")
    builder = engine.WorkflowBuilder(max_iterations=ENDLESS, name=NAME, start_executor=talk, checkpoint_storage=storage)
    workflow = builder.add_edge(talk, talk).build()

    async def run() -> None:
        _expect_zero(await workflow.run(turns - 1))

    async def check() -> None:
        latest = await storage.get_latest(workflow_name=NAME)
        _expect("messages in the last checkpoint", len(latest.state["messages"]), turns)

    return run, check


async def live_before(engine: Any, supersteps: int, folder: str) -> list[Any]:
    """What a process may have done before a measurement: runs in memory, in a memory storage and in a file storage.
    Returns the objects that it keeps."""
    memory = engine.InMemoryCheckpointStorage()
    kept = [countdown(engine), countdown(engine, memory), countdown(engine, engine.FileCheckpointStorage(folder))]
    for workflow in kept:
        _expect_zero(await workflow.run(supersteps - 1))
    return [memory, *kept]


def streamed_loop_run(engine: Any, supersteps: int) -> Run:
    """The countdown without storage, with a consumer that reads every event."""
    workflow = countdown(engine)

    async def run() -> None:
        completed = 0
        async for event in workflow.run(supersteps - 1, stream=True):
            completed += event.type == "superstep_completed"
        _expect("superstep_completed events", completed, supersteps)

    return run


def fan_run(engine: Any, rounds: int) -> Run:
    """That many rounds of 1 to 100 to 1: each is 102 deliveries in 3 supersteps."""
    workflow = fan(engine)

    async def run() -> None:
        _expect_zero(await workflow.run(rounds - 1))

    return run


async def finish_threads(engine: Any, count: int, supersteps: int, *, stored: bool) -> list[Any]:
    """Finish one run on each of `count` threads. Returns the objects that a later run of them needs.

    An engine whose `run` has no thread_id keeps one conversation per workflow object. There each
    thread is an object of its own.
    """
    storage = engine.InMemoryCheckpointStorage() if stored else None
    if not _has_threads(engine):
        workflows = [countdown(engine, storage) for _ in range(count)]
        for workflow in workflows:
            _expect_zero(await workflow.run(supersteps - 1))
        return [storage, workflows]
    workflow = countdown(engine, storage)
    for number in range(count):
        _expect_zero(await workflow.run(supersteps - 1, thread_id=f"thread-{number}"))
    return [storage, workflow]


def _has_threads(engine: Any) -> bool:
    return bool(engine.__name__ == "perdure")


def _expect_zero(result: Any) -> None:
    outputs = result.get_outputs()
    if outputs != [0]:
        raise AssertionError(f"expected the outputs [0], got {outputs!r}: the workload did not run to its end")


def _expect(what: str, got: int, wanted: int) -> None:
    if got != wanted:
        raise AssertionError(f"expected {wanted} {what}, got {got}: the engines would not do the same work")
