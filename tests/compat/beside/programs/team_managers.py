"""A Magentic team whose manager counts in itself: the program's own object decides, and the program reads it."""

from typing import Any

from _team import Scripted, plain
from flows import (
    MagenticBuilder,
    MagenticContext,
    MagenticManagerBase,
    MagenticProgressLedger,
    MagenticProgressLedgerItem,
    Message,
)


class Counting(MagenticManagerBase):
    """Satisfied after two turns of the team."""

    def __init__(self) -> None:
        super().__init__(max_round_count=9)
        self.judged = 0
        self.plans: list[str] = []

    async def plan(self, magentic_context: MagenticContext) -> Message:
        self.plans.append(magentic_context.task)
        return Message("assistant", ["plan"], author_name="manager")

    async def replan(self, magentic_context: MagenticContext) -> Message:
        self.plans.append("again")
        return Message("assistant", [f"plan {len(self.plans)}"], author_name="manager")

    async def create_progress_ledger(self, magentic_context: MagenticContext) -> MagenticProgressLedger:
        self.judged += 1
        answers: list[Any] = [self.judged > 2, False, True, "ann", f"Do part {self.judged}"]
        return MagenticProgressLedger(*(MagenticProgressLedgerItem(reason="", answer=answer) for answer in answers))

    async def prepare_final_answer(self, magentic_context: MagenticContext) -> Message:
        return Message("assistant", [f"done after {self.judged}"], author_name="manager")


async def main() -> list[Any]:
    results: list[Any] = []
    for is_streamed in (False, True):
        manager = Counting()
        workflow = MagenticBuilder(participants=[Scripted("ann", "one", "two")], manager=manager).build()
        run: Any = workflow.run("Task", stream=is_streamed)
        outputs = [event.data async for event in run if event.type == "output"] if is_streamed else await run
        texts = [each.text for each in (outputs if is_streamed else outputs.get_outputs())]
        results.append([texts, manager.judged, manager.plans])
    manager = Counting()
    workflow = MagenticBuilder(
        participants=[Scripted("ann", "one", "two")], manager=manager, enable_plan_review=True
    ).build()
    [asked] = (await workflow.run("Task")).get_request_info_events()
    [asked] = (await workflow.run(responses={asked.request_id: asked.data.revise("Shorter")})).get_request_info_events()
    result = await workflow.run(responses={asked.request_id: asked.data.approve()})
    return [*results, asked.data.plan.text, plain(result.get_outputs()), manager.judged, manager.plans]
