"""Reviews of agents' answers in all teams: who asks for them, approvals, and other answers after a review."""

from typing import Any

from _team import Scripted, described, failure_of, plain
from flows import (
    AgentRequestInfoResponse,
    ConcurrentBuilder,
    GroupChatBuilder,
    GroupChatState,
    Message,
    SequentialBuilder,
)

VERSIONS = ("1.23",)  # in 1.13 the last agent's answer is an output before its review too


def in_turn(state: GroupChatState) -> str:
    names = list(state.participants)
    return names[state.current_round % len(names)]


def team() -> list[Scripted]:
    return [Scripted("ann", "one", "two", "three"), Scripted("bob", "eins", "zwei", "drei")]


TEAMS: dict[str, Any] = {
    "all": lambda team: SequentialBuilder(participants=team).with_request_info(),
    "second": lambda team: SequentialBuilder(participants=team).with_request_info(agents=["bob"]),
    "first": lambda team: SequentialBuilder(participants=team).with_request_info(agents=[team[0]]),
    "none named": lambda team: SequentialBuilder(participants=team).with_request_info(agents=[]),
    "concurrent": lambda team: ConcurrentBuilder(participants=team).with_request_info(),
    "one of two": lambda team: ConcurrentBuilder(participants=team).with_request_info(agents=["ann"]),
    "chat": lambda team: GroupChatBuilder(participants=team, selection_func=in_turn, max_rounds=2).with_request_info(),
}


async def reviewed(workflow: Any, *reviews: Any) -> list[Any]:
    """The results of the runs: the first, and one after each review, the last of which is repeated."""
    result = await workflow.run("count")
    results = [described(result)]
    waiting = list(reviews)
    while requests := result.get_request_info_events():
        answer = waiting.pop(0) if len(waiting) > 1 else waiting[0]
        result = await workflow.run(responses={event.request_id: answer for event in requests})
        results.append(described(result))
    return results


async def main() -> Any:
    results: dict[str, Any] = {}
    approval, review = AgentRequestInfoResponse.approve(), AgentRequestInfoResponse.from_strings(["again"])
    other = AgentRequestInfoResponse.from_messages([Message("user", ["once more"])])
    for name, make in TEAMS.items():
        agents = team()
        results[f"{name}: approved"] = await reviewed(make(agents).build(), approval), [agent.seen for agent in agents]
        agents = team()
        runs = await reviewed(make(agents).build(), review, other, approval)
        results[f"{name}: reviewed"] = [[run["outputs"], run["state"], len(run["requests"])] for run in runs]
        results[f"{name}: seen"] = agents[0].seen
    results["responses"] = [plain(response.messages) for response in (approval, review, other)]
    unknown = SequentialBuilder(participants=team()).with_request_info(agents=["carl"])
    results["unknown"] = await failure_of(unknown.build)
    return results
