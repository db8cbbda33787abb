"""Time travel: forks, rewinds and checkpoints by hand, as functions of a storage, and the checkpoints that they commit.

Each is a commit with the content of another checkpoint, or with a part of it changed; nothing runs. Undeclared types
pass through unchanged: a storage without a workflow reads them as Opaque. `Workflow` has the same methods, and also
checks that a checkpoint is compatible with its code.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping
from math import isfinite
from typing import TYPE_CHECKING, Any

import msgspec

from perdure.checkpoints.access import OwnerWait, abandon_claim, storage_errors
from perdure.checkpoints.checkpoint import (
    CheckpointID,
    WorkflowCheckpoint,
    check_made_by_hand,
    copy_checkpoint,
    new_checkpoint_id,
    utc_now,
)
from perdure.checkpoints.delta.recent import Recent, RecentThreads, encode_commit
from perdure.checkpoints.encode import encode_graph
from perdure.checkpoints.thread import StoredThread
from perdure.clock import complete
from perdure.codec import Codec, DeclaredTypes
from perdure.codecs.builtin_types import Opaque
from perdure.codecs.types import stored_name
from perdure.errors import (
    CheckpointNotFound,
    InvalidRun,
    StorageFailed,
    ThreadBusy,
    ThreadConflict,
    ThreadNotFound,
    WorkflowCheckpointException,
    WrongStateType,
    did_you_mean,
)
from perdure.events import WorkflowRunState
from perdure.names import OnBusy, check_choice, check_identifier, checkpoint_id_of, new_item_id, new_thread_id
from perdure.records import CheckpointInfo, Commit, Lease, ThreadHeader
from perdure.store import Store

if TYPE_CHECKING:
    from perdure.checkpoints.any_storage import OpenThread
    from perdure.checkpoints.storage import StoreCheckpointStorage

Change = Callable[[WorkflowCheckpoint], WorkflowCheckpoint]
"""Gets a copy of a thread's head, and returns one with other content."""

_Act = Callable[[StoredThread], Awaitable[CheckpointInfo | None]]


async def fork(
    storage: StoreCheckpointStorage,
    checkpoint_id: CheckpointID | CheckpointInfo,
    *,
    thread_id: str | None = None,
    update_state: Mapping[str, Any] | None = None,
    remove_state: Iterable[str] = (),
) -> CheckpointInfo:
    """Make a new thread that starts with the content of this checkpoint. Nothing runs.

    `update_state` replaces values of the state by others of the same type (None is always allowed, and an int for a
    float); `remove_state` removes keys. Raises CheckpointNotFound, ThreadExists, WrongStateType or UnsavableValue; then
    no thread is made.
    """
    check_identifier("thread_id", thread_id)
    source = await storage.load(checkpoint_id)
    state = edit_state(source, update_state, remove_state)
    forked = successor(source, thread_id=thread_id or new_thread_id(), number=1, state=state)
    return await complete(add_fork(storage.store, forked, storage._tool_codec))


async def rewind(
    storage: StoreCheckpointStorage,
    thread_id: str,
    checkpoint_id: CheckpointID | CheckpointInfo,
    *,
    on_busy: OnBusy = "reject",
    takeover: bool = False,
) -> CheckpointInfo:
    """Go back to a checkpoint of the thread, as its next commit. Nothing runs; later checkpoints stay as a branch.

    A rewind does not read the head, so it repairs a thread with a damaged head. For a running thread,
    `on_busy="enqueue"` waits, and `"interrupt"` or `takeover=True` takes the thread: its run then fails with
    ThreadConflict. Raises ThreadBusy, ThreadNotFound, CheckpointNotFound, or InvalidRun for a checkpoint of another
    thread.
    """
    wanted = checkpoint_id_of(checkpoint_id)
    await storage.find_thread(thread_id)
    async with storage.access("find a checkpoint"):
        stored = await storage.store.find_checkpoint(wanted)
    if stored is None:
        raise CheckpointNotFound(wanted)
    refuse_other_thread(stored.info, thread_id)

    async def act(thread: StoredThread) -> CheckpointInfo | None:
        target = await storage.load(wanted)
        about = await load_metadata_of_head(storage.load, thread.head_id)
        return await commit_rewind(thread, target, about, lambda: storage.load(wanted))

    return await _commit_when_free(storage, thread_id, act, on_busy, takeover=takeover)


async def checkpoint(
    storage: StoreCheckpointStorage,
    thread_id: str,
    *,
    on_busy: OnBusy = "reject",
    takeover: bool = False,
) -> CheckpointInfo:
    """Save the thread's head once more, as a new checkpoint: to pin it, for example.

    Raises ThreadBusy while the thread has an owner, ThreadNotFound, or DamagedCheckpoint.
    """
    await storage.find_thread(thread_id)  # `open` would make a missing thread
    return await _commit_when_free(storage, thread_id, commit_again, on_busy, takeover=takeover)


