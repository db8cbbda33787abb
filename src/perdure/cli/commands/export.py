"""`perdure export`: a thread as a file, with its history."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import TYPE_CHECKING

import click
import msgspec

from perdure.cli.options.store import existing_store, find_thread, json_option, store_option, thread_argument
from perdure.cli.output.amounts import format_count, format_size
from perdure.cli.output.errors import Mistake
from perdure.cli.output.tables import print_folded, print_json
from perdure.cli.output.values import make_printable

if TYPE_CHECKING:
    from perdure.checkpoints.transfer.threads import ExportReport


@click.command(short_help="Write a thread to a file.")
@thread_argument
@click.argument("file", type=click.Path(dir_okay=False, path_type=Path))
@click.option("--overwrite", is_flag=True, help="Replace a file that is there already.")
@json_option
@store_option
def export(thread_id: str, file: Path, overwrite: bool, as_json: bool, store: str | None) -> None:
    """Write THREAD to FILE with all of its history: JSON lines, each with a checksum.

    `perdure import` puts it into any store. The thread may be running; the file then holds one moment of it.
    """
    report = asyncio.run(_export(store, thread_id, file, overwrite=overwrite))
    if as_json:
        print_json(msgspec.to_builtins(report))
        return
    counts = f"{format_count(report.commits, 'commit')}, {format_count(report.checkpoints, 'checkpoint')}"
    held = f"{counts}, {format_size(report.size_bytes)}"
    print_folded(f"Thread {make_printable(report.thread_id)} is in {make_printable(report.path)}: {held}.")


async def _export(store: str | None, thread_id: str, file: Path, *, overwrite: bool) -> ExportReport:
    async with existing_store(store) as storage:
        await find_thread(storage, thread_id)
        try:
            return await storage.export_thread(thread_id, file, overwrite=overwrite)
        except FileExistsError as error:
            raise Mistake(
                f"There is a file {str(file)!r} already, and it was left as it is. Name another, or add --overwrite."
            ) from error
