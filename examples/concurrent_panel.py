"""A panel of agents that judge at the same time. A function joins their answers.

Three reviewers read a proposal concurrently. The model of one reviewer is out of reach, so the run fails. A new
workflow object resumes the thread. It asks only that reviewer, because the answers of the others are recorded.

    python examples/concurrent_panel.py

Without a key the agents follow a script. To use a model, set PERDURE_MODEL, such as `openai:gpt-5-mini`, and the key of
its provider (`pip install "perdure[agents]"`).
"""

import asyncio
import os
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from perdure import SqliteCheckpointStorage, Workflow
from perdure.agents import AgentExecutorResponse
from perdure.orchestrations import ConcurrentBuilder
from perdure.testing import ScriptedAgent

PROPOSAL = "Shall we move the shop's prices into a spreadsheet?"
REVIEWERS = {
    "finance": "Yes: it costs nothing.",
    "security": "No: anybody could change a price.",
    "support": "Yes: we could read it while we talk to customers.",
}


@dataclass
class Verdict:
    """The result of the panel."""

    for_it: list[str]
    against: list[str]


def count(results: list[AgentExecutorResponse]) -> Verdict:
    """Join the answers. The workflow calls it once, with all answers in the order of the participants."""
    votes = {result.executor_id: result.agent_response.text.lower().startswith("yes") for result in results}
    return Verdict([name for name, yes in votes.items() if yes], [name for name, yes in votes.items() if not yes])


def reviewer(name: str, log: Path, fails: bool) -> Any:
    model = os.environ.get("PERDURE_MODEL")
    if model is None:
        reply = ConnectionError("its model is out of reach") if fails else REVIEWERS[name]
        return ScriptedAgent(name, [reply], log=log)  # the log gets a line for each request to the model
    from perdure.agents import Agent

    return Agent(model, instructions=f"You speak for {name}. Begin with Yes or No, then one sentence.", name=name)


def panel(storage: SqliteCheckpointStorage, log: Path, out_of_reach: str = "") -> Workflow:
    team = [reviewer(name, log, name == out_of_reach) for name in REVIEWERS]
    return (
        ConcurrentBuilder(name="panel", participants=team, intermediate_output_from="all", checkpoint_storage=storage)
        .with_aggregator(count)
        .build()
    )


async def judge(folder: Path, out_of_reach: str = "", message: str | None = None) -> None:
    async with SqliteCheckpointStorage(folder / "panels.db") as storage:
        result = await panel(storage, folder / "requests.log", out_of_reach).run(message, thread_id="prices")
    for event in result:
        if event.type == "intermediate":
            print(f"  {event.executor_id}: {event.data.text}")
    [verdict] = result.get_outputs()
    print("for it:", ", ".join(verdict.for_it))
    print("against:", ", ".join(verdict.against))


def main() -> None:
    with TemporaryDirectory() as name:
        folder = Path(name)
        try:
            asyncio.run(judge(folder, "support", PROPOSAL))
        except ConnectionError as error:
            print("the first run failed:", error)
            asyncio.run(judge(folder))
        if (folder / "requests.log").exists():
            asked = (folder / "requests.log").read_text().splitlines()
            print("requests to models:", {name: sum(f'"{name}"' in line for line in asked) for name in REVIEWERS})


if __name__ == "__main__":
    main()