async def save(storage: StoreCheckpointStorage, checkpoint: WorkflowCheckpoint) -> None:
    """`StoreCheckpointStorage.save`."""
    check_made_by_hand(checkpoint)
    thread_id = checkpoint.thread_id or new_thread_id()

    async def act(thread: StoredThread) -> CheckpointInfo | None:
        fields = {name: getattr(checkpoint, name) for name in checkpoint.__struct_fields__}
        numbered = WorkflowCheckpoint(**{**fields, "thread_id": thread_id, "number": thread.number + 1})
        return await thread.commit(numbered, (), checkpoint.run_id or "", checkpoint.status)

    await complete(commit_by_hand(storage, thread_id, act, f"save-{new_item_id()}"))


async def _commit_when_free(
    storage: StoreCheckpointStorage, thread_id: str, act: _Act, on_busy: str, *, takeover: bool
) -> CheckpointInfo:
    check_choice("on_busy", on_busy, OnBusy)
    takes_over = takeover or on_busy == "interrupt"
    async with OwnerWait(storage, thread_id) as wait:
        while True:
            owner = f"history-{new_item_id()}"
            try:
                return await complete(commit_by_hand(storage, thread_id, act, owner, takeover=takes_over))
            except ThreadBusy:
                if on_busy != "enqueue":
                    raise
            await wait.until_free()


async def commit_by_hand(
    storage: StoreCheckpointStorage,
    thread_id: str,
    act: _Act,
    owner: str,
    *,
    takeover: bool = False,
    recent: RecentThreads | None = None,
) -> CheckpointInfo:
    """The checkpoint that `act` commits to the thread. An act that raises leaves no new thread behind.

    `recent` caches the heads between the calls of one caller, and needs to be its own: runs use another codec.
    """
    opened = await storage.claim_thread(thread_id, owner, takeover=takeover)
    codec, recent = storage._tool_codec, RecentThreads() if recent is None else recent
    thread = StoredThread(storage.store, opened, storage.declared, codec, recent, retention=storage.retention)
    try:
        info = await act(thread)
    except BaseException:
        await abandon_claim(storage.store, opened)
        raise
    await thread.release()
    if info is None:
        raise ThreadNotFound(thread_id)
    return info


async def commit_rewind(
    thread: OpenThread,
    target: WorkflowCheckpoint,
    about: Mapping[str, Any] | None,
    load_target: Callable[[], Awaitable[WorkflowCheckpoint]],
) -> CheckpointInfo:
    """Commit the target once more. Deliveries after it get a new epoch, so their idempotency keys differ from the first
    time. `about` is the thread's metadata of today; None keeps that of the target. Raises CheckpointNotFound if the
    target was pruned since it was loaded."""
    number = thread.number + 1
    counters = msgspec.structs.replace(target.counters, epoch=number)
    rewound = successor(target if about is None else with_about(target, about), number=number, counters=counters)
    try:
        await complete(thread.commit(rewound, (), "", rewound.status))
    except ThreadConflict:
        await load_target()
        raise
    return rewound.info


async def commit_again(thread: OpenThread, change: Change | None = None) -> CheckpointInfo:
    """Commit the head once more, or the result of `change`. Raises ThreadNotFound without a head.

    The records since the head stay unsettled: the next run replays them.
    """
    head = await thread.load_head()
    if head is None:
        raise ThreadNotFound(thread.thread_id)
    # The thread's status: its last run may have failed since the head.
    status = thread.status if isinstance(thread, StoredThread) else head.status
    if change is not None:  # copies, before and after: the commit shares no value with a live thread or the caller
        head = copy_checkpoint(change(copy_checkpoint(head, thread.codec)), thread.codec)
    again = successor(head, number=thread.number + 1, status=status)
    await complete(thread.commit(again, (), "", status, unsettled=tuple(thread.tail.journal())))
    return again.info


async def commit_cleared(thread: OpenThread) -> tuple[CheckpointInfo, tuple[str, ...]]:
    """Commit an empty checkpoint, and discard the records and messages since the head. The counters continue, so that
    delivery ids stay unique; the metadata of the thread stay. Also returns the ids of the discarded messages. Raises
    ThreadNotFound without a head."""
    head = await thread.load_head()
    if head is None:
        raise ThreadNotFound(thread.thread_id)
    discarded = tuple(thread.tail.inbox(thread.codec, head.renamed_types))
    own = copy_checkpoint(head, thread.codec)
    cleared = WorkflowCheckpoint(
        workflow_name=own.workflow_name,
        graph_signature_hash=own.graph_signature_hash,
        previous_checkpoint_id=own.checkpoint_id,
        metadata=own.metadata,
        thread_id=own.thread_id,
        counters=msgspec.structs.replace(own.counters, since_input=0),
        graph_signature=own.graph_signature,
        migrations=own.migrations,
        renamed_types=own.renamed_types,
        number=thread.number + 1,
        status=WorkflowRunState.IDLE.value,
    )
    await complete(thread.commit(cleared, (), "", cleared.status, consumed=discarded))
    return cleared.info, discarded


def with_about(checkpoint: WorkflowCheckpoint, about: Mapping[str, Any]) -> WorkflowCheckpoint:
    """The checkpoint with these metadata of its thread."""
    others = {part: values for part, values in checkpoint.metadata.items() if part != "about"}
    return msgspec.structs.replace(checkpoint, metadata={**others, "about": dict(about)} if about else others)


