"""Group chats led by a function: turns, rounds, ends, state, events, and executors as participants."""

from typing import Any

from _team import Scripted, described, failure_of, plain
from flows import (
    Executor,
    GroupChatBuilder,
    GroupChatParticipantMessage,
    GroupChatRequestMessage,
    GroupChatResponseMessage,
    GroupChatState,
    Message,
    WorkflowContext,
    handler,
)


def in_turn(state: GroupChatState) -> str:
    names = list(state.participants)
    return names[state.current_round % len(names)]


async def in_turn_async(state: GroupChatState) -> str:
    return in_turn(state)


class Speaker(Executor):
    @handler
    async def read(self, message: GroupChatParticipantMessage, ctx: WorkflowContext[Any]) -> None:
        pass

    @handler
    async def speak(self, request: GroupChatRequestMessage, ctx: WorkflowContext[GroupChatResponseMessage]) -> None:
        await ctx.send_message(GroupChatResponseMessage(Message("assistant", ["spoken"], author_name=self.id)))


def team() -> list[Scripted]:
    return [Scripted("ann", "one", "two", "three", description="Counts."), Scripted("bob", "eins", "zwei")]


async def main() -> Any:
    results: dict[str, Any] = {}
    agents = team()
    workflow = GroupChatBuilder(participants=agents, selection_func=in_turn, max_rounds=3).build()
    result = await workflow.run("count")
    results["agents"] = described(result), [list(agent.seen) for agent in agents]
    events = [event for event in result if event.type == "group_chat"]
    results["events"] = [
        [type(event.data).__name__, event.data.round_index, event.data.participant_name] for event in events
    ]
    results["executors"] = sorted(workflow.executors), workflow.get_start_executor().id

    states: list[Any] = []

    def watch(state: GroupChatState) -> str:
        states.append([state.current_round, dict(state.participants), plain(state.conversation)])
        return "ann"

    result = await GroupChatBuilder(participants=team(), selection_func=watch, max_rounds=2).build().run("count")
    states[:] = [
        [index, {name: text for name, text in people.items() if name == "ann"}, texts]
        for index, people, texts in states
    ]
    results["states"] = described(result), states

    for name, input_ in {
        "text": "count",
        "message": Message("user", ["count"]),
        "messages": [Message("user", ["count"]), Message("assistant", ["well"])],
    }.items():
        builder = GroupChatBuilder(participants=team(), selection_func=in_turn_async, max_rounds=1)
        results[f"input {name}"] = described(await builder.build().run(input_))

    def is_over(conversation: list[Message]) -> bool:
        return len(conversation) > 3

    async def is_over_async(conversation: list[Message]) -> bool:
        return any(message.author_name == "bob" for message in conversation)

    for condition in (is_over, is_over_async, lambda conversation: True):
        builder = GroupChatBuilder(participants=team(), selection_func=in_turn, orchestrator_name="chair")
        result = await builder.with_termination_condition(condition).with_max_rounds(8).build().run("count")
        results[f"ends {condition.__name__}"] = described(result)

    for name, options in {
        "all": {"output_from": "all"},
        "first": {"output_from": ["ann"]},
        "intermediate": {"intermediate_output_from": "all"},
        "other": {"output_from": ["ann"], "intermediate_output_from": "all_other"},
    }.items():
        builder = GroupChatBuilder(participants=team(), selection_func=in_turn, max_rounds=2, **options)
        results[f"outputs {name}"] = described(await builder.build().run("count"))

    agents = team()
    builder = GroupChatBuilder(participants=[agents[0], Speaker(id="speaker")], selection_func=in_turn, max_rounds=3)
    results["executor"] = described(await builder.build().run("count")), agents[0].seen
    factories = GroupChatBuilder(
        participant_factories=[lambda: Scripted("ann", "one"), lambda: Scripted("bob", "eins")],
        selection_func=in_turn,
        max_rounds=2,
        intermediate_output_from="all",
    )
    results["factories"] = described(await factories.build().run("count"))
    ann = Scripted("ann", "one")
    results["errors"] = [
        await failure_of(
            lambda: GroupChatBuilder(participants=[ann], selection_func=lambda state: "x").build().run("a")
        ),
        await failure_of(lambda: GroupChatBuilder(participants=[ann])),
        await failure_of(lambda: GroupChatBuilder(participants=[ann]).build()),
        await failure_of(lambda: GroupChatBuilder(participants=[], selection_func=in_turn)),
        await failure_of(lambda: GroupChatBuilder(selection_func=in_turn)),
        await failure_of(lambda: GroupChatBuilder(participants=[ann, Scripted("ann", "x")], selection_func=in_turn)),
        await failure_of(lambda: GroupChatBuilder(participants=[Scripted(None, "x")], selection_func=in_turn)),
        await failure_of(lambda: GroupChatBuilder(participants=[Scripted("", "x")], selection_func=in_turn)),
        await failure_of(lambda: GroupChatBuilder(participants=[object()], selection_func=in_turn)),
        await failure_of(lambda: GroupChatBuilder(participants=[ann], selection_func=in_turn, orchestrator_agent=ann)),
        await failure_of(
            lambda: GroupChatBuilder(participants=[ann], participant_factories=[team], selection_func=in_turn)
        ),
        await failure_of(lambda: GroupChatBuilder(participant_factories=[], selection_func=in_turn)),
    ]
    return results
