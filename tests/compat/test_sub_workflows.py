"""Sub-workflows as users of the reference write them: results collected, questions answered, work resumed."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Never

from perdure import (
    Executor,
    InMemoryCheckpointStorage,
    SubWorkflowRequestMessage,
    SubWorkflowResponseMessage,
    Workflow,
    WorkflowBuilder,
    WorkflowContext,
    WorkflowExecutor,
    WorkflowRunState,
    handler,
    response_handler,
)

# ---------------------------------------------------------------- the child: one crate is weighed and cleared


@dataclass
class Crate:
    number: int
    goods: str


@dataclass
class Permit:
    """A request to an authority."""

    goods: str


@dataclass
class Cleared:
    number: int
    by: str


class Scales(Executor):
    """The first of two: it only passes the crate on."""

    def __init__(self) -> None:
        super().__init__(id="scales")

    @handler
    async def weigh(self, crate: Crate, ctx: WorkflowContext[Crate]) -> None:
        await ctx.send_message(crate)


class Customs(Executor):
    """Asks for a permit for each crate, and remembers which one it asked about."""

    def __init__(self) -> None:
        super().__init__(id="customs")
        self._crate: Crate | None = None

    @handler
    async def inspect(self, crate: Crate, ctx: WorkflowContext[Never, Cleared]) -> None:
        self._crate = crate
        await ctx.request_info(request_data=Permit(crate.goods), response_type=str)

    @response_handler
    async def permitted(self, permit: Permit, by: str, ctx: WorkflowContext[Never, Cleared]) -> None:
        assert self._crate is not None and self._crate.goods == permit.goods
        await ctx.yield_output(Cleared(self._crate.number, by))

    async def on_checkpoint_save(self) -> dict[str, Any]:
        return {"crate": self._crate}

    async def on_checkpoint_restore(self, state: dict[str, Any]) -> None:
        self._crate = state["crate"]


def clearance() -> Workflow:
    scales, customs = Scales(), Customs()
    return WorkflowBuilder(start_executor=scales, name="clearance").add_edge(scales, customs).build()


# ---------------------------------------------------------------- the parent: a ship with several crates


class Quay(Executor):
    """Hands out the crates of a ship and collects what comes back, in `self`, as users do."""

    def __init__(self) -> None:
        super().__init__(id="quay")
        self._expected = 0
        self._cleared: list[Cleared] = []

    @handler
    async def unload(self, goods: list[str], ctx: WorkflowContext[Crate, str]) -> None:
        self._expected = len(goods)
        for number, item in enumerate(goods):
            await ctx.send_message(Crate(number, item), target_id="clearance")

    @handler
    async def collect(self, cleared: Cleared, ctx: WorkflowContext[Crate, str]) -> None:
        self._cleared.append(cleared)
        if len(self._cleared) == self._expected:
            await ctx.yield_output(", ".join(f"{crate.number} by {crate.by}" for crate in self._cleared))

    async def on_checkpoint_save(self) -> dict[str, Any]:
        return {"expected": self._expected, "cleared": self._cleared}

    async def on_checkpoint_restore(self, state: dict[str, Any]) -> None:
        self._expected, self._cleared = state["expected"], state["cleared"]


class Broker(Executor):
    """Answers the children itself where it can; the rest it asks a person, and remembers whose question it was."""

    def __init__(self, known: dict[str, str]) -> None:
        super().__init__(id="broker")
        self._known = known
        self._open: dict[str, SubWorkflowRequestMessage] = {}

    @handler
    async def intercept(
        self, request: SubWorkflowRequestMessage, ctx: WorkflowContext[SubWorkflowResponseMessage]
    ) -> None:
        permit = request.source_event.data
        if not isinstance(permit, Permit):
            raise ValueError(f"unexpected question {permit!r}")
        if permit.goods in self._known:
            answer = request.create_response(self._known[permit.goods])
            await ctx.send_message(answer, target_id=request.executor_id)
            return
        self._open[str(request.source_event.request_id)] = request
        await ctx.request_info(permit, str, request_id=f"permit-{request.source_event.request_id}")

    @response_handler
    async def decided(self, permit: Permit, by: str, ctx: WorkflowContext[SubWorkflowResponseMessage]) -> None:
        request = self._open.pop(str(ctx.request_id).removeprefix("permit-"))
        await ctx.send_message(request.create_response(by), target_id=request.executor_id)

    async def on_checkpoint_save(self) -> dict[str, Any]:
        return {"open": self._open}

    async def on_checkpoint_restore(self, state: dict[str, Any]) -> None:
        self._open = state["open"]


def harbour(storage: Any = None, **known: str) -> Workflow:
    """With the first generation of the builder."""
    quay, broker = Quay(), Broker(known)
    sub = WorkflowExecutor(clearance(), id="clearance")
    builder = (
        WorkflowBuilder(name="harbour")
        .set_start_executor(quay)
        .add_edge(quay, sub)
        .add_edge(sub, quay)
        .add_edge(sub, broker)
        .add_edge(broker, sub)
    )
    return (builder.with_checkpointing(storage) if storage is not None else builder).build()


def harbour_that_asks(storage: Any = None) -> Workflow:
    """With the second generation; what the children ask is asked outside."""
    quay = Quay()
    sub = WorkflowExecutor(clearance(), "clearance", propagate_request=True)
    builder = WorkflowBuilder(start_executor=quay, checkpoint_storage=storage, name="harbour that asks")
    return builder.add_edge(quay, sub).add_edge(sub, quay).build()


# ---------------------------------------------------------------- collecting, intercepting


async def test_a_parent_hands_out_work_and_collects_the_results() -> None:
    result = await harbour(tea="guild", tin="crown").run(["tea", "tin", "tea"])
    assert result.get_outputs() == ["0 by guild, 1 by crown, 2 by guild"]
    assert result.get_final_state() == WorkflowRunState.IDLE


async def test_question_that_the_parent_cannot_answer_goes_to_a_person() -> None:
    workflow = harbour(tea="guild")
    pending: dict[str, Any] = {}
    async for event in workflow.run(["tea", "silk", "salt"], stream=True):
        if event.type == "request_info":
            pending[event.request_id or ""] = event.data
    assert sorted(permit.goods for permit in pending.values()) == ["salt", "silk"]

    answers = {request_id: f"judge of {permit.goods}" for request_id, permit in pending.items()}
    events = [event async for event in workflow.run(responses=answers, stream=True)]
    [output] = [event.data for event in events if event.type == "output"]
    assert output == "0 by guild, 1 by judge of silk, 2 by judge of salt"


async def test_propagated_questions_are_answered_in_a_loop_until_none_is_left() -> None:
    workflow = harbour_that_asks()
    result = await workflow.run(["tea", "tin"])
    rounds = 0
    while requests := result.get_request_info_events():
        assert result.get_final_state() == WorkflowRunState.IDLE_WITH_PENDING_REQUESTS
        first = requests[0]
        result = await workflow.run(responses={first.request_id or "": f"{first.data.goods} board"})
        rounds += 1
    assert rounds == 2
    assert result.get_outputs() == ["0 by tea board, 1 by tin board"]


# ---------------------------------------------------------------- checkpoints


async def test_new_process_resumes_a_checkpoint_with_answers_for_the_children() -> None:
    storage = InMemoryCheckpointStorage()
    await harbour_that_asks(storage).run(["tea", "tin"])
    latest = await storage.get_latest(workflow_name="harbour that asks")
    assert latest is not None
    answers = {key: f"{event.data.goods} board" for key, event in latest.pending_request_info_events.items()}

    restarted = harbour_that_asks(storage)
    result = await restarted.run(checkpoint_id=latest.checkpoint_id, responses=answers)
    assert result.get_outputs() == ["0 by tea board, 1 by tin board"]


async def test_restored_parent_asks_again_and_routes_answers_to_the_right_child() -> None:
    storage = InMemoryCheckpointStorage()
    await harbour(storage, tea="guild").run(["silk", "tea", "salt"])
    latest = await storage.get_latest(workflow_name="harbour")
    assert latest is not None

    restarted = harbour(storage, tea="guild")
    asked = [event async for event in restarted.run_stream_from_checkpoint(latest.checkpoint_id, storage)]
    permits = {event.data.goods: event.request_id for event in asked if event.type == "request_info"}
    assert set(permits) == {"silk", "salt"}
    first = await restarted.run(responses={permits["salt"] or "": "judge"})
    assert first.get_outputs() == []
    last = await restarted.run(responses={permits["silk"] or "": "queen"})
    assert last.get_outputs() == ["1 by guild, 2 by judge, 0 by queen"]


async def test_workflow_without_checkpointing_resumes_any_nested_checkpoint() -> None:
    storage = InMemoryCheckpointStorage()
    result = await harbour(storage, tea="guild", tin="crown").run(["tea", "tin"])
    checkpoints = await storage.list_checkpoints(workflow_name="harbour")
    assert len(checkpoints) > 6, "the children's supersteps have theirs"
    for checkpoint in checkpoints:
        resumed = await harbour(tea="guild", tin="crown").run(
            checkpoint_id=checkpoint.checkpoint_id, checkpoint_storage=storage
        )
        assert resumed.get_outputs() == result.get_outputs()


# ---------------------------------------------------------------- names and fields


async def test_direct_outputs_of_a_child_are_outputs_of_its_parent_executor() -> None:
    class Stamp(Executor):
        @handler
        async def stamp(self, text: str, ctx: WorkflowContext[Never, str]) -> None:
            await ctx.yield_output(text.upper())

    child = WorkflowBuilder(start_executor=Stamp(id="stamp")).build()
    sub = WorkflowExecutor(workflow=child, id="office", allow_direct_output=True)
    result = await WorkflowBuilder(start_executor=sub).build().run("sealed")
    assert [(event.executor_id, event.data) for event in result if event.type == "output"] == [("office", "SEALED")]


def test_workflow_executor_names_its_input_and_output_types() -> None:
    child = clearance()
    sub = WorkflowExecutor(child, "clearance")
    assert sub.id == "clearance" and sub.workflow is child
    assert set(sub.input_types) == {Crate, SubWorkflowResponseMessage}
    assert set(sub.output_types) == {Cleared, SubWorkflowRequestMessage}
    direct = WorkflowExecutor(child, "clearance", allow_direct_output=True, propagate_request=True)
    assert (direct.output_types, direct.workflow_output_types) == ([], [Cleared])


async def test_arguments_of_a_run_reach_the_tools_of_a_child() -> None:
    class Tool(Executor):
        @handler
        async def use(self, text: str, ctx: WorkflowContext[Never, str]) -> None:
            await ctx.yield_output(f"{text} for {ctx.function_invocation_kwargs['user']}")

    child = WorkflowBuilder(start_executor=Tool(id="tool")).build()
    sub = WorkflowExecutor(child, "sub", allow_direct_output=True)
    workflow = WorkflowBuilder(start_executor=sub).build()
    result = await workflow.run("rope", function_invocation_kwargs={"user": "ann"})
    assert result.get_outputs() == ["rope for ann"]
