"""`perdure export`, `import` and `transfer`: threads as files, and copies between stores."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import click
import msgspec

from perdure.checkpoints.storage import StoreCheckpointStorage
from perdure.checkpoints.transfer.copy_store import CopyReport, copy_store, location_of
from perdure.cli.errors import INTERRUPTED, Mistake
from perdure.cli.options import (
    find_store,
    find_thread,
    json_option,
    output_and_store_options,
    source_store,
    store_command,
    thread_argument,
    work_in,
)
from perdure.cli.tables import print_json, print_result, print_table, progress_bar, thread_status, thread_tree
from perdure.errors.wording import format_count, format_size


@click.command(short_help="Write a thread to a file.")
@thread_argument
@click.argument("file", type=click.Path(dir_okay=False, path_type=Path))
@click.option("--overwrite", is_flag=True, help="Overwrite an existing file.")
@store_command
async def export(storage: StoreCheckpointStorage, thread_id: str, file: Path, overwrite: bool, as_json: bool) -> None:
    """Write THREAD to FILE with its whole history: JSON lines, each with a checksum.

    `perdure import` adds it to any store. The thread may be running; the file then holds one moment of it.
    """
    await find_thread(storage, thread_id)
    try:
        report = await storage.export_thread(thread_id, file, overwrite=overwrite)
    except FileExistsError as error:
        raise Mistake(
            f"File {str(file)!r} exists already and was not overwritten. Name another, or add --overwrite."
        ) from error
    counts = f"{format_count(report.commits, 'commit')}, {format_count(report.checkpoints, 'checkpoint')}"
    sentence = f"Thread {report.thread_id} is in {report.path}: {counts}, {format_size(report.size_bytes)}."
    print_result(msgspec.to_builtins(report), sentence, as_json=as_json)


@click.command("import", short_help="Read a thread from a file.")
@click.argument("file", type=click.Path(exists=True, dir_okay=False, path_type=Path))
@click.option("--thread", "thread_id", metavar="ID", help="The id of the thread here, if not the exported id.")
@output_and_store_options
def import_(file: Path, thread_id: str | None, as_json: bool, store: str | None) -> None:
    """Add the thread in FILE to the store, completely or not at all. The next run continues at its head.

    The command first checks the file, line by line. It does not change an existing thread.
    """
    if thread_id == "":
        raise click.UsageError("--thread: an id has at least one character.")
    thread = work_in(store, lambda storage: storage.import_thread(file, thread_id=thread_id), may_be_new=True)
    what = f"Imported thread {thread.thread_id} of workflow {thread.workflow_name}"
    sentence = f"{what}: commit {thread.number}, {thread_status(thread)}."
    print_result(thread_tree(thread), sentence, as_json=as_json)


@click.command(short_help="Copy threads from one store to another.")
@click.argument("source", metavar="SRC_URL")
@click.argument("target", metavar="DST_URL")
@click.option("--workflow", metavar="NAME", help="Only threads of this workflow.")
@click.option("--thread", "thread_ids", metavar="ID", multiple=True, help="Only this thread.")
@json_option
@click.pass_context
def transfer(
    context: click.Context, source: str, target: str, workflow: str | None, thread_ids: Sequence[str], as_json: bool
) -> None:
    """Copy threads, with their history, from the store at SRC_URL to the store at DST_URL, which may be new.

    The command checks each thread, and copies it completely or not at all. It changes neither the source nor
    existing threads of the target. To complete an interrupted transfer, run it again.
    """
    try:
        report = asyncio.run(_copy(source, target, workflow, thread_ids))
    except KeyboardInterrupt:
        click.echo("\nInterrupted. Copied threads stay; run the same command again to continue.", err=True)
        sys.exit(INTERRUPTED)
    if as_json:
        print_json(msgspec.to_builtins(report))
    else:
        _print_copied(report)
    if not report.is_complete:
        context.exit(1)


async def _copy(source: str, target: str, workflow: str | None, thread_ids: Sequence[str]) -> CopyReport:
    async with (
        source_store(source, "SRC_URL") as ours,
        find_store(target, named="DST_URL", may_be_new=True) as theirs,
    ):
        if location_of(ours) == location_of(theirs):
            raise click.UsageError("SRC_URL and DST_URL are the same store. Nothing was copied.")
        for entry in thread_ids:
            await find_thread(ours, entry)
        with progress_bar("copying threads") as report_progress:
            wish: Any = {"workflow_name": workflow, "thread_ids": thread_ids or None, "progress": report_progress}
            return await copy_store(ours, theirs, **wish)


def _print_copied(report: CopyReport) -> None:
    counts = {
        "copied": len(report.copied),
        "already there": len(report.already_there),
        "conflicts": len(report.conflicts),
        "damaged": len(report.failed),
    }
    for name, count in counts.items():
        if count or name == "copied":
            click.echo(f"{name.ljust(max(map(len, counts)))}  {format_count(count, 'thread')}")
    if not report.is_complete:
        click.echo()
        rows = [
            *((entry.thread_id, "in conflict", entry.reason) for entry in report.conflicts),
            *((entry.thread_id, "damaged", entry.reason) for entry in report.failed),
        ]
        print_table(("NOT COPIED", "", "WHY"), rows)
