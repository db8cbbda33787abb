"""Mistakes of users: each raises an error of its own class, and the thread stays usable."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from threading import Lock
from typing import Any

import pytest
from tests.six_methods import SixMethods
from tests.unit.engine.flows import (
    Gate,
    Tally,
    Verdict,
    alone,
    asking,
    countdown,
    function,
    gated,
    relay,
    shouting,
    sink,
    take_all,
    tallying,
)

from perdure import (
    AlreadyAnswered,
    AnswerRejected,
    CheckpointHookFailed,
    CheckpointNotFound,
    DuplicateRequest,
    IncompatibleWorkflow,
    InMemoryCheckpointStorage,
    InvalidRun,
    InvalidSelection,
    NoPendingRequests,
    NoResponseHandler,
    NoStorage,
    PerdureError,
    StateConflict,
    StorageFailed,
    ThreadBusy,
    ThreadNotFound,
    ThreadNotIdle,
    UnknownExecutor,
    UnknownRequest,
    UnsavableValue,
    Workflow,
    WorkflowBuilder,
    WorkflowEvent,
    WrongInputType,
)

Call = Callable[[Workflow], Awaitable[Any]]


@dataclass
class Mistake:
    """A workflow with a history in thread `t`, a call that is wrong, and a call that must work afterwards."""

    build: Callable[..., Workflow]
    history: Call
    wrong: Call
    error: type[PerdureError]
    message: str
    also: type[Exception] = PerdureError
    after: Call = field(default=lambda workflow: workflow.run("later", thread_id="t"))
    outputs: list[Any] = field(default_factory=lambda: ["<LATER>"])

    async def happens(self, storage: InMemoryCheckpointStorage) -> Workflow:
        """Return the workflow just before the wrong call."""
        workflow = self.build(checkpoint_storage=storage)
        await self.history(workflow)
        return workflow


def asking_for_words_or_a_number(**options: Any) -> Workflow:
    return asking(int | str, **options)


async def shouted(workflow: Workflow) -> None:
    await workflow.run("hi", thread_id="t")


async def asked(workflow: Workflow) -> None:
    await workflow.run("one two", thread_id="t")
    await workflow.run(responses={"two": Verdict(False)}, thread_id="t")


async def asked_once(workflow: Workflow) -> None:
    await workflow.run("one", thread_id="t")


def answers(**responses: Any) -> Call:
    return lambda workflow: workflow.run(responses=responses, thread_id="t")


RIGHT: dict[str, Any] = {"after": answers(one=Verdict(True)), "outputs": ["one: True []"]}

MISTAKES = {
    "a message of the wrong type": Mistake(
        shouting,
        shouted,
        lambda workflow: workflow.run(5, thread_id="t"),
        WrongInputType,
        "Start executor 'shout' cannot handle input of type 'int'; it accepts str. Nothing was written. Send",
        RuntimeError,
    ),
    "an answer to an unknown request": Mistake(
        asking,
        asked,
        answers(ones=Verdict(True)),
        UnknownRequest,
        r"no request 'ones' \(did you mean 'one'",
        ValueError,
        **RIGHT,
    ),
    "an answer of the wrong type": Mistake(
        asking,
        asked,
        answers(one="yes"),
        AnswerRejected,
        "expected Verdict, got str.*still pending",
        ValueError,
        **RIGHT,
    ),
    "an answer given twice": Mistake(
        asking, asked, answers(two=Verdict(True)), AlreadyAnswered, "'two' .* was answered before", ValueError, **RIGHT
    ),
    "a right answer beside a wrong one": Mistake(
        asking,
        asked,
        answers(one=Verdict(True), x=1),
        UnknownRequest,
        "None of the given answers was accepted",
        **RIGHT,
    ),
    "an answer that no handler takes": Mistake(
        asking_for_words_or_a_number,
        asked_once,
        answers(one=5),
        NoResponseHandler,
        "'asker' has no @response_handler for a request of Question answered with int. Add one",
        ValueError,
        after=answers(one="five"),
        outputs=["one: five"],
    ),
    "an answer where nothing was asked": Mistake(
        shouting,
        shouted,
        answers(one=1),
        NoPendingRequests,
        "No pending requests found in workflow context: the responses do not correspond",
        RuntimeError,
    ),
    "an unknown checkpoint id": Mistake(
        shouting,
        shouted,
        lambda workflow: workflow.run(checkpoint_id="nothing"),
        CheckpointNotFound,
        "No checkpoint found with ID nothing in this storage",
    ),
    "an unknown thread": Mistake(
        shouting,
        shouted,
        lambda workflow: workflow.run(thread_id="nobody"),
        ThreadNotFound,
        "No thread 'nobody' exists here",
    ),
}


@pytest.mark.parametrize("mistake", MISTAKES.values(), ids=list(MISTAKES))
async def test_mistake_raises_writes_nothing_and_leaves_the_thread_usable(mistake: Mistake) -> None:
    storage = InMemoryCheckpointStorage()
    workflow = await mistake.happens(storage)
    before = await storage.list_checkpoints()
    with pytest.raises(mistake.error, match=mistake.message) as raised:
        await mistake.wrong(workflow)
    assert isinstance(raised.value, mistake.also) and isinstance(raised.value, PerdureError)
    assert await storage.list_checkpoints() == before
    assert (await mistake.after(workflow)).get_outputs() == mistake.outputs


@pytest.mark.parametrize("mistake", MISTAKES.values(), ids=list(MISTAKES))
async def test_new_process_can_continue_after_a_mistake(mistake: Mistake) -> None:
    storage = InMemoryCheckpointStorage()
    workflow = await mistake.happens(storage)
    with pytest.raises(mistake.error):
        await mistake.wrong(workflow)
    other = mistake.build(checkpoint_storage=storage)
    assert (await mistake.after(other)).get_outputs() == mistake.outputs


@pytest.mark.parametrize("mistake", MISTAKES.values(), ids=list(MISTAKES))
async def test_stream_raises_the_same_error_and_emits_no_event(mistake: Mistake) -> None:
    workflow = await mistake.happens(InMemoryCheckpointStorage())
    seen: list[WorkflowEvent] = []

    class Streaming:
        def run(self, *args: Any, **options: Any) -> Any:
            return workflow.run(*args, stream=True, **options)

    wrong: Any = Streaming()
    with pytest.raises(mistake.error, match=mistake.message):
        await take_all(mistake.wrong(wrong), seen)  # type: ignore[arg-type]  # a stream, as asked for above
    assert seen == []


async def test_message_to_an_unknown_executor_fails_and_the_thread_can_resume() -> None:
    target = ["deliverr"]

    async def send(message: str, ctx: Any) -> None:
        await ctx.send_message(message, target_id=target[0])

    start, end = function("start", send), sink("deliver")
    builder = WorkflowBuilder(name="w", start_executor=start, checkpoint_storage=InMemoryCheckpointStorage())
    workflow = builder.add_edge(start, end).build()
    with pytest.raises(UnknownExecutor, match=r"executor 'deliverr', which this workflow does not have \(did you mean"):
        await workflow.run("x", thread_id="t")
    target[0] = "deliver"
    assert (await workflow.run(thread_id="t")).get_outputs() == [("deliver", "x")]


async def test_second_run_on_a_busy_thread_is_rejected_and_the_first_continues() -> None:
    gate, storage = Gate(), InMemoryCheckpointStorage()
    workflow = gated(gate, checkpoint_storage=storage)
    async with workflow.open(thread_id="t") as run:
        await run.send("first")
        await gate.arrived.wait()
        for wrong in ({"message": "second"}, {}, {"responses": {"r": 1}}):
            with pytest.raises(ThreadBusy, match="Thread 't' is being run") as raised:
                await workflow.run(wrong.pop("message", None), thread_id="t", **wrong)
            assert isinstance(raised.value, RuntimeError)
        gate.opened.set()
        result = await run.wait()
    assert result is not None and result.get_outputs() == ["first"]
    assert (await workflow.run("second", thread_id="t")).get_outputs() == ["second"]


async def test_checkpoint_of_another_workflow_is_rejected_and_both_stay_usable() -> None:
    storage = InMemoryCheckpointStorage()
    mine, other = shouting(checkpoint_storage=storage), countdown(checkpoint_storage=storage)
    foreign = await other.run(1, thread_id="other")
    await mine.run("hi", thread_id="t")
    before = await storage.list_checkpoint_ids()
    with pytest.raises(
        IncompatibleWorkflow,
        match=r"different version of workflow 'shouting'.*\n.*called 'countdown'(.|\n)*pass force=True",
    ):
        await mine.run(checkpoint_id=foreign.checkpoint_id)
    with pytest.raises(IncompatibleWorkflow):
        await mine.run("hi", thread_id="other")
    assert await storage.list_checkpoint_ids() == before
    assert (await mine.run("later", thread_id="t")).get_outputs() == ["<LATER>"]
    assert (await other.run(thread_id="other")).get_outputs() == ["lift-off"]


async def test_call_that_needs_a_storage_raises_with_advice() -> None:
    workflow = shouting()
    with pytest.raises(NoStorage, match=r"Pass checkpoint_storage= to the call, or build") as raised:
        await workflow.run(checkpoint_id="c")
    assert isinstance(raised.value, ValueError)
    with pytest.raises(NoStorage):
        await workflow.messages("t")
    assert (await workflow.run("later")).get_outputs() == ["<LATER>"]


async def test_message_to_an_interrupted_thread_is_rejected_and_not_processed() -> None:
    fails = [True]

    async def work(message: str, ctx: Any) -> None:
        if fails[0]:
            raise ValueError("as asked")
        await ctx.yield_output(message)

    workflow = alone(work, checkpoint_storage=InMemoryCheckpointStorage())
    with pytest.raises(ValueError, match="as asked"):
        await workflow.run("first", thread_id="t")
    with pytest.raises(ThreadNotIdle, match=r"Resume it first with run\(thread_id='t'\)"):
        await workflow.run("second", thread_id="t")
    fails[0] = False
    assert (await workflow.run(thread_id="t")).get_outputs() == ["first"]


class Unsaving(Tally):
    wrong: Any = None

    async def on_checkpoint_save(self) -> dict[str, Any]:
        return type(self).wrong or await super().on_checkpoint_save()


@pytest.mark.parametrize("wrong", ["no dict", [1]])
async def test_failing_hook_names_the_executor_and_the_thread_can_be_resumed(wrong: Any) -> None:
    storage = InMemoryCheckpointStorage()
    kind: Any = type("Unsaving", (Unsaving,), {})
    workflow = tallying(kind("keeper"), checkpoint_storage=storage)
    await workflow.run("a", thread_id="t")
    kind.wrong = wrong
    with pytest.raises(CheckpointHookFailed, match="on_checkpoint_save of executor 'keeper' failed: it returned"):
        await workflow.run("b", thread_id="t")
    kind.wrong = None
    assert (await workflow.run("b", thread_id="t")).get_outputs() == [2]


async def test_a_value_that_cannot_be_saved_fails_the_run_with_its_path() -> None:
    bad = [True]

    async def work(message: str, ctx: Any) -> None:
        ctx.set_state("report", {"author": [Lock()]} if bad[0] else "fine")
        await ctx.yield_output(message)

    storage = InMemoryCheckpointStorage()
    workflow = alone(work, checkpoint_storage=storage)
    with pytest.raises(
        UnsavableValue, match=r"Cannot save state\['report'\]\['author'\]\[0\]: .*Nothing was written"
    ) as raised:
        await workflow.run("x", thread_id="t")
    assert TypeError in type(raised.value).__mro__ and len(await storage.list_checkpoint_ids()) == 1
    bad[0] = False
    assert (await workflow.run(thread_id="t")).get_outputs() == ["x"]


async def test_a_message_that_cannot_be_saved_is_rejected_before_it_is_accepted() -> None:
    storage = InMemoryCheckpointStorage()
    workflow = alone(lambda message, ctx: ctx.yield_output("ok"), accepts=object, checkpoint_storage=storage)
    with pytest.raises(UnsavableValue, match=r"messages\['internal:only'\]\[0\].data"):
        await workflow.run(Lock(), thread_id="t")
    assert await storage.list_checkpoint_ids() == []
    assert (await workflow.run("fine", thread_id="t")).get_outputs() == ["ok"]


class FailingStorage(SixMethods):
    """Fails with the n-th save."""

    def __init__(self) -> None:
        super().__init__()
        self.saves_left = 1

    async def save(self, checkpoint: Any) -> str:
        self.saves_left -= 1
        if self.saves_left < 0:
            raise OSError("disk full")
        return await super().save(checkpoint)


async def test_failing_storage_fails_the_run_and_the_thread_can_be_resumed() -> None:
    storage = FailingStorage()
    workflow = shouting(checkpoint_storage=storage)
    with pytest.raises(
        StorageFailed, match=r"FailingStorage failed to save: OSError\('disk full'\). Nothing was changed"
    ):
        await workflow.run("hi", thread_id="t")
    assert len(storage.kept) == 1
    storage.saves_left = 100
    assert (await workflow.run(thread_id="t")).get_outputs() == ["<HI>"]


async def test_unknown_checkpoint_of_a_plain_storage_raises_checkpoint_not_found() -> None:
    with pytest.raises(CheckpointNotFound, match="No checkpoint found with ID nothing "):
        await shouting(checkpoint_storage=SixMethods()).run(checkpoint_id="nothing")


async def test_conflict_or_invalid_selection_keeps_thread_at_last_checkpoint() -> None:
    wrong = [True]

    async def write(message: Any, ctx: Any) -> None:
        ctx.set_state("key" if wrong[0] else ctx.executor_id, message)

    def choose(message: Any, targets: list[str]) -> list[str]:
        return ["nobody"] if message == "lost" and wrong[0] else targets

    start, first, second = relay("start"), function("one", write), function("two", write)
    builder = WorkflowBuilder(name="w", start_executor=start, checkpoint_storage=InMemoryCheckpointStorage())
    workflow = builder.add_multi_selection_edge_group(start, [first, second], choose).build()
    with pytest.raises(InvalidSelection, match="chose 'nobody', which is not one of its targets"):
        await workflow.run("lost", thread_id="selection")
    with pytest.raises(StateConflict, match="both wrote the state key 'key'"):
        await workflow.run("x", thread_id="conflict")
    wrong[0] = False
    for thread_id in ("selection", "conflict"):
        result = await workflow.run(thread_id=thread_id)
        assert result.get_final_state().value == "IDLE"


async def test_thread_with_duplicate_request_ids_resumes_after_a_fix() -> None:
    wrong = [True]

    async def ask(message: Any, ctx: Any) -> None:
        await ctx.request_info(message, str, request_id="same" if wrong[0] else ctx.executor_id)

    start, first, second = relay("start"), function("one", ask), function("two", ask)
    builder = WorkflowBuilder(name="w", start_executor=start, checkpoint_storage=InMemoryCheckpointStorage())
    workflow = builder.add_fan_out_edges(start, [first, second]).build()
    with pytest.raises(DuplicateRequest, match=r"both asked with the request_id 'same'.*Choose different ids"):
        await workflow.run("x", thread_id="t")
    wrong[0] = False
    asked = (await workflow.run(thread_id="t")).get_request_info_events()
    assert [event.request_id for event in asked] == ["one", "two"], "what could not be merged is not replayed"


async def test_answers_are_keyed_by_text_request_ids() -> None:
    workflow = shouting(checkpoint_storage=InMemoryCheckpointStorage())
    with pytest.raises(InvalidRun, match=r"responses must map request ids to answers, got 5 as an id"):
        await workflow.run(responses={5: "yes"})
    assert (await workflow.run("hi")).get_outputs() == ["<HI>"]
