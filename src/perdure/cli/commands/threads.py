"""`perdure threads`: all threads of a store, and where each stands."""

from __future__ import annotations

import asyncio

import click

from perdure.cli.options.store import existing_store, json_option, store_option
from perdure.cli.output.tables import format_age, print_json, print_table, thread_status, thread_tree
from perdure.records import ThreadInfo

HEADERS = ("THREAD", "WORKFLOW", "STANDING", "MOVED", "DUE")


@click.command(short_help="List threads, and where each stands.")
@click.option("--workflow", metavar="NAME", help="Only threads of this workflow.")
@click.option("--limit", type=click.IntRange(min=1), default=50, show_default=True, help="The newest of them.")
@json_option
@store_option
def threads(workflow: str | None, limit: int, as_json: bool, store: str | None) -> None:
    """List threads, those that moved last at the end."""
    listed = asyncio.run(_read(store, workflow, limit))
    if as_json:
        print_json([thread_tree(thread) for thread in listed])
    elif not listed:
        click.echo("There are no threads.")
    else:
        print_table(HEADERS, [_row(thread) for thread in listed])


async def _read(store: str | None, workflow: str | None, limit: int) -> list[ThreadInfo]:
    async with existing_store(store) as storage:
        return await storage.list_threads(workflow_name=workflow, limit=limit)


def _row(thread: ThreadInfo) -> tuple[str, ...]:
    return (
        thread.thread_id,
        thread.workflow_name,
        thread_status(thread),
        format_age(thread.updated_at),
        format_age(thread.due_at),
    )
