"""Messages that are sent while their run is still opening its thread: that run delivers them, in their turn."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from tests.promises.processes import STORAGES
from tests.unit.engine.flows import alone

from perdure import Workflow, WorkflowContext
from perdure.checkpoints.storage import StoreCheckpointStorage
from perdure.testing import Faults


@pytest.fixture(params=STORAGES)
async def storage(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[StoreCheckpointStorage]:
    made = STORAGES[request.param](tmp_path)
    yield made
    await made.close()


def taking(taken: list[str], storage: Any) -> Workflow:
    async def take(message: str, ctx: WorkflowContext[Any, Any]) -> None:
        taken.append(message)

    return alone(take, checkpoint_storage=storage)


@pytest.mark.parametrize("when", ["before", "after"])
async def test_run_delivers_messages_sent_while_the_store_opens_its_thread(
    when: Any, storage: StoreCheckpointStorage
) -> None:
    faults, taken = Faults(), list[str]()
    with faults.pause("open", when=when) as pause:
        async with taking(taken, faults.wrap(storage)).open(thread_id="t") as run:
            await run.send("one")
            await pause
            await run.send("two")
            await run.send("three")
            pause.resume()
            await run.wait()
            assert taken == ["one", "two", "three"]
            await run.send("four")
            await run.wait()
    assert taken == ["one", "two", "three", "four"]


async def test_message_delivered_by_another_run_meanwhile_is_not_delivered_again(
    storage: StoreCheckpointStorage,
) -> None:
    faults, mine, others = Faults(), list[str](), list[str]()
    with faults.pause("open") as pause:
        async with taking(mine, faults.wrap(storage)).open(thread_id="t") as run:
            await run.send("one")
            await pause
            await taking(others, storage).run(thread_id="t")
            pause.resume()
            await run.send("two")
            await run.wait()
    assert (others, mine) == (["one"], ["two"])
