"""Magentic teams: managers of the caller and of an agent, events, reviews of plans, stalls and limits."""

import json
from typing import Any

from _team import Scripted, chat_agent, described, failure_of, plain
from flows import (
    Executor,
    GroupChatRequestMessage,
    GroupChatResponseMessage,
    MagenticBuilder,
    MagenticContext,
    MagenticManagerBase,
    MagenticPlanReviewRequest,
    MagenticProgressLedger,
    MagenticProgressLedgerItem,
    Message,
    StandardMagenticManager,
    WorkflowContext,
    handler,
)


def ledger(
    speaker: str = "", instruction: str = "", *, done: bool = False, stalled: bool = False
) -> MagenticProgressLedger:
    item = MagenticProgressLedgerItem
    return MagenticProgressLedger(
        is_request_satisfied=item(reason="", answer=done),
        is_in_loop=item(reason="", answer=False),
        is_progress_being_made=item(reason="", answer=not stalled),
        next_speaker=item(reason="", answer=speaker),
        instruction_or_question=item(reason="", answer=instruction),
    )


class Manager(MagenticManagerBase):
    """Follows a script of ledgers, and notes its calls."""

    def __init__(self, *ledgers: Any, **limits: Any) -> None:
        super().__init__(**limits)
        self.ledgers = list(ledgers)
        self.calls: list[Any] = []

    def note(self, call: str, context: MagenticContext) -> None:
        self.calls.append(
            [
                call,
                context.task,
                context.round_count,
                context.stall_count,
                context.reset_count,
                plain(context.chat_history),
            ]
        )

    async def plan(self, magentic_context: MagenticContext) -> Message:
        self.note("plan", magentic_context)
        return Message("assistant", ["the plan"], author_name="magentic_manager")

    async def replan(self, magentic_context: MagenticContext) -> Message:
        self.note("replan", magentic_context)
        return Message("assistant", ["another plan"], author_name="magentic_manager")

    async def create_progress_ledger(self, magentic_context: MagenticContext) -> MagenticProgressLedger:
        self.note("ledger", magentic_context)
        judged = sum(call[0] == "ledger" for call in self.calls)
        chosen = self.ledgers[min(judged, len(self.ledgers)) - 1]
        if isinstance(chosen, Exception):
            raise chosen
        return chosen

    async def prepare_final_answer(self, magentic_context: MagenticContext) -> Message:
        self.note("answer", magentic_context)
        return Message("assistant", ["the answer"], author_name="magentic_manager")


class Asked(Executor):
    @handler
    async def work(self, request: GroupChatRequestMessage, ctx: WorkflowContext[GroupChatResponseMessage]) -> None:
        fields = f"did: {request.additional_instruction}"
        await ctx.send_message(GroupChatResponseMessage(Message("assistant", [fields], author_name=self.id)))


def team() -> list[Scripted]:
    return [Scripted("ann", "one", "two", description="Counts."), Scripted("bob", "eins", "zwei", description="Zählt.")]


