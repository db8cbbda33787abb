"""`perdure prune`, `verify` and `rekey`: the upkeep of a store."""

from __future__ import annotations

import sys
from datetime import timedelta
from functools import partial
from typing import Any

import click
import msgspec

from perdure.checkpoints.history.pruning import PruneReport
from perdure.checkpoints.storage import StoreCheckpointStorage
from perdure.cli.errors import INTERRUPTED, Mistake
from perdure.cli.options import (
    complete_threads,
    confirm,
    find_thread,
    load_keys,
    output_and_store_options,
    store_command,
    work_in,
    yes_option,
)
from perdure.cli.tables import STATUS_WORDS, parse_duration, print_folded, print_json, print_table, progress_bar
from perdure.errors.wording import format_count, format_size
from perdure.events import WorkflowRunState
from perdure.stores.encrypted.keys import RekeyReport

STATES = {
    word: [state for state in WorkflowRunState if STATUS_WORDS.get(state, "interrupted") == word]
    for word in (*STATUS_WORDS.values(), "interrupted")
}
"""For each word of `perdure threads`, the states of a run that it stands for."""


@click.command(short_help="Remove checkpoints or threads that are no longer needed.")
@click.option("--keep", metavar="N", type=click.IntRange(min=1), help="Keep the last N checkpoints of each thread.")
@click.option(
    "--older-than", metavar="AGE", callback=parse_duration, help="Only older checkpoints: 30d, 12h, 45m or 90s."
)
@click.option("--workflow", metavar="NAME", help="Only of this workflow.")
@click.option("--thread", "thread_id", metavar="ID", shell_complete=complete_threads, help="Only of this thread.")
@click.option("--status", type=click.Choice(list(STATES)), multiple=True, help="Only of threads with this status.")
@click.option("--threads", "whole_threads", is_flag=True, help="Whole threads whose last commit is older than AGE.")
@click.option("--dry-run", is_flag=True, help="Only show what would be removed.")
@yes_option
@output_and_store_options
def prune(
    keep: int | None,
    older_than: timedelta | None,
    workflow: str | None,
    thread_id: str | None,
    status: tuple[str, ...],
    whole_threads: bool,
    dry_run: bool,
    yes: bool,
    as_json: bool,
    store: str | None,
) -> None:
    """Remove checkpoints that are neither among the last N of their thread nor younger than AGE. One of the two
    options is enough. The newest checkpoint of a thread stays, and so do pinned ones.

    With --threads it removes whole threads whose last commit is older than AGE and that have no work left.
    """
    _check(keep, older_than, whole_threads=whole_threads)
    wish: dict[str, Any] = {
        "keep_last": keep,
        "older_than": older_than,
        "workflow_name": workflow,
        "thread_id": thread_id,
        "status": [state for entry in status for state in STATES[entry]] or None,
        "whole_threads": whole_threads,
    }

    async def work(storage: StoreCheckpointStorage, *, dry_run: bool) -> PruneReport:
        if thread_id is not None:
            await find_thread(storage, thread_id)
        with progress_bar("selecting" if dry_run else "pruning") as report_progress:
            return await storage.prune(**wish, dry_run=dry_run, progress=report_progress)

    going = work_in(store, partial(work, dry_run=True))
    if not as_json and going.threads:
        rows = [(entry.thread_id, entry.workflow_name, entry.amounts) for entry in going.threads]
        print_table(("THREAD", "WORKFLOW", "GOES"), rows)
    if not as_json:
        _print_skipped(going)
    if dry_run or not going.threads:
        _print_total(going, as_json=as_json)
        return
    confirm(f"Remove {going.amounts} for good?", yes=yes)
    gone = work_in(store, partial(work, dry_run=False))
    if not as_json:
        _print_skipped(gone, but=going)
    _print_total(gone, as_json=as_json)


def _check(keep: int | None, older_than: timedelta | None, *, whole_threads: bool) -> None:
    """Raises UsageError for options that would select every checkpoint, or have no meaning."""
    if whole_threads and (older_than is None or keep is not None):
        raise click.UsageError(
            "--threads removes threads by the time of their last commit: add --older-than AGE, and leave out --keep. "
            "Nothing was removed."
        )
    if keep is None and older_than is None:
        raise click.UsageError(
            "Name what to remove: --keep N (the last N of each thread stay), --older-than AGE (such as 30d), or both. "
            "Nothing was removed."
        )


def _print_skipped(report: PruneReport, but: PruneReport | None = None) -> None:
    listed = set() if but is None else {entry.thread_id for entry in but.skipped}
    left = [(entry.thread_id, entry.reason) for entry in report.skipped if entry.thread_id not in listed]
    if left:
        print_table(("LEFT ALONE", "WHY"), left)


