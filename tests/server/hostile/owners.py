"""Two users: the first has threads, and the second must not see any of their content."""

from __future__ import annotations

import secrets
from typing import Any
from urllib.parse import quote

import httpx
from tests.server.hostile.in_process import client_of
from tests.server.hostile.table import Ids

from perdure.server import ServerApp


class Owner:
    """A user with a conversation, a thread that asks, a thread that runs, a pin, and a mark in all of them."""

    def __init__(self, app: ServerApp, user_id: str) -> None:
        self.app = app
        self.user_id = user_id
        self.client = client_of(app, user_id)
        self.mark = f"mark{secrets.token_hex(8)}"
        """A text in all content of this user, and in no content of any other user."""
        self.chat = self.asking = Ids("", "", "", "", "", "")
        self.running = ""

    async def settle(self, chat: str = "chat", asking: str = "asking", running: str = "running") -> None:
        client = self.client
        turn = {"messages": [{"role": "user", "content": self.mark, "message_id": f"m-{secrets.token_hex(4)}"}]}
        turn["config"] = {"thread_id": chat, "thread_name": self.mark}  # type: ignore[assignment]  # JSON
        invoked = done(await client.post("/v1/graph/invoke", json=turn))
        done(await client.patch(_at(chat, "/state"), json={"update_state": {"note": self.mark}}))
        done(await client.post(_at(chat, "/pin"), json={}))
        self.chat = await self._ids(chat, invoked["meta"]["run_id"], "", str(turn["messages"][0]["message_id"]))
        asked = done(await client.post(_at(asking, "/runs?wait=10"), json={"input": self.mark, "workflow": "ask"}))
        request = asked["run"]["requests"][0]["request_id"]
        self.asking = await self._ids(asking, asked["run"]["run_id"], request, "m0")
        began = done(await client.post(_at(running, "/runs"), json={"input": self.mark, "workflow": "waiting"}))
        self.running = began["run"]["run_id"]
        done(await client.get(_at(running, "")))  # what was accepted is stored

    async def _ids(self, thread: str, run: str, request: str, message: str) -> Ids:
        newest = done(await self.client.get(_at(thread, "/checkpoints")))["checkpoints"][0]
        exported = (await self.client.post(_at(thread, "/export"))).text
        return Ids(thread, newest["checkpoint_id"], run, request, message, exported)

    async def stored(self) -> dict[str, Any]:
        """Returns all records of this user in the store."""
        store, prefix = self.app.service.storage.store, f"{quote(self.user_id, safe='')}/"
        kept: dict[str, Any] = {"pending": await store.pending_requests(prefix=prefix)}
        for thread_id in await store.thread_ids(prefix=prefix):
            kept[thread_id] = (
                await store.threads(thread_id=thread_id),
                await store.thread_header(thread_id),
                list(await store.commits(thread_id)),
                list(await store.infos(thread_id=thread_id)),
                list(await store.events_after(thread_id, None)),
            )
        return kept

    async def leave(self) -> None:
        await self.client.aclose()


def _at(thread: str, rest: str) -> str:
    return f"/v1/threads/{quote(thread, safe='')}{rest}"


def done(answer: httpx.Response) -> Any:
    assert answer.status_code in (200, 201, 202), answer.text
    return answer.json()["data"]
