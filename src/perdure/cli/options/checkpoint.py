"""Which checkpoint is meant: an id, the beginning of one that no other has, or a thread's id for its head."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, TypeVar

import click

from perdure.checkpoints.storage import StoreCheckpointStorage
from perdure.cli.options.store import complete_checkpoints
from perdure.cli.output.errors import Mistake
from perdure.cli.output.tables import moment
from perdure.errors import DamagedCheckpoint, did_you_mean
from perdure.records import CheckpointInfo, ThreadInfo

FEW = 5
"""How many checkpoints are named where several are meant."""

Decorated = TypeVar("Decorated", bound=Callable[..., Any])


def checkpoint_argument(
    name: str, metavar: str = "CHECKPOINT", *, required: bool = True
) -> Callable[[Decorated], Decorated]:
    return click.argument(name, metavar=metavar, required=required, shell_complete=complete_checkpoints)


async def find_checkpoint(storage: StoreCheckpointStorage, named: str) -> CheckpointInfo:
    """The checkpoint that is named. Raises Mistake if there is none, or if several begin like that."""
    exact = await _exactly(storage, named)
    if exact is not None:
        return exact
    threads = await storage.store.threads(thread_id=named)
    if threads:
        return await _head(storage, threads[0])
    found = await _beginning(storage, named)
    if not found:
        raise Mistake(await _nothing(storage, named))
    return _only(found, named)


async def find_checkpoint_of(storage: StoreCheckpointStorage, thread: ThreadInfo, named: str) -> CheckpointInfo:
    """The checkpoint of this thread that is named. Raises Mistake if it is no checkpoint, or another thread's."""
    exact = await _exactly(storage, named)
    if exact is None:
        infos = await storage.list_checkpoint_infos(thread_id=thread.thread_id)
        exact = _only([one for one in infos if named and one.checkpoint_id.startswith(named)], named, thread.thread_id)
    if exact.thread_id != thread.thread_id:
        raise Mistake(
            f"Checkpoint {exact.checkpoint_id!r} belongs to thread {exact.thread_id!r}, not to {thread.thread_id!r}. "
            "Nothing was changed."
        )
    return exact


async def _exactly(storage: StoreCheckpointStorage, named: str) -> CheckpointInfo | None:
    try:
        found = await storage.store.find_checkpoint(named)
    except DamagedCheckpoint:
        return next((one for one in await _beginning(storage, named) if one.checkpoint_id == named), None)
    return None if found is None else found.info


async def _beginning(storage: StoreCheckpointStorage, named: str) -> list[CheckpointInfo]:
    return [one for one in await storage.list_checkpoint_infos() if named and one.checkpoint_id.startswith(named)]


async def _head(storage: StoreCheckpointStorage, thread: ThreadInfo) -> CheckpointInfo:
    for one in await storage.list_checkpoint_infos(thread_id=thread.thread_id):
        if one.checkpoint_id == thread.checkpoint_id:
            return one
    raise Mistake(f"Thread {thread.thread_id!r} has no checkpoint yet.")


def _only(found: Sequence[CheckpointInfo], named: str, thread_id: str | None = None) -> CheckpointInfo:
    if len(found) == 1:
        return found[0]
    if not found:
        of_thread = "" if thread_id is None else f" in thread {thread_id!r}"
        raise Mistake(
            f"There is no checkpoint {named!r}{of_thread}. `perdure show {thread_id or 'THREAD'}` lists the newest."
        )
    listed = "".join(
        f"\n  {one.checkpoint_id}  commit {one.number} of {one.thread_id}, {moment(one.timestamp)}"
        for one in found[-FEW:]
    )
    more = f"\n  and {len(found) - FEW} more" if len(found) > FEW else ""
    raise Mistake(f"{len(found)} checkpoints begin with {named!r}; give more of the id:{listed}{more}")


async def _nothing(storage: StoreCheckpointStorage, named: str) -> str:
    known = [one.thread_id for one in await storage.list_threads(limit=1000)]
    return (
        f"There is no checkpoint and no thread {named!r} in this store{did_you_mean(named, known)}. `perdure threads` "
        "lists threads, `perdure show THREAD` a thread's checkpoints."
    )
