"""Names of new threads, made by what the project has for it. A failure of that changes nothing else."""

from __future__ import annotations

import asyncio
import inspect
import time
from collections.abc import Awaitable, Callable, Sequence
from typing import Any

from perdure.agents.conversation.message import Message
from perdure.checkpoints.storage import StoreCheckpointStorage
from perdure.log import get_logger
from perdure.server.config.errors import invalid
from perdure.workflows.workflow import Workflow

logger = get_logger("server")

LONGEST_NAME = 255
NAMING_SECONDS = 2.0
"""A turn is not answered before its thread has a name, so this is all the time that there is for one."""
PAUSE_SECONDS = 60.0
"""After a failure nobody is asked for so long: turns are not to wait for what does not come."""

NameThreads = Callable[[Workflow, str, Sequence[Message]], Awaitable[str | None]]


def make_naming(path: str, found: Any, storage: StoreCheckpointStorage) -> NameThreads:
    """`found`: an object, or a class of one, with `generate_name(messages)`; or such a function. What it is given are
    texts, oldest first. Raises InvalidConfig."""
    maker = found() if isinstance(found, type) else found
    generate = getattr(maker, "generate_name", maker)
    if not callable(generate):
        raise invalid("thread_name_generator", f"{path!r} has no generate_name(messages), and cannot be called.")

    asks_from = 0.0

    async def name(workflow: Workflow, thread_id: str, messages: Sequence[Message]) -> str | None:
        nonlocal asks_from
        if time.monotonic() < asks_from:
            return None
        try:
            async with asyncio.timeout(NAMING_SECONDS):
                made = generate([message.text for message in messages])
                made = await made if inspect.isawaitable(made) else made
            if not isinstance(made, str) or not made.strip():
                return None
            chosen = made.strip()[:LONGEST_NAME]
            await workflow.describe(thread_id, {"name": chosen}, on_busy="enqueue", checkpoint_storage=storage)
        except Exception as error:  # noqa: BLE001  # users' code: the turn itself went well
            logger.warning("thread %s got no name: %s", thread_id, type(error).__name__)
            asks_from = time.monotonic() + PAUSE_SECONDS
            return None
        return chosen

    return name
