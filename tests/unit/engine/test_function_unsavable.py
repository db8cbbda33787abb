"""Values that a function workflow cannot store: the run fails and names the value, or continues with a warning."""

from __future__ import annotations

import asyncio
import logging
from typing import Any

import pytest
from tests.unit.engine.function_flows import THREAD, Calls, answer, begin, questions, raising, resume

from perdure import InMemoryCheckpointStorage, RunContext, UnsavableValue, get_run_context, workflow
from perdure.checkpoints.storage import StoreCheckpointStorage
from perdure.errors import StorageFailed
from perdure.records import JournalEntry, Lease
from perdure.stores.memory.store import MemoryStore
from perdure.testing import Faults


class Socket:
    """No data: it cannot be stored."""

    def __init__(self) -> None:
        self.lock = asyncio.Lock()


async def test_a_result_that_cannot_be_stored_fails_the_run_and_names_the_step() -> None:
    calls, storage = Calls(), InMemoryCheckpointStorage()
    connect = calls.step(lambda _: {"socket": Socket()}, name="connect")

    @workflow
    async def flow(_: str) -> str:
        try:
            await connect(1)
        except Exception:  # noqa: BLE001  # whatever the function does with it, the run must not continue unsaved
            return "went on"
        return "fine"

    with pytest.raises(UnsavableValue, match="'connect'"):
        await begin(flow, storage)


async def test_without_a_storage_a_result_may_be_any_object() -> None:
    connect = Calls().step(lambda _: Socket())

    @workflow
    async def flow(_: str, ctx: RunContext) -> str:
        connection = await connect(1)
        await ctx.request_info("go on?", str)
        return type(connection).__name__

    built = flow.build()
    asked = await built.run("go", thread_id=THREAD)
    responses = dict.fromkeys(questions(asked).values(), "y")
    assert (await built.run(responses=responses, thread_id=THREAD)).get_outputs() == ["Socket"]


async def test_unsavable_state_set_in_a_step_fails_and_names_its_key() -> None:
    def set_it(_: Any) -> None:
        context = get_run_context()
        assert context is not None
        context.set_state("socket", Socket())

    keep = Calls().step(set_it)

    @workflow
    async def flow(_: str) -> None:
        await keep(1)

    with pytest.raises(UnsavableValue, match=r"state\['socket'\]"):
        await begin(flow, InMemoryCheckpointStorage())


class OddError(Exception):
    def __init__(self, socket: Socket) -> None:
        super().__init__("odd")
        self.socket = socket


async def test_step_whose_error_cannot_be_stored_warns_and_is_called_again(
    caplog: pytest.LogCaptureFixture,
) -> None:
    calls, storage = Calls(), InMemoryCheckpointStorage()
    odd = calls.step(raising(OddError(Socket())), name="odd")

    @workflow
    async def flow(_: str, ctx: RunContext) -> str:
        try:
            await odd(1)
        except OddError as error:
            return f"caught {error}, {await ctx.request_info('go on?', str)}"
        return "never"

    with caplog.at_level(logging.WARNING, "perdure"):
        asked = await begin(flow, storage)
    assert any("'odd'" in record.getMessage() for record in caplog.records)
    assert (await answer(flow, storage, asked, {"go on?": "y"})).get_outputs() == ["caught odd, y"]
    assert calls == [1, 1]


class Refused(Exception):
    def __init__(self, reason: str) -> None:
        super().__init__(f"refused: {reason}")
        self.reason = reason


async def test_custom_error_is_restored_with_its_type_and_attributes() -> None:
    calls, storage = Calls(), InMemoryCheckpointStorage()
    ask = calls.step(raising(Refused("too dear")))

    @workflow
    async def flow(_: str, ctx: RunContext) -> str:
        try:
            await ask(1)
        except Refused as error:
            await ctx.request_info("go on?", str)
            return error.reason
        return "never"

    assert (await answer(flow, storage, await begin(flow, storage), {"go on?": "y"})).get_outputs() == ["too dear"]
    assert calls == [1]


class FullDisk(MemoryStore):
    """Refuses the first entry of the journal."""

    is_full = True

    async def append_journal(self, lease: Lease, entry: JournalEntry) -> None:
        if self.is_full:
            self.is_full = False
            raise OSError("disk full")
        await super().append_journal(lease, entry)


async def test_failing_journal_fails_the_run_and_not_the_step() -> None:
    calls, storage = Calls(), StoreCheckpointStorage(FullDisk())
    pay, refund = calls.step(name="pay"), calls.step(name="refund")

    @workflow
    async def flow(_: str) -> str:
        try:
            await pay("pay")
        except Exception:  # noqa: BLE001  # as users write it around a step
            await refund("refund")
            return "refunded"
        return "paid"

    with pytest.raises(StorageFailed, match="disk full"):
        await begin(flow, storage)
    assert (await resume(flow, storage)).get_outputs() == ["paid"]
    assert calls == ["pay", "pay"]  # it was not recorded


async def test_failing_journal_inside_a_step_is_not_recorded_as_its_failure() -> None:
    calls, storage = Calls(), StoreCheckpointStorage(FullDisk())
    inner, outer = calls.step(name="inner"), calls.step(name="outer")

    async def both(_: int) -> str:
        return f"outer {await inner(1)}"

    outer.function = both

    @workflow
    async def flow(_: str) -> Any:
        return await outer(2)

    with pytest.raises(StorageFailed):
        await begin(flow, storage)
    assert (await resume(flow, storage)).get_outputs() == ["outer 1"]


async def test_code_that_retries_forever_ends_when_the_storage_fails() -> None:
    calls, faults = Calls(), Faults()
    fetch = calls.step(name="fetch")
    faults.fail("journal", error=OSError("disk full for a moment"))
    storage = faults.wrap(InMemoryCheckpointStorage())

    @workflow
    async def flow(_: str) -> Any:
        while True:
            try:
                return await fetch(1)
            except Exception:  # noqa: BLE001  # as code that never gives up is written
                continue

    with pytest.raises(StorageFailed, match="disk full"):
        await begin(flow, storage)
    assert (await resume(flow, storage)).get_outputs() == [1]
    assert calls == [1, 1], "it was not recorded, so it is called once more, by the resume"
