"""`perdure rewind`: a thread goes back to one of its checkpoints."""

from __future__ import annotations

import asyncio

import click

from perdure.cli.options.checkpoint import checkpoint_argument, find_checkpoint_of
from perdure.cli.options.confirm import confirm, yes_option
from perdure.cli.options.store import (
    StoreLocation,
    existing_store,
    find_thread,
    json_option,
    store_option,
    thread_argument,
)
from perdure.cli.output.checkpoint import checkpoint_tree
from perdure.cli.output.errors import Mistake
from perdure.cli.output.tables import format_time, print_folded, print_json
from perdure.cli.output.values import make_printable
from perdure.errors import ThreadBusy
from perdure.records import CheckpointInfo, ThreadInfo


@click.command(short_help="Rewind a thread to a checkpoint.")
@thread_argument
@checkpoint_argument("checkpoint")
@click.option("--takeover", is_flag=True, help="Take the thread from its owner, such as a process that hangs.")
@yes_option
@json_option
@store_option
def rewind(thread_id: str, checkpoint: str, takeover: bool, yes: bool, as_json: bool, store: str | None) -> None:
    """Rewind THREAD to CHECKPOINT, one of its own. Nothing runs.

    What came after stays as a branch: `perdure show THREAD --branches`. A question that was answered after CHECKPOINT
    is asked again.
    """
    thread, target = asyncio.run(_look(store, thread_id, checkpoint, takeover=takeover))
    confirm(
        f"Thread {make_printable(thread_id)} goes back from commit {thread.number} to commit {target.number} of "
        f"{format_time(target.timestamp)}. Is that meant?",
        yes=yes,
    )
    head = asyncio.run(_rewind(store, thread_id, target, takeover=takeover))
    if as_json:
        print_json(checkpoint_tree(head))
        return
    print_folded(
        f"Thread {make_printable(thread_id)} stands where it stood at commit {target.number}; this is commit "
        f"{head.number}. What came between is a branch now."
    )
    click.echo(f"Continue with: {StoreLocation('APP', thread_id, store).resume()}")


async def _look(store: str | None, thread_id: str, named: str, *, takeover: bool) -> tuple[ThreadInfo, CheckpointInfo]:
    async with existing_store(store) as storage:
        thread = await find_thread(storage, thread_id)
        if thread.run_id is not None and not takeover:
            raise _busy(thread_id, thread.run_id)
        return thread, await find_checkpoint_of(storage, thread, named)


async def _rewind(store: str | None, thread_id: str, target: CheckpointInfo, *, takeover: bool) -> CheckpointInfo:
    async with existing_store(store) as storage:
        try:
            return await storage.rewind(thread_id, target, takeover=takeover)
        except ThreadBusy as busy:
            raise _busy(thread_id, busy.run_id) from busy


def _busy(thread_id: str, run_id: str | None) -> Mistake:
    by = f" by run {run_id!r}" if run_id else ""
    return Mistake(
        f"Thread {thread_id!r} is being run{by}. Nothing was changed. Wait for it; to take the thread from a run that "
        "hangs, add --takeover."
    )
