"""A process that waits for a line on stdin, appends to a session, and prints each stored version."""

from __future__ import annotations

import asyncio
import sys

from perdure.agent_workflow.conversations.files import JsonSessionStore
from perdure.agent_workflow.conversations.log import SessionEntry, SessionHead
from perdure.agent_workflow.conversations.sqlite import SqliteSessionStore
from perdure.agent_workflow.conversations.store import SessionStore
from perdure.agents.conversation.message import Message


async def speak(store: SessionStore, name: str, count: int) -> None:
    version = ""
    for number in range(count):
        messages = (Message("user", f"{name} {number} {'.' * 200}"),)
        entry = SessionEntry(thread_id="t", parent=version, messages=messages, execution_id=name)
        version = await store.append("s", entry)
        await store.advance("s", SessionHead(thread_id="t", execution_id=name, version=version))
        print(version, flush=True)


if __name__ == "__main__":
    kind, path, own_name, times = sys.argv[1:]
    print("ready", flush=True)
    sys.stdin.readline()
    asyncio.run(speak({"json": JsonSessionStore, "sqlite": SqliteSessionStore}[kind](path), own_name, int(times)))
