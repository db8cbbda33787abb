"""A group chat in which an agent names the next speaker, and which continues with the next question.

A writer, a critic and a lawyer work on an announcement. The chair reads all messages, names the next speaker, and ends
the chat. A new workflow object, as in a restarted service, receives a second question. It continues the same
conversation, and each agent receives only the messages that are new to it.

    python examples/group_chat.py

Without a key the agents follow a script. To use a model, set PERDURE_MODEL, such as `openai:gpt-5-mini`, and the key of
its provider (`pip install "perdure[agents]"`).
"""

import asyncio
import os
from tempfile import TemporaryDirectory
from typing import Any

from perdure import SqliteCheckpointStorage, Workflow
from perdure.orchestrations import GroupChatBuilder
from perdure.testing import ScriptedAgent


def next_is(name: str) -> dict[str, Any]:
    return {"terminate": False, "reason": "", "next_speaker": name, "final_message": None}


def ends_with(text: str) -> dict[str, Any]:
    return {"terminate": True, "reason": "", "next_speaker": None, "final_message": text}


ROLES: dict[str, dict[str, Any]] = {
    "writer": {
        "description": "Writes the text, and rewrites it when others find fault.",
        "script": ["The kettle that never burns you.", "A kettle that stays cool.", "Our cool kettle: now in blue."],
    },
    "critic": {
        "description": "Says in one sentence whether the text is good.",
        "script": ["Strong, but is it true?"],
    },
    "lawyer": {
        "description": "Says in one sentence what the text must not promise.",
        "script": ["Never is a promise that we cannot keep."],
    },
}
CHAIR = [
    *map(next_is, ["writer", "critic", "lawyer", "writer"]),
    ends_with("Settled: 'A kettle that stays cool.'"),
    next_is("writer"),
    ends_with("Settled: 'Our cool kettle: now in blue.'"),
]


def agent(name: str, description: str, script: list[Any]) -> Any:
    model = os.environ.get("PERDURE_MODEL")
    if model is None:
        return ScriptedAgent(name, script, description=description)
    from perdure.agents import Agent

    return Agent(model, instructions=f"You are the {name}. {description}", name=name, description=description)


def chat(storage: SqliteCheckpointStorage) -> Workflow:
    return GroupChatBuilder(
        name="announcement",
        participants=[agent(name, **role) for name, role in ROLES.items()],
        orchestrator_agent=agent("chair", "Leads the chat: first a text, then opinions, then a better text.", CHAIR),
        max_rounds=8,
        intermediate_output_from="all",
        checkpoint_storage=storage,
    ).build()


async def ask(text: str, storage: SqliteCheckpointStorage) -> None:
    print("asked:", text)
    result = await chat(storage).run(text, thread_id="kettle")
    for event in result.outputs:
        [message] = event.data.messages
        print(f"  {message.author_name}: {message.text}")


async def main() -> None:
    with TemporaryDirectory() as folder:
        async with SqliteCheckpointStorage(f"{folder}/chats.db") as storage:
            await ask("Announce our new kettle in one sentence.", storage)
        async with SqliteCheckpointStorage(f"{folder}/chats.db") as storage:
            await ask("It comes in blue too.", storage)


if __name__ == "__main__":
    asyncio.run(main())
