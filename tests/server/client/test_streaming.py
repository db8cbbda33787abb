"""A streamed turn starts once and reaches its end without gap or repeat, whatever breaks on the way."""

from __future__ import annotations

import asyncio
import json
import random
from collections.abc import AsyncIterator
from contextlib import aclosing
from typing import Any

import msgspec
import pytest
from tests.chance import draw_seed
from tests.server.client.cutting import CuttingProxy
from tests.server.serving import Server, eventually

from perdure.client import Chunk, Client, Event, Patience, RunFailed, SyncClient

QUICK = Patience(first_wait=0.02, longest_wait=0.1, seconds=15)
VOLATILE = {"checkpoint_id", "previous_checkpoint_id", "timestamp", "run_id", "thread_id"}
TURNS = 4


def plain(value: Any) -> Any:
    """Returns the value without the keys that differ from run to run."""
    if isinstance(value, dict):
        return {key: plain(item) for key, item in value.items() if key not in VOLATILE}
    return [plain(item) for item in value] if isinstance(value, list) else value


def committed(chunks: list[Chunk]) -> list[Any]:
    return [(chunk.seq, chunk.event, unnamed(chunk), plain(chunk.data)) for chunk in chunks if chunk.seq is not None]


def unnamed(chunk: Chunk) -> Any:
    """Returns the message of the chunk. Its id is without the run's id, which differs for each run."""
    message = chunk.message
    if message is None or not isinstance(message.message_id, str):
        return message
    return msgspec.structs.replace(message, message_id=message.message_id.replace(chunk.run_id or "", ""))


def assert_is_whole(chunks: list[Chunk], text: str) -> None:
    seqs = [chunk.seq for chunk in chunks if chunk.seq is not None]
    assert sorted(set(seqs)) == list(range(1, max(seqs) + 1)), "a gap"
    assert seqs == sorted(seqs)
    texts = [chunk.text for chunk in chunks if chunk.message is not None]
    over = json.dumps({"over": text, "numbers": [1, 2.5, None]}, separators=(",", ":"))
    assert texts == [*(f"{text}, part {part}" for part in range(3)), over, f"{text} is over"]
    assert chunks[-1].status == "done"
    assert chunks[-1].data["state"] == "IDLE"


def times_begun(server: Server, text: str) -> int:
    return (server.folder / "begun").read_text(encoding="utf-8").splitlines().count(text)


def killed_and_started(server: Server, text: str) -> None:
    eventually((server.folder / f"{text}.here").exists)
    server.kill()
    server.begin()
    (server.folder / f"{text}.open").touch()


def has_passed(chunk: Chunk, iteration: int) -> bool:
    data = chunk.data if isinstance(chunk.data, dict) else {}
    return data.get("type") == "superstep_completed" and data.get("iteration") == iteration


async def test_stream_continues_after_the_server_is_killed_and_restarted(server: Server) -> None:
    chunks: list[Chunk] = []
    async with Client(server.url, patience=QUICK) as client:
        async for chunk in client.stream("gate async"):
            chunks.append(chunk)
            if has_passed(chunk, 1):
                await asyncio.to_thread(killed_and_started, server, "gate async")
    assert_is_whole(chunks, "gate async")
    assert "reconnected" in [received.status for received in chunks]
    assert times_begun(server, "gate async") == 1


def test_sync_stream_continues_after_the_server_is_killed_and_restarted(server: Server) -> None:
    chunks: list[Chunk] = []
    with SyncClient(server.url, patience=QUICK) as client:
        for chunk in client.stream("gate sync"):
            chunks.append(chunk)
            if has_passed(chunk, 1):
                killed_and_started(server, "gate sync")
    assert_is_whole(chunks, "gate sync")
    assert times_begun(server, "gate sync") == 1


async def test_stream_is_the_same_through_connections_cut_at_any_byte(server: Server) -> None:
    chance = random.Random(draw_seed())
    async with Client(server.url) as direct:
        wanted = [chunk async for chunk in direct.stream("uncut")]
    with CuttingProxy(server.port, chance) as proxy:
        async with Client(proxy.url, patience=QUICK) as client:
            for turn in range(TURNS):
                proxy.cuts = chance.randrange(1, 6)
                thread_id = f"cut async {turn}" if turn % 2 else None
                got = [chunk async for chunk in client.stream("uncut", thread_id=thread_id)]
                assert committed(got) == committed(wanted)
                assert got[-1].status == "done"
    assert proxy.has_cut >= TURNS
    assert times_begun(server, "uncut") == TURNS + 1


def test_sync_stream_is_the_same_through_connections_cut_at_any_byte(server: Server) -> None:
    chance = random.Random(draw_seed())
    with SyncClient(server.url) as direct:
        wanted = list(direct.stream("sync uncut"))
    with CuttingProxy(server.port, chance) as proxy, SyncClient(proxy.url, patience=QUICK) as client:
        for turn in range(TURNS):
            proxy.cuts = chance.randrange(1, 6)
            got = list(client.stream("sync uncut", thread_id=f"cut sync {turn}" if turn % 2 else None))
            assert committed(got) == committed(wanted)
    assert times_begun(server, "sync uncut") == TURNS + 1


async def test_events_are_the_same_through_cut_connections(server: Server) -> None:
    chance = random.Random(draw_seed())
    async with Client(server.url) as direct:
        await direct.invoke("counted", thread_id="counted")
        wanted = await until_idle(direct, "counted")
        assert [event.seq for event in wanted] == list(range(1, len(wanted) + 1))
        with CuttingProxy(server.port, chance, cuts=12, most_bytes=6000) as proxy:
            async with Client(proxy.url, patience=QUICK) as client:
                for _ in range(4):
                    assert await until_idle(client, "counted") == wanted
    assert proxy.has_cut


async def until_idle(client: Client, thread_id: str) -> list[Event]:
    received: list[Event] = []
    async with aclosing(client.events(thread_id, live=False)) as events:
        async for event in events:
            received.append(event)
            if event.state == "IDLE":
                break
    return received


async def collect(chunks: AsyncIterator[Chunk], into: list[Chunk]) -> None:
    async for chunk in chunks:
        into.append(chunk)


async def test_stream_of_a_failed_run_yields_its_end_and_then_raises(server: Server) -> None:
    for cuts in (0, 3):
        with CuttingProxy(server.port, random.Random(draw_seed()), cuts=cuts) as proxy:
            async with Client(proxy.url, patience=QUICK) as client:
                chunks: list[Chunk] = []
                with pytest.raises(RunFailed, match="RuntimeError: as told"):
                    await collect(client.stream("fail"), chunks)
        assert [chunk.data["message"] for chunk in chunks if chunk.event == "error"] == ["as told"]
        assert chunks[-1].data["state"] == "FAILED"


async def test_stream_fails_over_to_another_server(server: Server) -> None:
    async with Client(["http://127.0.0.1:1", server.url], patience=QUICK) as client:
        chunks = [chunk async for chunk in client.stream("elsewhere")]
    assert_is_whole(chunks, "elsewhere")
    assert times_begun(server, "elsewhere") == 1
