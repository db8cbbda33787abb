"""Eight processes that race on twenty threads: every history is one line, with all that was acknowledged, once."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest
from tests.chance import SOAK
from tests.crash.zygote import Zygote
from tests.databases.fixtures import Place
from tests.databases.postgres import Databases
from tests.fleet.acts import read_logs
from tests.fleet.history import problems_of
from tests.fleet.racing import Race
from tests.fleet.working import Work, build

from perdure import PostgresCheckpointStorage, WorkflowRunState
from perdure.stores.postgres.store import PostgresStore


def race(place: Place, folder: Path, seed: int, *, processes: int, threads: int, turns: int) -> Race:
    return Race(
        dsn=place.dsn,
        schema=place.schema,
        folder=str(folder),
        seed=seed,
        processes=processes,
        threads=threads,
        turns=turns,
    )


async def check_histories(place: Place, folder: Path, *, fewest: int) -> None:
    store = PostgresStore(place.dsn, schema=place.schema)
    logs = read_logs(folder)
    problems = [problem for thread_id, log in logs.items() for problem in await problems_of(store, thread_id, log)]
    assert sorted(await store.thread_ids()) == sorted(logs)
    await store.close()
    assert not problems, "\n".join(problems)
    acknowledged = sum(len(log.done) for log in logs.values())
    refused = sum(len(log.refused) for log in logs.values())
    posted = sum(len(log.posted) for log in logs.values())
    print(f"{acknowledged} commits acknowledged, {refused} refused, {posted} posts")
    assert acknowledged > fewest and refused > 0


@pytest.mark.parametrize("round_", range(20 if SOAK else 1))
async def test_eight_processes_that_race_on_twenty_threads_leave_one_line_each(
    harbour: Zygote, postgres_place: Place, tmp_path: Path, seed: int, round_: int
) -> None:
    harbour.life("tests.fleet.racing:live", race(postgres_place, tmp_path, seed, processes=8, threads=20, turns=30))
    await check_histories(postgres_place, tmp_path, fewest=300)


@pytest.mark.parametrize("isolation", ["repeatable read", "serializable"])
async def test_commits_are_correct_at_stricter_isolation_levels(
    harbour: Zygote, postgres_server: Databases, postgres_dsn: str, tmp_path: Path, seed: int, isolation: str
) -> None:
    name = urlsplit(postgres_dsn).path[1:]
    postgres_server.execute(f"ALTER DATABASE {name} SET default_transaction_isolation = '{isolation}'")
    place = Place(postgres_dsn, "perdure")
    harbour.life("tests.fleet.racing:live", race(place, tmp_path, seed, processes=4, threads=5, turns=15))
    await check_histories(place, tmp_path, fewest=50)


@pytest.mark.parametrize("round_", range(20 if SOAK else 1))
async def test_runs_of_four_processes_on_three_threads_are_not_lost_or_repeated(
    harbour: Zygote, postgres_place: Place, tmp_path: Path, seed: int, round_: int
) -> None:
    dsn, schema = postgres_place
    order = Work(dsn=dsn, schema=schema, folder=str(tmp_path), seed=seed, processes=4, threads=3, runs=6)
    harbour.life("tests.fleet.working:live", order)
    outcomes = outcomes_in(tmp_path)
    storage = PostgresCheckpointStorage(dsn, schema=schema)
    for number in range(3):
        thread_id = f"thread {number}"
        latest = await build(storage).run(thread_id=thread_id, takeover=True)  # whatever a conflict left to be done
        head = await storage.get_latest(workflow_name="work", thread_id=thread_id)
        assert head is not None
        words = head.state["words"]
        assert len(words) == len(set(words)), f"{thread_id}: {words}"
        for outcome, _, word, *outputs in (entry for entry in outcomes if entry[1] == thread_id):
            assert outcome != "done" or f"{word} was the {words.index(word) + 1}." in outputs, (outcomes, words)
            assert outcome != "refused" or word not in words, (outcomes, words)
        assert latest.get_final_state() == WorkflowRunState.IDLE
    assert not await storage.verify()
    await storage.close()
    assert len([entry for entry in outcomes if entry[0] == "done"]) > 4


def outcomes_in(folder: Path) -> list[Any]:
    return [entry for file in folder.glob("outcomes-*") for entry in json.loads(file.read_text(encoding="utf-8"))]
