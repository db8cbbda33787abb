"""A draft, a review and an approval in three processes: the first process dies, the last process answers.

Two agents are the nodes of a workflow, whose store is a folder of JSON files. The first process dies while the reviewer
works. The second process starts in the same way. The same id resumes the execution, and the writer, who was done, is
not asked again. Then the execution waits up to two days for an editor. The third process passes the answer. A run with
the id of an ended execution returns its result and asks no agent.

    python examples/durable_review.py

Without a key the agents follow a script. To use a model, set PERDURE_MODEL, such as `openai:gpt-5-mini`, and the key of
its provider (`pip install "perdure[agents]"`).
"""

import asyncio
import os
import subprocess
import sys
from datetime import timedelta
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from perdure import (
    AgentWorkflow,
    AgentWorkflowInstance,
    LatestOnly,
    WorkflowAgentCompletedEvent,
    WorkflowAgentStartedEvent,
    WorkflowApprovalRequestedEvent,
)
from perdure.testing import ScriptedAgent

PLUG = Path("plug-is-pulled")


def agent(name: str, instructions: str, script: list[str]) -> Any:
    model = os.environ.get("PERDURE_MODEL")
    if model is None:
        return ScriptedAgent(name, script)
    from perdure.agents import Agent

    return Agent(model, instructions=instructions, name=name)


def durable_review() -> AgentWorkflowInstance:
    writer = agent("writer", "Write one sentence.", ["Twice a day the moon lifts the sea."])
    reviewer = agent("reviewer", "Make the sentence better.", ["Twice a day the moon lifts the sea, and lets it go."])
    return (
        AgentWorkflow.create()
        .with_name("DurableReview")
        .with_checkpointing()
        .with_json_workflow_store("App_Data/workflows", retention=LatestOnly())
        .add_agent("draft", writer, lambda node: node.with_output_key("draft"))
        .add_agent(
            "review",
            reviewer,
            lambda node: node.with_input_key("draft").requires_approval("Publish?", timeout=timedelta(days=2)),
        )
        .from_("draft")
        .to("review")
        .when_not_empty("draft")
        .build()
    )


# ---------------------------------------------------------------- one process


def die_once() -> None:
    if not PLUG.exists():
        PLUG.touch()
        os._exit(9)  # no cleanup, as with SIGKILL


async def write() -> None:
    async for event in durable_review().stream("Write about tides", execution_id="tides-1"):
        match event:
            case WorkflowAgentStartedEvent(agent_id=node):
                print(f"  {node} begins")
                if node == "review":
                    die_once()
            case WorkflowAgentCompletedEvent(agent_id=node, outputs=outputs):
                print(f"  {node} is done: {', '.join(outputs)}")
            case WorkflowApprovalRequestedEvent(message=message, agent_id=node, outputs=outputs):
                print(f"  {message} {node} says: {outputs['answer']}")


async def approve() -> None:
    workflow = durable_review()
    [request] = await workflow.pending("tides-1")
    result = await workflow.approve(request.request_id, reason="Lovely.")
    print(f"  {result.state}: {result.final_answer}")
    again = await workflow.run("Write about tides", execution_id="tides-1")
    print(f"  asked again: {again.final_answer}")


# ---------------------------------------------------------------- the processes


def run(folder: str, what: str) -> bool:
    done = subprocess.run(
        [sys.executable, "-u", __file__, what], cwd=folder, stdout=subprocess.PIPE, text=True, check=False
    )
    print(done.stdout, end="")
    return done.returncode == 0


def main() -> None:
    with TemporaryDirectory() as folder:
        print("write about tides:")
        while not run(folder, "write"):
            print("the process died; another one resumes:")
        print("the next day, the editor:")
        run(folder, "approve")


if __name__ == "__main__":
    if len(sys.argv) == 1:
        main()
    else:
        asyncio.run({"write": write, "approve": approve}[sys.argv[1]]())
