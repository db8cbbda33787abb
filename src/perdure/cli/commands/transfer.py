"""`perdure transfer`: copy threads of one store to another, of the same or another kind."""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import click
import msgspec

from perdure.cli.options.store import find_store, find_thread, json_option, source_store
from perdure.cli.output.amounts import format_count, progress_bar
from perdure.cli.output.errors import INTERRUPTED
from perdure.cli.output.tables import print_json, print_table

if TYPE_CHECKING:
    from perdure.checkpoints.transfer.copy_store import CopyReport


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
    """Copy threads, with their history, from the store at SRC_URL to the one at DST_URL, which is made if need be.

    Each thread is copied wholly or not at all, and checked on the way. What is there already is left as it is, so a
    transfer that was broken off is completed by running it again. The source is not changed.
    """
    try:
        report = asyncio.run(_copy(source, target, workflow, thread_ids))
    except KeyboardInterrupt:
        click.echo("\nInterrupted. What was copied is there; run the same command again to continue.", err=True)
        sys.exit(INTERRUPTED)
    if as_json:
        print_json(msgspec.to_builtins(report))
    else:
        _print(report)
    if not report.is_complete:
        context.exit(1)


async def _copy(source: str, target: str, workflow: str | None, thread_ids: Sequence[str]) -> CopyReport:
    from perdure.checkpoints.transfer.copy_store import copy_store

    async with (
        source_store(source, "SRC_URL") as ours,
        find_store(target, named="DST_URL", may_be_new=True) as theirs,
    ):
        _check_different(ours, theirs)
        for entry in thread_ids:
            await find_thread(ours, entry)
        with progress_bar("copying threads") as report_progress:
            return await copy_store(
                ours,
                theirs,
                workflow_name=workflow,
                thread_ids=thread_ids or None,
                progress=lambda done, total, _: report_progress(done, total),
            )


def _check_different(ours: Any, theirs: Any) -> None:
    places = [entry.store.path for entry in (ours, theirs) if hasattr(entry.store, "path")]
    if len(places) == 2 and os.path.realpath(places[0]) == os.path.realpath(places[1]):
        raise click.UsageError("SRC_URL and DST_URL are the same store. Nothing was copied.")


def _print(report: CopyReport) -> None:
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
