"""Teams of agents: what their streamed runs emit, and their outputs otherwise."""

import json
from typing import Any

from _scripted import Echo, agent, streamed, texts
from flows import ConcurrentBuilder, GroupChatBuilder, HandoffBuilder, MagenticBuilder, SequentialBuilder


def pair() -> list[Any]:
    return [Echo("ann", "one ", "two"), Echo("bob", "three ", "four")]


def chat(**options: Any) -> Any:
    def select(state: Any) -> str:
        return ("ann", "bob")[state.current_round % 2]

    return GroupChatBuilder(
        participants=pair(), selection_func=select, max_rounds=2, orchestrator_name="chair", **options
    ).build()


def handoff() -> Any:
    clerk = agent("clerk", ["I see."], require_per_service_call_history_persistence=True)
    other = agent("other", ["No."], require_per_service_call_history_persistence=True)
    builder = HandoffBuilder(participants=[clerk, other], termination_condition=lambda messages: len(messages) > 1)
    return builder.with_start_agent(clerk).build()


def magentic(**options: Any) -> Any:
    def judge(is_satisfied: bool) -> str:
        verdicts = {
            "is_request_satisfied": is_satisfied,
            "is_in_loop": False,
            "is_progress_being_made": True,
            "next_speaker": "ann",
            "instruction_or_question": "Say it.",
        }
        return json.dumps({name: {"reason": "so", "answer": answer} for name, answer in verdicts.items()})

    manager = agent("manager", ["facts"], ["plan"], [judge(False)], [judge(True)], ["It is done."])
    return MagenticBuilder(participants=[Echo("ann", "one ", "two")], manager_agent=manager, **options).build()


async def main() -> Any:
    everything: dict[str, Any] = {"intermediate_output_from": "all_other"}
    concurrent = [
        lambda: ConcurrentBuilder(participants=pair(), intermediate_output_from="all").build(),
        lambda: ConcurrentBuilder(participants=pair()).build(),
    ]
    teams: list[Any] = [
        *concurrent,
        lambda: SequentialBuilder(participants=pair()).build(),
        lambda: SequentialBuilder(participants=pair(), output_from="all").build(),
        chat,
        lambda: chat(output_from=["ann"], **everything),
        handoff,
        magentic,
        lambda: magentic(intermediate_output_from=["ann"]),
    ]
    results = []
    for build in teams:
        events, _ = await streamed(build(), "hi")
        if build in concurrent:
            events.sort(key=lambda event: event[1])
        # The name of the orchestrator, and the ids of its messages, differ.
        is_agent = ("ann", "bob", "clerk")
        shown = [event if event[1] in is_agent else [event[0], *event[2:5]] for event in events]
        results.append([shown, await texts(build(), "hi")])
    return results
