"""Eight processes that race on twenty threads: every history is one line, with all that was acknowledged, once."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.conftest import SOAK
from tests.crash.zygote import Zygote
from tests.fleet.acts import read_logs
from tests.fleet.history import problems_of
from tests.fleet.racing import Race
from tests.servers.fixtures import Place

from holdfast.stores.postgres import PostgresStore

THREADS = 20


async def check_histories(place: Place, folder: Path, *, fewest: int) -> None:
    store = PostgresStore(place.dsn, schema=place.schema)
    told = read_logs(folder)
    problems = [problem for thread_id, one in told.items() for problem in await problems_of(store, thread_id, one)]
    assert sorted(await store.thread_ids()) == sorted(told)
    await store.close()
    assert not problems, "\n".join(problems)
    acknowledged = sum(len(one.done) for one in told.values())
    refused = sum(len(one.refused) for one in told.values())
    print(f"{acknowledged} commits acknowledged, {refused} refused, {sum(len(o.posted) for o in told.values())} posts")
    assert acknowledged > fewest and refused > 0


@pytest.mark.parametrize("round_", range(20 if SOAK else 1))
async def test_eight_processes_that_race_on_twenty_threads_leave_one_line_each(
    harbour: Zygote, postgres_place: Place, tmp_path: Path, seed: int, round_: int
) -> None:
    order = Race(
        dsn=postgres_place.dsn,
        schema=postgres_place.schema,
        folder=str(tmp_path),
        seed=seed,
        processes=8,
        threads=THREADS,
        turns=30,
    )
    harbour.life("tests.fleet.racing:live", order)
    await check_histories(postgres_place, tmp_path, fewest=300)