def successor(before: WorkflowCheckpoint, **changes: Any) -> WorkflowCheckpoint:
    """A checkpoint with the content of this one, but for the changes, that continues from it."""
    return msgspec.structs.replace(
        before,
        checkpoint_id=new_checkpoint_id(),
        previous_checkpoint_id=before.checkpoint_id,
        timestamp=utc_now(),
        run_id=None,
        **changes,
    )


def refuse_other_thread(info: CheckpointInfo, thread_id: str) -> None:
    """Raises InvalidRun for a checkpoint of another thread."""
    if info.thread_id != thread_id:
        raise InvalidRun(
            f"Checkpoint {info.checkpoint_id!r} belongs to thread {info.thread_id!r}, so thread {thread_id!r} cannot "
            "go back to it. Nothing was changed. Rewind its own thread, or fork the checkpoint to a new one."
        )


async def add_fork(store: Store, fork: WorkflowCheckpoint, codec: Codec) -> CheckpointInfo:
    """Add the fork as a new thread, with its own copies of all chunks. Raises UnsavableValue or ThreadExists; then
    nothing is written."""
    draft, base = Commit(Lease(fork.thread_id, "fork", 1), 1, status=fork.status), Recent(DeclaredTypes(), requests={})
    commit, _ = encode_commit(draft, fork, (), base=base, graph=encode_graph(fork), last_seq=0, codec=codec)
    header = ThreadHeader(
        fork.thread_id,
        fork.workflow_name,
        number=1,
        fence=1,
        status=fork.status,
        updated_at=fork.timestamp,
        last_seq=0,
        head=1,
        due_at=commit.due_at,
        requests=commit.requests or (),
    )
    with storage_errors(store, "add a thread"):
        await store.add_thread(header, [commit])
    return fork.info


async def load_metadata_of_head(
    load: Callable[[str], Awaitable[WorkflowCheckpoint]], head_id: str | None
) -> dict[str, Any] | None:
    """The thread's metadata, such as its name. None without a head, or for one that cannot be read."""
    if head_id is None:
        return None
    try:
        head = await load(head_id)
    except StorageFailed:
        raise
    except WorkflowCheckpointException:
        return None
    return dict(head.metadata.get("about", {}))


def merge_about(head: WorkflowCheckpoint, changes: Any) -> dict[str, Any]:
    """The thread's metadata with these changes. A value of None removes its key. Raises InvalidRun."""
    if not isinstance(changes, Mapping) or not all(isinstance(key, str) for key in changes):
        raise InvalidRun(
            f"The metadata of a thread must map strings to JSON values, got {changes!r}. Nothing was written."
        )
    for key, value in changes.items():
        for wrong in _non_json_values(value):
            raise InvalidRun(
                f"The metadata of a thread must be JSON, but {key!r} holds {wrong!r} ({type(wrong).__name__}). Nothing "
                "was written."
            )
    merged = {**head.metadata.get("about", {}), **changes}
    return {key: value for key, value in merged.items() if value is not None}


def _non_json_values(value: Any) -> Iterator[Any]:
    if type(value) is dict:
        yield from (key for key in value if type(key) is not str)
        value = list(value.values())
    if type(value) is list:
        for item in value:
            yield from _non_json_values(item)
    elif not (value is None or type(value) in (bool, int, str) or (type(value) is float and isfinite(value))):
        yield value


def edit_state(source: WorkflowCheckpoint, update_state: Any, remove_state: Any) -> dict[str, Any]:
    """The state of the checkpoint with these changes. Raises WrongStateType or InvalidRun."""
    update = {} if update_state is None else update_state
    if not isinstance(update, Mapping) or not all(isinstance(key, str) for key in update):
        raise InvalidRun(f"update_state must map keys of the state (strings) to new values, got {update_state!r}.")
    is_list = isinstance(remove_state, Iterable) and not isinstance(remove_state, str)
    removed = [*remove_state] if is_list else []
    if not is_list or not all(isinstance(key, str) for key in removed):
        raise InvalidRun(f"remove_state must be a list of keys of the state (strings), got {remove_state!r}.")
    for key in removed:
        if key in update:
            raise InvalidRun(f"update_state and remove_state both name {key!r}: give it a value, or remove it.")
        if key not in source.state:
            raise InvalidRun(
                f"remove_state names {key!r}, which is not in the state of checkpoint {source.checkpoint_id!r}"
                f"{did_you_mean(key, source.state)}. Nothing was written."
            )
    for key, value in update.items():
        if key in source.state:
            _check_type(key, source.state[key], value, source.checkpoint_id)
    return {key: value for key, value in {**source.state, **update}.items() if key not in removed}


def _check_type(key: str, stored: object, value: object, checkpoint_id: str) -> None:
    if stored is None or value is None or (type(stored) is float and type(value) is int):
        return
    parts = (stored, value)
    expected, actual = (part.type if isinstance(part, Opaque) else stored_name(type(part)) for part in parts)
    if expected != actual:
        raise WrongStateType(key, expected, actual, checkpoint_id)
