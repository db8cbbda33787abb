"""`perdure verify`: every digest and every link of a store, looked at."""

from __future__ import annotations

import asyncio

import click
import msgspec

from perdure.cli.options.store import complete_threads, existing_store, find_thread, json_option, store_option
from perdure.cli.output.amounts import format_count, progress_bar
from perdure.cli.output.tables import print_folded, print_json, print_table
from perdure.records import Damage


@click.command(short_help="Look for damage in a store.")
@click.argument("url", metavar="[STORE_URL]", required=False)
@click.option("--thread", "thread_id", metavar="ID", shell_complete=complete_threads, help="Only this thread.")
@json_option
@store_option
@click.pass_context
def verify(context: click.Context, url: str | None, thread_id: str | None, as_json: bool, store: str | None) -> None:
    """Look at all that is in the store, every digest and every link, and list whatever is damaged.

    STORE_URL says which store, as --store does. Nothing is changed. The exit code is 1 if there is any damage.
    """
    looked_at, problems = asyncio.run(_verify(url or store, thread_id))
    if as_json:
        print_json({"threads": looked_at, "damage": msgspec.to_builtins(problems)})
    elif not problems:
        print_folded(f"{format_count(looked_at, 'thread')} looked at: nothing is damaged.")
    else:
        rows = [(damage.thread_id or "", damage.checkpoint_id or "", damage.reason) for damage in problems]
        print_table(("THREAD", "CHECKPOINT", "DAMAGE"), rows)
        print_folded(f"{format_count(looked_at, 'thread')} looked at: {format_count(len(problems), 'problem')}.")
    if problems:
        context.exit(1)


async def _verify(store: str | None, thread_id: str | None) -> tuple[int, list[Damage]]:
    """How many threads were looked at, and what was found."""
    looked_at = 0
    async with existing_store(store) as storage:
        if thread_id is not None:
            await find_thread(storage, thread_id)
        with progress_bar("looking at threads") as report_progress:

            def count(done: int, total: int, _: str) -> None:
                nonlocal looked_at
                looked_at = done
                report_progress(done, total)

            problems = await storage.verify(thread_id=thread_id, progress=count)
    return looked_at, problems
