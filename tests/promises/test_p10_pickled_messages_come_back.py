"""Messages that wait in a checkpoint come back whatever codec wrote them: also one that makes a single piece of all."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
from tests.promises.processes import STORAGES
from tests.promises.stages import Boom, Stage, fan

from perdure import PickleSerializer


@pytest.mark.parametrize("kind", STORAGES)
async def test_thread_with_pickled_pending_messages_is_listed_and_resumed(kind: str, tmp_path: Path) -> None:
    with pytest.warns(UserWarning, match="[Pp]ickle"):
        serializer = PickleSerializer()
    stage = Stage()
    stage.failing = {"b"}
    async with STORAGES[kind](tmp_path, serializer=serializer) as storage:
        with pytest.raises(Boom):
            await fan(stage, storage).run("x", thread_id="t")
        pending = [checkpoint for checkpoint in await storage.list_checkpoints(thread_id="t") if checkpoint.messages]
        assert "x-source" in [message.data for sent in pending[-1].messages.values() for message in sent]
        stage.failing.clear()
        resumed = await asyncio.wait_for(fan(stage, storage).run(thread_id="t"), 60)
        assert resumed.get_outputs() == ["x-source-a+x-source-b+x-source-c"]
