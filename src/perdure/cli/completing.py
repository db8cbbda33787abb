"""What a shell proposes when Tab is pressed: ids and names in a store. Whatever goes wrong, it stays silent."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Awaitable, Callable
from typing import Any

import click
from click.shell_completion import CompletionItem

from perdure.errors import PerdureError

MOST = 200
"""How many ids are looked through, the newest ones: somebody waits at the keyboard."""


def complete_threads(context: click.Context, _: click.Parameter, incomplete: str) -> list[CompletionItem]:
    async def read(storage: Any) -> list[CompletionItem]:
        found = await storage.list_threads(limit=MOST)
        return [CompletionItem(one.thread_id, help=one.workflow_name) for one in reversed(found)]

    return _proposed(context, incomplete, read)


def complete_checkpoints(context: click.Context, _: click.Parameter, incomplete: str) -> list[CompletionItem]:
    async def read(storage: Any) -> list[CompletionItem]:
        found = await storage.list_checkpoint_infos(thread_id=context.params.get("thread_id"), limit=MOST)
        return [
            CompletionItem(one.checkpoint_id, help=f"commit {one.number} of {one.thread_id}") for one in reversed(found)
        ]

    return _proposed(context, incomplete, read)


def complete_definitions(context: click.Context, _: click.Parameter, incomplete: str) -> list[CompletionItem]:
    async def read(storage: Any) -> list[CompletionItem]:
        from perdure.orchestrations.agent_workflow.definitions import PREFIX, WORKFLOW

        found = await storage.list_threads(workflow_name=WORKFLOW, limit=MOST)
        return [CompletionItem(one.thread_id.removeprefix(PREFIX)) for one in found]

    return _proposed(context, incomplete, read)


def _proposed(
    context: click.Context, incomplete: str, read: Callable[[Any], Awaitable[list[CompletionItem]]]
) -> list[CompletionItem]:
    from perdure.cli.places import VARIABLE, existing_store

    # While the value of an option is completed, click knows of no other option.
    store = context.params.get("store") or os.environ.get(VARIABLE)

    async def look() -> list[CompletionItem]:
        async with existing_store(store) as storage:
            return await read(storage)

    try:
        return [one for one in asyncio.run(look()) if one.value.startswith(incomplete)]
    except (PerdureError, OSError, click.ClickException):
        return []
