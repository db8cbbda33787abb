"""A team that researches and writes by a plan: it pauses for a review of the plan, and another process continues.

The manager makes a plan in the first process, which prints it and exits. After the review, another process returns the
plan with a remark or approves it. That process knows only the folder of the checkpoints. Then the team works. No model
is asked twice for the same reply.

    python examples/research_team.py

Without a key the agents follow a script. To use a model, set PERDURE_MODEL, such as `openai:gpt-5-mini`, and the key of
its provider (`pip install "perdure[agents]"`).
"""

import asyncio
import os
import subprocess
import sys
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from perdure import FileCheckpointStorage, Workflow, WorkflowRunState
from perdure.agents import Message, tool
from perdure.orchestrations import MagenticBuilder, MagenticPlanReviewRequest
from perdure.testing import Call, ScriptedAgent

TASK = "Draft a brief for sailors: when is it safe to enter the harbour of Port-en-Bessin?"
REMARK = "Have the times checked before anything is written."


@tool
def tide_table(harbour: str) -> str:
    """The times of high water."""
    print(f"  [the tide table of {harbour} is read]")
    return "high water 06:10 and 18:35; the gate opens two hours before, and closes two hours after"


# ---------------------------------------------------------------- the team


def play_manager(messages: list[Message]) -> Any:
    """The script of the manager. The last message is the question, the others show the progress of the team."""
    asked, remarks = messages[-1].text, sum(message.text == REMARK for message in messages)
    speakers = [message.author_name for message in messages]
    if "lists" in asked:
        return "GIVEN: the harbour. TO LOOK UP: the times of high water."
    if "list of steps" in asked:
        steps = ["researcher: find the times", "writer: write the brief"]
        return "\n".join([steps[0], "researcher: check them", steps[1]] if remarks else steps)
    if "JSON" not in asked:
        return next(message.text for message in reversed(messages) if message.author_name == "writer")
    if "writer" in speakers:
        return judgement(is_done=True)
    if speakers.count("researcher") == 2:
        return judgement("writer", "Write the brief, two sentences.")
    return judgement("researcher", "Check these times." if "researcher" in speakers else "Find the times.")


def judgement(speaker: str = "", instruction: str = "", *, is_done: bool = False) -> dict[str, Any]:
    answers: dict[str, Any] = {
        "is_request_satisfied": is_done,
        "is_in_loop": False,
        "is_progress_being_made": True,
        "next_speaker": speaker,
        "instruction_or_question": instruction,
    }
    return {name: {"reason": "", "answer": answer} for name, answer in answers.items()}


ROLES: dict[str, dict[str, Any]] = {
    "manager": {
        "description": "Plans the work and judges how it goes.",
        "instructions": "You lead a small team. Keep plans short.",
        "tools": [],
        "script": play_manager,
    },
    "researcher": {
        "description": "Finds facts, and checks them.",
        "instructions": "Find the facts that you are asked for, with your tools. Answer in one sentence.",
        "tools": [tide_table],
        "script": [
            Call("tide_table", {"harbour": "Port-en-Bessin"}),
            "High water is at 06:10 and 18:35; the gate is open for two hours on either side.",
            "Checked: 04:10 to 08:10, and 16:35 to 20:35.",
        ],
    },
    "writer": {
        "description": "Writes texts.",
        "instructions": "Write what you are asked for, from what the others found. Plain and short.",
        "tools": [],
        "script": ["Enter from 04:10 to 08:10, or from 16:35 to 20:35. At other times the gate is shut."],
    },
}


def agent(name: str) -> Any:
    role, model = ROLES[name], os.environ.get("PERDURE_MODEL")
    if model is None:
        return ScriptedAgent(name, role["script"], tools=role["tools"], description=role["description"])
    from perdure.agents import Agent

    return Agent(
        model, name=name, instructions=role["instructions"], tools=role["tools"], description=role["description"]
    )


def build_workflow(storage: FileCheckpointStorage) -> Workflow:
    return MagenticBuilder(
        participants=[agent("researcher"), agent("writer")],
        manager_agent=agent("manager"),
        enable_plan_review=True,
        checkpoint_storage=storage,
        name="research-team",
        max_round_count=10,
    ).build()


# ---------------------------------------------------------------- one process


async def start() -> None:
    async with FileCheckpointStorage(Path("checkpoints")) as storage:
        await show(build_workflow(storage).run(TASK, stream=True))


async def review(remark: str | None) -> None:
    """Continue from the newest checkpoint, with the answer to its request."""
    async with FileCheckpointStorage(Path("checkpoints")) as storage:
        workflow = build_workflow(storage)
        checkpoint = await storage.get_latest(workflow_name=workflow.name)
        if checkpoint is None:
            sys.exit("Nothing waits for a review here: start first.")
        [request] = [event.data for event in checkpoint.pending_request_info_events.values()]
        answer = request.approve() if remark is None else request.revise(remark)
        await show(
            workflow.run(checkpoint_id=checkpoint.checkpoint_id, responses={request.request_id: answer}, stream=True)
        )


async def show(events: Any) -> None:
    async for event in events:
        if event.type == "request_info" and isinstance(event.data, MagenticPlanReviewRequest):
            plan = event.data.plan.text.partition("The plan:")[2].strip()
            print("  the plan:", *plan.splitlines(), sep="\n    ")
        elif event.type == "magentic_orchestrator" and event.data.event_type == "progress_ledger_updated":
            ledger = event.data.content
            if not ledger.is_request_satisfied.answer:
                print(f"  manager to {ledger.next_speaker.answer}: {ledger.instruction_or_question.answer}")
        elif event.type == "output":
            print(f"  the answer: {event.data.text}")
        elif event.state == WorkflowRunState.IDLE_WITH_PENDING_REQUESTS:
            print("  waits for a review")


# ---------------------------------------------------------------- a process for each act


def main() -> None:
    with TemporaryDirectory() as folder:
        for what, remark in (("start", ""), ("revise", REMARK), ("approve", "")):
            print(f"a process to {what}{f': {remark}' if remark else ''}")
            done = subprocess.run(
                [sys.executable, __file__, what, remark], cwd=folder, stdout=subprocess.PIPE, text=True, check=True
            )
            print(done.stdout, end="")


if __name__ == "__main__":
    if len(sys.argv) == 1:
        main()
    elif sys.argv[1] == "start":
        asyncio.run(start())
    else:
        asyncio.run(review(sys.argv[2] or None))
