"""A chat that survives its processes: each turn is a process of its own, and one process dies during a turn.

The team is a clerk who books and an editor who shortens the answer. The team is used as an agent, and its session is a
thread in the database. The process of the second turn dies while a tool runs. The next process resumes the thread and
needs no message. The replies of the models and the first booking are recorded. Only the call that was interrupted runs
again, with the same idempotency key.

    python examples/durable_chat.py

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

from perdure import SqliteCheckpointStorage
from perdure.agents import AgentSession, ToolContext, WorkflowAgent
from perdure.orchestrations import SequentialBuilder
from perdure.testing import Call, ScriptedAgent

PLUG = Path("plug-is-pulled")


def book(what: str, ctx: ToolContext) -> str:
    """Book a train or a room."""
    print(f"  [books the {what}]")
    if what == "room" and not PLUG.exists():
        PLUG.touch()
        os._exit(9)  # no cleanup, as with SIGKILL; a real tool passes ctx.idempotency_key to the hotel
    return f"the {what} is booked"


# ---------------------------------------------------------------- the team

CLERK = [
    "Gladly. For which day do you need the train and the room?",
    Call("book", {"what": "train"}),
    Call("book", {"what": "room"}),
    "I have booked the train and the room for Monday, as you wished.",
    "You are going on Monday, by train, and have a room.",
]
EDITOR = ["Which day?", "Train and room are booked for Monday.", "Monday, by train, with a room."]


def agent(name: str, instructions: str, tools: list[Any], script: list[Any]) -> Any:
    model = os.environ.get("PERDURE_MODEL")
    if model is None:
        return ScriptedAgent(name, script, tools=tools)
    from perdure.agents import Agent

    return Agent(model, instructions=instructions, tools=tools, name=name)


def team(storage: SqliteCheckpointStorage) -> WorkflowAgent:
    clerk = agent("clerk", "Help with travels. Ask for the day, then book train and room, one by one.", [book], CLERK)
    editor = agent("editor", "Say what the clerk said in at most eight words.", [], EDITOR)
    builder = SequentialBuilder(participants=[clerk, editor], name="travel", checkpoint_storage=storage)
    return builder.build().as_agent()


# ---------------------------------------------------------------- one process


async def take_turn(text: str | None) -> None:
    async with SqliteCheckpointStorage("chats.db") as storage:
        stream = team(storage).run(text, session=AgentSession(session_id="my-trip"), stream=True)
        before = "team: "
        async for update in stream:
            if update.text:
                print(before, update.text, sep="", end="")
                before = ""
        print()


# ---------------------------------------------------------------- the user, and a process for each turn


def run(folder: str, *text: str) -> bool:
    done = subprocess.run(
        [sys.executable, "-u", __file__, "turn", *text], cwd=folder, stdout=subprocess.PIPE, text=True, check=False
    )
    print(done.stdout, end="")
    return done.returncode == 0


def main() -> None:
    with TemporaryDirectory() as folder:
        for text in ("I have to travel to Trieste.", "On Monday.", "Remind me: when, and how?"):
            print("you:", text)
            while not run(folder, text):
                print("  (the process died; another one resumes)")
                text = ""


if __name__ == "__main__":
    if len(sys.argv) == 1:
        main()
    else:
        asyncio.run(take_turn(" ".join(sys.argv[2:]) or None))
