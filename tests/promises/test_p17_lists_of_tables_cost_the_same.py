"""Promise 17 in PostgreSQL: lists cost the same with 100 or 10,000 stored, counted in pages that it looks at."""

from __future__ import annotations

import asyncio
import json
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import asyncpg
import pytest
from tests.promises.processes import Place
from tests.promises.test_p17_lists_cost_the_same_whatever_is_stored import LISTS, SHAPES, Call, expected_lengths, filled
from tests.schemas import SCHEMAS

from perdure.checkpoints.storage import StoreCheckpointStorage

PAGES_OF_A_ROW, PAGES_BESIDE = 8, 40
"""What a list may look at however much is stored: its rows, found through the indexes of commits, threads and pins. A
table that is small is read as a whole, which takes less."""
BLOCKS = ("Shared Hit Blocks", "Shared Read Blocks", "Temp Read Blocks")


class Asked:
    """What a storage asks PostgreSQL: each statement with its parameters."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.all: list[tuple[str, tuple[Any, ...]]] = []
        self.connections: list[asyncpg.Connection[Any]] = []
        connect = asyncpg.connect

        async def connect_and_log(*arguments: Any, **more: Any) -> Any:
            made = await connect(*arguments, **more)
            made.add_query_logger(lambda record: self.all.append((record.query, record.args)))
            self.connections.append(made)
            return made

        monkeypatch.setattr(asyncpg, "connect", connect_and_log)

    async def blocks(self, call: Call, storage: StoreCheckpointStorage) -> int:
        """How many pages the server looks at for it."""
        self.all.clear()
        await call(storage)
        await asyncio.sleep(0)  # the query logger runs now
        asked, looked_at = [statement for statement in self.all if not statement[0].startswith("EXPLAIN")], 0
        for query, parameters in asked:
            [(plan,)] = await self.connections[-1].fetch(
                f"EXPLAIN (ANALYZE, BUFFERS, FORMAT JSON) {query}", *parameters
            )
            looked_at += sum(json.loads(plan)[0]["Plan"][name] for name in BLOCKS)
        assert asked and looked_at > 0
        return looked_at


@SHAPES
async def test_lists_of_tables_cost_the_same_with_100_or_10_000_stored(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, in_own_threads: bool
) -> None:
    """Before PostgreSQL has looked at what is in its tables, and after that."""
    done: dict[str, dict[int, dict[str, int]]] = {"new": {}, "analysed": {}}
    async with AsyncExitStack() as stack:
        for count in (100, 10_000):
            here = Place("postgres", tmp_path / f"{count}")
            SCHEMAS.drop(here.folder)  # rows of others that are gone would be looked at
            asked = Asked(monkeypatch)
            storage = await stack.enter_async_context(here.storage())
            await filled(storage, count, here, in_own_threads=in_own_threads)
            assert [len(await call(storage)) for call in LISTS.values()] == expected_lengths(
                in_own_threads=in_own_threads
            )
            done["new"][count] = {name: await asked.blocks(call, storage) for name, call in LISTS.items()}
            for table in ("commits", "threads"):
                SCHEMAS.fetch(here.folder, f"ANALYZE {{s}}.{table}")
            done["analysed"][count] = {name: await asked.blocks(call, storage) for name, call in LISTS.items()}
    more = {
        f"{name}, {when}": f"{few[100][name]} -> {many} pages"
        for when, few in done.items()
        for (name, many), rows in zip(few[10_000].items(), expected_lengths(in_own_threads=in_own_threads), strict=True)
        if many > max(1.5 * few[100][name], PAGES_OF_A_ROW * rows + PAGES_BESIDE)
    }
    assert more == {}