async def main() -> Any:
    results: dict[str, Any] = {}
    manager, agents = Manager(ledger("ann", "Count."), ledger("bob", "Zähle."), ledger(done=True)), team()
    workflow = MagenticBuilder(participants=agents, manager=manager).build()
    result = await workflow.run("Count!")
    results["run"] = described(result)
    results["calls"] = manager.calls
    results["executors"] = sorted(workflow.executors), workflow.get_start_executor().id
    results["events"] = [
        [event.executor_id, event.data.event_type.value, type(event.data.content).__name__]
        for event in result
        if event.type == "magentic_orchestrator"
    ]
    result = (
        await MagenticBuilder(
            participants=team(),
            manager=Manager(ledger("ann", "Count."), ledger(done=True)),
            intermediate_output_from="all",
        )
        .build()
        .run(Message("user", ["Count!"]))
    )
    results["intermediate"] = described(result)
    result = (
        await MagenticBuilder(
            participants=team(),
            manager_factory=lambda: Manager(ledger("ann", "Count."), ledger(done=True)),
            output_from=["ann"],
        )
        .build()
        .run([Message("user", ["Count!"])])
    )
    results["factory"] = described(result)

    manager = Manager(ledger("ann", "Count."), ledger(done=True))
    workflow = MagenticBuilder(participants=team(), manager=manager, enable_plan_review=True).build()
    result = await workflow.run("Count!")
    [request] = result.get_request_info_events()
    fields = [
        type(request.data).__name__,
        request.source_executor_id,
        request.response_type.__name__,
        plain(request.data.plan),
        request.data.current_progress,
        request.data.is_stalled,
    ]
    results["review"] = fields, described(result)
    result = await workflow.run(responses={request.request_id: request.data.revise("Better, please.")})
    results["revised"] = described(result), manager.calls[-1]
    [request] = result.get_request_info_events()
    assert isinstance(request.data, MagenticPlanReviewRequest)
    result = await workflow.run(responses={request.request_id: request.data.approve()})
    results["approved"] = described(result), manager.calls

    stalls = {
        "stalled": Manager(
            ledger("ann", "Count."),
            ledger("ann", "Go on.", stalled=True),
            ledger("bob", "Zähle."),
            ledger(done=True),
            max_stall_count=0,
        ),
        "without work": Manager(ledger("ann", "Go on.", stalled=True), max_stall_count=0, max_reset_count=1),
        "unknown": Manager(ledger("carl", "Count.")),
    }
    for name, manager in stalls.items():
        result = await MagenticBuilder(participants=team(), manager=manager).build().run("Count!")
        results[name] = described(result)
    asked = MagenticBuilder(
        participants=[Asked(id="asked")], manager=Manager(ledger("asked", "Go."), ledger(done=True))
    )
    results["one handler"] = described(await asked.build().run("Count!"))

    def judged(speaker: str, *, done: bool = False) -> str:
        answers = {
            "is_request_satisfied": done,
            "is_in_loop": False,
            "is_progress_being_made": True,
            "next_speaker": speaker,
            "instruction_or_question": "Count.",
        }
        return json.dumps({name: {"reason": "", "answer": answer} for name, answer in answers.items()})

    boss = chat_agent("boss", "the facts", "the plan", judged("ann"), judged("ann", done=True), "the answer")
    agents = team()
    result = await MagenticBuilder(participants=agents, manager_agent=boss).build().run("Count!")
    results["agent"] = described(result), len(boss.client.requests), len(agents[0].seen)
    boss = chat_agent("boss", "facts", "plan", judged("ann"), judged("ann", done=True), "the answer")
    result = (
        await MagenticBuilder(
            participants=team(),
            manager=StandardMagenticManager(
                boss,
                task_ledger_facts_prompt="F {task}",
                task_ledger_plan_prompt="P {team}",
                task_ledger_full_prompt="{task}|{team}|{facts}|{plan}",
                progress_ledger_prompt="L {task} {team} {names}",
                final_answer_prompt="A {task}",
            ),
        )
        .build()
        .run("Count!")
    )
    manager = StandardMagenticManager(boss, final_answer_prompt="A {task}")
    results["attributes"] = manager.final_answer_prompt, manager.max_stall_count, manager.progress_ledger_retry_count
    results["prompts"] = described(result), boss.client.requests
    manager = Manager(ledger("ann", "Count."))
    results["errors"] = [
        await failure_of(lambda: MagenticBuilder(participants=[], manager=manager)),
        await failure_of(lambda: MagenticBuilder(participants=team()).build()),
        await failure_of(lambda: MagenticBuilder(participants=team(), manager=manager, manager_agent=boss)),
        await failure_of(lambda: MagenticBuilder(participants=[Scripted(None, "a")], manager=manager)),
        await failure_of(
            lambda: MagenticBuilder(participants=[Scripted("a", "a"), Scripted("a", "b")], manager=manager)
        ),
        await failure_of(lambda: MagenticBuilder(participants=[object()], manager=manager)),
        await failure_of(lambda: MagenticContext.from_dict({})),
        await failure_of(MagenticManagerBase),
    ]
    context = MagenticContext(
        task="t",
        participant_descriptions={"a": "b"},
        chat_history=[Message("user", ["x"])],
        round_count=2,
        stall_count=1,
    )
    copy = MagenticContext.from_dict(context.to_dict())
    results["context"] = [copy.task, plain(copy.chat_history), copy.round_count, copy.stall_count, copy.reset_count]
    copy.reset()
    results["reset"] = [copy.task, plain(copy.chat_history), copy.round_count, copy.stall_count, copy.reset_count]
    results["ledger"] = (
        ledger("ann", "x").to_dict(),
        MagenticProgressLedger.from_dict(ledger("bob").to_dict()).to_dict(),
    )
    return results
