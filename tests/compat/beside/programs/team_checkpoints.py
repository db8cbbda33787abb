"""Teams with a storage: their checkpoints, and runs that continue from one in another workflow object."""

from typing import Any

from _team import Scripted, chat_agent, described
from flows import (
    ConcurrentBuilder,
    GroupChatBuilder,
    HandoffAgentUserRequest,
    HandoffBuilder,
    InMemoryCheckpointStorage,
    MagenticBuilder,
    MagenticContext,
    MagenticManagerBase,
    MagenticProgressLedger,
    MagenticProgressLedgerItem,
    Message,
    SequentialBuilder,
)

VERSIONS = ("1.23",)  # in 1.13 a team without a name has a random one


class Manager(MagenticManagerBase):
    """Has the first agent speak once."""

    def __init__(self) -> None:
        super().__init__()
        self.plans = 0

    async def plan(self, magentic_context: MagenticContext) -> Message:
        self.plans += 1
        return Message("assistant", [f"plan {self.plans}"], author_name="magentic_manager")

    async def replan(self, magentic_context: MagenticContext) -> Message:
        return await self.plan(magentic_context)

    async def create_progress_ledger(self, magentic_context: MagenticContext) -> MagenticProgressLedger:
        item = MagenticProgressLedgerItem
        speaker = next(iter(magentic_context.participant_descriptions))
        is_done = any(message.author_name == speaker for message in magentic_context.chat_history)
        answers = (is_done, False, True, speaker, "Count.")
        return MagenticProgressLedger(*(item(reason="", answer=answer) for answer in answers))

    async def prepare_final_answer(self, magentic_context: MagenticContext) -> Message:
        return Message("assistant", [f"the answer after plan {self.plans}"], author_name="magentic_manager")

    def on_checkpoint_save(self) -> dict[str, Any]:
        return {"plans": self.plans}

    def on_checkpoint_restore(self, state: dict[str, Any]) -> None:
        self.plans = state["plans"]


def team() -> list[Scripted]:
    return [Scripted("ann", "one", "two", "three"), Scripted("bob", "eins", "zwei", "drei")]


def in_turn(state: Any) -> str:
    names = list(state.participants)
    return names[state.current_round % len(names)]


def handoff(storage: Any) -> Any:
    triage = chat_agent("triage", {"handoff_to_clerk": {}}, "Back again.")
    clerk = chat_agent("clerk", "Which order?")
    builder = HandoffBuilder(participants=[triage, clerk], name="handoff", checkpoint_storage=storage)
    return builder.with_start_agent(triage).build()


TEAMS: dict[str, Any] = {
    "sequential": lambda storage: SequentialBuilder(participants=team(), checkpoint_storage=storage, name="s").build(),
    "concurrent": lambda storage: ConcurrentBuilder(participants=team(), checkpoint_storage=storage, name="c").build(),
    "chat": lambda storage: GroupChatBuilder(
        participants=team(), selection_func=in_turn, max_rounds=3, checkpoint_storage=storage, name="g"
    ).build(),
    "magentic": lambda storage: MagenticBuilder(
        participants=team(), manager=Manager(), checkpoint_storage=storage, name="m"
    ).build(),
}


async def sorted_checkpoints(storage: Any, name: str) -> list[Any]:
    return sorted(await storage.list_checkpoints(workflow_name=name), key=lambda checkpoint: checkpoint.timestamp)


async def main() -> Any:
    results: dict[str, Any] = {}
    for name, make in TEAMS.items():
        storage = InMemoryCheckpointStorage()
        workflow = make(storage)
        results[name] = described(await workflow.run("count"))
        checkpoints = await sorted_checkpoints(storage, workflow.name)
        resumed = await make(storage).run(checkpoint_id=checkpoints[1].checkpoint_id)
        results[f"{name}: resumed"] = described(resumed)
        at_run = InMemoryCheckpointStorage()
        await make(None).run("count", checkpoint_storage=at_run)
        resumed = await make(None).run(
            checkpoint_id=(await sorted_checkpoints(at_run, workflow.name))[1].checkpoint_id, checkpoint_storage=at_run
        )
        results[f"{name}: resumed at run"] = described(resumed)

    storage = InMemoryCheckpointStorage()
    result = await handoff(storage).run("Hello.")
    [request] = result.get_request_info_events()
    last = (await sorted_checkpoints(storage, "handoff"))[-1]
    results["pending"] = list(last.pending_request_info_events) == [request.request_id]
    resumed = handoff(storage)
    again = await resumed.run(checkpoint_id=last.checkpoint_id)
    results["handoff: again"] = described(again)["requests"]
    answer = {request.request_id: HandoffAgentUserRequest.create_response("Order 5.")}
    results["handoff: answered"] = described(await resumed.run(responses=answer))
    both = await handoff(storage).run(checkpoint_id=last.checkpoint_id, responses=answer)
    results["handoff: both"] = described(both)

    storage = InMemoryCheckpointStorage()

    def reviewed() -> Any:
        builder = MagenticBuilder(participants=team(), manager=Manager(), name="r", enable_plan_review=True)
        return builder.with_checkpointing(storage).build()

    [request] = (await reviewed().run("count")).get_request_info_events()
    last = (await sorted_checkpoints(storage, "r"))[-1]
    resumed = reviewed()
    [again] = (await resumed.run(checkpoint_id=last.checkpoint_id)).get_request_info_events()
    results["review"] = [again.request_id == request.request_id, again.data.plan.text, again.data.is_stalled]
    result = await resumed.run(responses={again.request_id: again.data.approve()})
    results["review: approved"] = described(result)
    return results
