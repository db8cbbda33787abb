"""`perdure import`: a thread out of a file that `perdure export` wrote."""

from __future__ import annotations

import asyncio
from pathlib import Path

import click

from perdure.cli.options.store import find_store, json_option, store_option
from perdure.cli.output.tables import print_folded, print_json, thread_status, thread_tree
from perdure.cli.output.values import make_printable
from perdure.records import ThreadInfo


@click.command("import", short_help="Read a thread from a file.")
@click.argument("file", type=click.Path(exists=True, dir_okay=False, path_type=Path))
@click.option("--thread", "thread_id", metavar="ID", help="What to call it here, if not as it was called.")
@json_option
@store_option
def import_(file: Path, thread_id: str | None, as_json: bool, store: str | None) -> None:
    """Put the thread that is in FILE into the store, all of it or nothing. The next run continues at its head.

    The file is checked first, line by line. A thread that is there already is not touched.
    """
    if thread_id == "":
        raise click.UsageError("--thread: an id has at least one character.")
    thread = asyncio.run(_import(store, file, thread_id))
    if as_json:
        print_json(thread_tree(thread))
        return
    print_folded(
        f"Thread {make_printable(thread.thread_id)} of workflow {make_printable(thread.workflow_name)} is here: "
        f"commit {thread.number}, {thread_status(thread)}."
    )


async def _import(store: str | None, file: Path, thread_id: str | None) -> ThreadInfo:
    async with find_store(store, may_be_new=True) as storage:
        thread: ThreadInfo = await storage.import_thread(file, thread_id=thread_id)
        return thread