def _print_total(report: PruneReport, *, as_json: bool) -> None:
    if as_json:
        print_json(report.to_dict())
    elif not report.threads:
        print_folded("Nothing to remove.")
    elif report.is_dry_run:
        print_folded(f"Would remove {report.amounts}. Nothing was removed.")
    else:
        freed = f", {format_size(report.freed_bytes)} freed" if report.freed_bytes and report.freed_bytes > 0 else ""
        print_folded(f"Removed {report.amounts}{freed}.")


@click.command(short_help="Check a store for damage.")
@click.argument("url", metavar="[STORE_URL]", required=False)
@click.option("--thread", "thread_id", metavar="ID", shell_complete=complete_threads, help="Only this thread.")
@store_command
async def verify(storage: StoreCheckpointStorage, thread_id: str | None, as_json: bool) -> None:
    """Check every digest and every link in the store, and list all damage.

    STORE_URL names the store, as --store does. The command changes nothing. It exits with 1 if it finds damage.
    """
    checked = 0
    if thread_id is not None:
        await find_thread(storage, thread_id)
    with progress_bar("checking threads") as report_progress:

        def count(done: int, total: int, _: str) -> None:
            nonlocal checked
            checked = done
            report_progress(done, total)

        problems = await storage.verify(thread_id=thread_id, progress=count)
    if as_json:
        print_json({"threads": checked, "damage": msgspec.to_builtins(problems)})
    elif not problems:
        print_folded(f"{format_count(checked, 'thread')} checked: no damage.")
    else:
        rows = [(damage.thread_id or "", damage.checkpoint_id or "", damage.reason) for damage in problems]
        print_table(("THREAD", "CHECKPOINT", "DAMAGE"), rows)
        print_folded(f"{format_count(checked, 'thread')} checked: {format_count(len(problems), 'problem')}.")
    if problems:
        click.get_current_context().exit(1)


@click.command(short_help="Re-encrypt a store with its new key.")
@click.argument("url", metavar="[STORE_URL]", required=False)
@click.option("--dry-run", is_flag=True, help="Only count the payloads of each key.")
@output_and_store_options
@click.pass_context
def rekey(context: click.Context, url: str | None, dry_run: bool, as_json: bool, store: str | None) -> None:
    """Encrypt every payload of an encrypted store with the current key: the first in $PERDURE_KEYS.

    STORE_URL names the store, as --store does. $PERDURE_KEYS is `id:key,id:key`: the new key, then all keys in use.
    Threads may run meanwhile, in processes that have the new key too. To complete an interrupted command, run it
    again. The exit code is 1 if a payload could not be read: it still needs its old key.
    """
    if load_keys() is None:
        raise Mistake("No keys are set. Set PERDURE_KEYS=id:key,id:key, with the new key first.")

    async def work(storage: StoreCheckpointStorage) -> RekeyReport:
        with progress_bar("checking threads" if dry_run else "rekeying threads") as report_progress:
            report: RekeyReport = await storage.rekey(dry_run=dry_run, progress=report_progress)
            return report

    try:
        report = work_in(url or store, work)
    except KeyboardInterrupt:
        click.echo("\nInterrupted. Nothing is lost; run the same command again to continue.", err=True)
        sys.exit(INTERRUPTED)
    if as_json:
        print_json({**msgspec.to_builtins(report), "is_complete": report.is_complete})
    else:
        _print_rekeyed(report, dry_run=dry_run)
    if report.failed:
        context.exit(1)


def _print_rekeyed(report: RekeyReport, *, dry_run: bool) -> None:
    current = report.current_key_id
    rows = [
        (key_id, format_count(count, "payload"), "current" if key_id == current else "")
        for key_id, count in sorted(report.payloads.items(), key=lambda entry: (entry[0] != current, entry[0]))
    ]
    print_table(("KEY", "" if dry_run else "BEFORE", ""), rows)
    others = sum(count for key_id, count in report.payloads.items() if key_id != current)
    checked = f"{format_count(report.threads, 'thread')} checked"
    if dry_run:
        summary = f"{format_count(others, 'payload')} would be encrypted with key {current!r}"
    else:
        summary = f"{format_count(report.rewritten, 'payload')} encrypted with key {current!r}"
    rest = " No other key is needed." if report.is_complete else ""
    print_folded(f"{checked}: {summary}.{rest}")
    if report.failed:
        click.echo()
        print_table(("NOT REKEYED", "WHY"), [(entry.thread_id, entry.reason) for entry in report.failed])
