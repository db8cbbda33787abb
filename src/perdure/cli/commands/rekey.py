"""`perdure rekey`: all that is in an encrypted store under its new key."""

from __future__ import annotations

import asyncio
import sys
from typing import TYPE_CHECKING

import click
import msgspec

from perdure.cli.options.store import existing_store, json_option, load_keys, store_option
from perdure.cli.output.amounts import format_count, progress_bar
from perdure.cli.output.errors import INTERRUPTED, Mistake
from perdure.cli.output.tables import print_folded, print_json, print_table

if TYPE_CHECKING:
    from perdure.stores.encrypted.keys import RekeyReport


@click.command(short_help="Put an encrypted store under its new key.")
@click.argument("url", metavar="[STORE_URL]", required=False)
@click.option("--dry-run", is_flag=True, help="Only count what is under which key.")
@json_option
@store_option
@click.pass_context
def rekey(context: click.Context, url: str | None, dry_run: bool, as_json: bool, store: str | None) -> None:
    """Put all that is in an encrypted store under the current key: the first in $PERDURE_KEYS.

    STORE_URL says which store, as --store does. $PERDURE_KEYS is `id:key,id:key`, with the new key first and all that
    are in use behind it. Threads may be run meanwhile, by processes that have the new key, too. Interrupted, it is
    completed by running it again. The exit code is 1 if something could not be read, and needs its old key still.
    """
    if load_keys() is None:
        raise Mistake("There are no keys. Name them with PERDURE_KEYS=id:key,id:key, the new one first.")
    try:
        report = asyncio.run(_rekey(url or store, dry_run))
    except KeyboardInterrupt:
        click.echo("\nInterrupted. Nothing is lost; run the same command again to continue.", err=True)
        sys.exit(INTERRUPTED)
    if as_json:
        print_json({**msgspec.to_builtins(report), "is_complete": report.is_complete})
    else:
        _print(report, dry_run=dry_run)
    if report.failed:
        context.exit(1)


async def _rekey(store: str | None, dry_run: bool) -> RekeyReport:
    async with existing_store(store) as storage:
        with progress_bar("looking at threads" if dry_run else "rekeying threads") as report_progress:
            report: RekeyReport = await storage.rekey(
                dry_run=dry_run, progress=lambda done, total, _: report_progress(done, total)
            )
            return report


def _print(report: RekeyReport, *, dry_run: bool) -> None:
    current = report.current_key_id
    rows = [
        (key_id, format_count(count, "payload"), "current" if key_id == current else "")
        for key_id, count in sorted(report.payloads.items(), key=lambda entry: (entry[0] != current, entry[0]))
    ]
    print_table(("KEY", "" if dry_run else "BEFORE", ""), rows)
    others = sum(count for key_id, count in report.payloads.items() if key_id != current)
    looked_at = f"{format_count(report.threads, 'thread')} looked at"
    if dry_run:
        summary = f"{format_count(others, 'payload')} would be put under key {current!r}"
    else:
        summary = f"{format_count(report.rewritten, 'payload')} put under key {current!r}"
    rest = " No other key is needed any more." if report.is_complete else ""
    print_folded(f"{looked_at}: {summary}.{rest}")
    if report.failed:
        click.echo()
        print_table(("NOT REKEYED", "WHY"), [(entry.thread_id, entry.reason) for entry in report.failed])
