"""Which checkpoint is meant: an id, the beginning of one that no other has, or a thread's id for its head."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, TypeVar

import click

from perdure.checkpoints.storage import StoreCheckpointStorage
from perdure.cli.options.store import complete_checkpoints
from perdure.cli.output.errors import Mistake
from perdure.cli.output.tables import format_time
from perdure.errors import DamagedCheckpoint, did_you_mean
from perdure.records import CheckpointInfo, ThreadInfo

MAX_LISTED = 5
"""How many checkpoints are named where several are meant."""

Decorated = TypeVar("Decorated", bound=Callable[..., Any])


def checkpoint_argument(
    name: str, metavar: str = "CHECKPOINT", *, required: bool = True
) -> Callable[[Decorated], Decorated]:
    return click.argument(name, metavar=metavar, required=required, shell_complete=complete_checkpoints)


async def find_checkpoint(storage: StoreCheckpointStorage, named: str) -> CheckpointInfo:
    """The checkpoint that is named. Raises Mistake if there is none, or if several begin like that."""
    exact = await _find_exact(storage, named)
    if exact is not None:
        return exact
    threads = await storage.store.threads(thread_id=named)
    if threads:
        return await _head(storage, threads[0])
    matches = await _find_by_prefix(storage, named)
    if not matches:
        raise Mistake(await _not_found_message(storage, named))
    return _require_one(matches, named)


async def find_checkpoint_of(storage: StoreCheckpointStorage, thread: ThreadInfo, named: str) -> CheckpointInfo:
    """The checkpoint of this thread that is named. Raises Mistake if there is none, or it belongs to another thread."""
    exact = await _find_exact(storage, named)
    if exact is None:
        infos = await storage.list_checkpoint_infos(thread_id=thread.thread_id)
        exact = _require_one(
            [info for info in infos if named and info.checkpoint_id.startswith(named)], named, thread.thread_id
        )
    if exact.thread_id != thread.thread_id:
        raise Mistake(
            f"Checkpoint {exact.checkpoint_id!r} belongs to thread {exact.thread_id!r}, not to {thread.thread_id!r}. "
            "Nothing was changed."
        )
    return exact


async def _find_exact(storage: StoreCheckpointStorage, named: str) -> CheckpointInfo | None:
    try:
        matches = await storage.store.find_checkpoint(named)
    except DamagedCheckpoint:
        return next((info for info in await _find_by_prefix(storage, named) if info.checkpoint_id == named), None)
    return None if matches is None else matches.info


async def _find_by_prefix(storage: StoreCheckpointStorage, named: str) -> list[CheckpointInfo]:
    return [info for info in await storage.list_checkpoint_infos() if named and info.checkpoint_id.startswith(named)]


async def _head(storage: StoreCheckpointStorage, thread: ThreadInfo) -> CheckpointInfo:
    for info in await storage.list_checkpoint_infos(thread_id=thread.thread_id):
        if info.checkpoint_id == thread.checkpoint_id:
            return info
    raise Mistake(f"Thread {thread.thread_id!r} has no checkpoint yet.")


def _require_one(matches: Sequence[CheckpointInfo], named: str, thread_id: str | None = None) -> CheckpointInfo:
    if len(matches) == 1:
        return matches[0]
    if not matches:
        of_thread = "" if thread_id is None else f" in thread {thread_id!r}"
        raise Mistake(
            f"There is no checkpoint {named!r}{of_thread}. `perdure show {thread_id or 'THREAD'}` lists the newest."
        )
    listed = "".join(
        f"\n  {info.checkpoint_id}  commit {info.number} of {info.thread_id}, {format_time(info.timestamp)}"
        for info in matches[-MAX_LISTED:]
    )
    more = f"\n  and {len(matches) - MAX_LISTED} more" if len(matches) > MAX_LISTED else ""
    raise Mistake(f"{len(matches)} checkpoints begin with {named!r}; give more of the id:{listed}{more}")


async def _not_found_message(storage: StoreCheckpointStorage, named: str) -> str:
    thread_ids = [info.thread_id for info in await storage.list_threads(limit=1000)]
    return (
        f"There is no checkpoint and no thread {named!r} in this store{did_you_mean(named, thread_ids)}. "
        "`perdure threads` lists threads, `perdure show THREAD` a thread's checkpoints."
    )
