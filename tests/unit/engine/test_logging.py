"""The engine's log lines hold ids and counts, never the content of messages."""

from __future__ import annotations

import logging
from typing import Any

import pytest
from tests.unit.engine.flows import Verdict, alone, asking, shouting

from perdure import InMemoryCheckpointStorage

SECRET = "my-diary-entry"


async def everything_happens() -> None:
    """A run that sends nowhere, asks, is answered, yields and fails, each time with the secret as its payload."""
    storage = InMemoryCheckpointStorage()
    await shouting(checkpoint_storage=storage).run(SECRET)
    await alone(lambda message, ctx: ctx.send_message(message), checkpoint_storage=storage).run(SECRET)
    workflow = asking(checkpoint_storage=storage)
    await workflow.run(SECRET)
    await workflow.run(responses={SECRET: Verdict(True)})

    async def fail(message: str, ctx: Any) -> None:
        ctx.set_state("diary", message)
        raise ValueError("no payload here")

    with pytest.raises(ValueError, match="no payload"):
        await alone(fail, checkpoint_storage=storage).run(SECRET)


async def test_no_payload_is_logged_at_info_or_above(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.DEBUG, logger="perdure"):
        await everything_happens()
    assert caplog.records, "the undelivered message is logged"
    lines = [f"{record.getMessage()} {record.exc_text}" for record in caplog.records if record.levelno >= logging.INFO]
    assert not [line for line in lines if SECRET in line or SECRET.upper() in line]


async def test_every_line_comes_from_a_logger_of_perdure(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.DEBUG):
        await everything_happens()
    names = {record.name for record in caplog.records if record.name != "asyncio"}
    assert names and all(name.startswith("perdure.") for name in names)


async def test_undelivered_message_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.DEBUG, logger="perdure"):
        await alone(lambda message, ctx: ctx.send_message(message)).run("x", thread_id="t")
    assert "thread t: The message of type str that 'only' sent was not delivered" in caplog.text
