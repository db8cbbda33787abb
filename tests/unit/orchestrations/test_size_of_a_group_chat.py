"""The size of a group chat on disk: each message is stored once for all its receivers and checkpoints."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import pytest
from tests.promises.processes import Place
from tests.schemas import SCHEMAS

from perdure import Workflow
from perdure.orchestrations.group_chat import GroupChatState, OrchestrationState
from perdure.orchestrations.group_chat_builder import GroupChatBuilder
from perdure.testing.scripted import ScriptedAgent

TURNS, KB, NAMES = 40, 1024, ("ann", "bob", "cy")


def speeches(seed: int) -> list[str]:
    """All different, with nothing that could be shared by accident."""
    chance = random.Random(seed)
    return [chance.randbytes(KB // 2).hex() for _ in range(TURNS)]


def chat(storage: Any) -> Workflow:
    def in_turn(state: GroupChatState) -> str:
        return NAMES[state.current_round % 3]

    team = [ScriptedAgent(name, speeches(seed)) for seed, name in enumerate(NAMES)]
    return GroupChatBuilder(
        participants=team, selection_func=in_turn, max_rounds=TURNS, checkpoint_storage=storage
    ).build()


MOST = {"sqlite": 5.3, "file": 5.5, "postgres": 4.7}
"""Times the text. SQLite and files: everything; of the files 0.7 is an index that takes as much for one thread as for
many. PostgreSQL: only rows of commits, since other tests use the schemas again. In a new schema their table grows
by 5.8 times the text, and all tables by 9.2, beyond the 4 times that they take when they are empty. Obsolete rows
of the journal wait for a vacuum."""

ROWS = "SELECT sum(pg_column_size(one)) FROM {s}.commits one"


def size(place: Place) -> int:
    return int(SCHEMAS.fetch(place.folder, ROWS)[0][0]) if place.kind == "postgres" else place.on_disk()


@pytest.mark.parametrize("kind", MOST)
async def test_forty_turns_of_three_agents_take_few_times_their_text(kind: str, tmp_path: Path) -> None:
    place = Place(kind, tmp_path)
    async with place.storage() as storage:
        result = await chat(storage).run("Talk.", thread_id="t")
    assert result.usage == {"input_token_count": TURNS, "output_token_count": TURNS}
    times = size(place) / (TURNS * KB)
    print(f"{kind}: {times:.2f} times the text")
    assert 1 < times <= MOST[kind], f"{times:.2f} times the text"
    async with place.storage() as storage:
        head = await storage.get_latest(thread_id="t")
        assert len(await storage.list_checkpoint_ids(thread_id="t")) > 2 * TURNS, "all of its history is there"
    assert head is not None
    kept = head.executors[GroupChatBuilder.DEFAULT_ORCHESTRATOR_ID].private
    conversation = OrchestrationState.from_dict(kept or {}).conversation
    assert [message.text for message in conversation[1:-1]] == [speeches(turn % 3)[turn // 3] for turn in range(TURNS)]
