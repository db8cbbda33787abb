"""Going elsewhere in a thread's history: the checkpoints that a fork, a rewind and a checkpoint by hand make.

Each is a commit with the content of another checkpoint, or with some of it changed; nothing is run. What is not
declared here goes through unchanged, since a storage without a workflow reads it as Opaque.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from math import isfinite
from typing import Any

import msgspec

from perdure.checkpoints.checkpoint import WorkflowCheckpoint, new_checkpoint_id, utc_now
from perdure.checkpoints.open_thread import storage_errors
from perdure.checkpoints.recent import RecentThreads
from perdure.checkpoints.thread import StoredThread
from perdure.codec import Codec, DeclaredTypes
from perdure.codecs.types import registered
from perdure.codecs.values.containers import Opaque
from perdure.errors import InvalidRun, WrongStateType, did_you_mean
from perdure.names import stable_name
from perdure.records import CheckpointInfo, Lease, OpenedThread, ThreadHeader
from perdure.store import Store

ON_BUSY = ("reject", "enqueue", "interrupt")


def forked(source: WorkflowCheckpoint, thread_id: str, state: dict[str, Any]) -> WorkflowCheckpoint:
    """The first checkpoint of a new thread."""
    return _successor(source, thread_id=thread_id, number=1, state=state)


def rewound(target: WorkflowCheckpoint, number: int, about: Mapping[str, Any] | None = None) -> WorkflowCheckpoint:
    """The target once more, as this commit of its thread. What is delivered from here on is other than what was
    delivered from there the first time: idempotency keys tell them apart by the epoch. `about` is what is said of the
    thread today, which a rewind leaves as it is; None to keep what was said then."""
    there = target if about is None else with_about(target, about)
    return _successor(there, number=number, counters=msgspec.structs.replace(target.counters, epoch=number))


def repeated(head: WorkflowCheckpoint, number: int, status: str) -> WorkflowCheckpoint:
    """The same place once more, as this commit of its thread. `status` is the thread's: its last run may have failed
    since the head."""
    return _successor(head, number=number, status=status)


def with_about(checkpoint: WorkflowCheckpoint, about: Mapping[str, Any]) -> WorkflowCheckpoint:
    """The same, of a thread of which this is said."""
    others = {part: values for part, values in checkpoint.metadata.items() if part != "about"}
    return msgspec.structs.replace(checkpoint, metadata={**others, "about": dict(about)} if about else others)


def cleared(head: WorkflowCheckpoint) -> WorkflowCheckpoint:
    """Of the same thread, and nothing in it. What is counted goes on, so that no delivery is taken for an earlier one,
    and what is said of the thread stays."""
    return WorkflowCheckpoint(
        workflow_name=head.workflow_name,
        graph_signature_hash=head.graph_signature_hash,
        checkpoint_id=head.checkpoint_id,
        metadata=head.metadata,
        thread_id=head.thread_id,
        counters=msgspec.structs.replace(head.counters, since_input=0),
        graph_signature=head.graph_signature,
        migrations=head.migrations,
        renamed_types=head.renamed_types,
    )


def _successor(before: WorkflowCheckpoint, **changes: Any) -> WorkflowCheckpoint:
    return msgspec.structs.replace(
        before,
        checkpoint_id=new_checkpoint_id(),
        previous_checkpoint_id=before.checkpoint_id,
        timestamp=utc_now(),
        run_id=None,
        **changes,
    )


def of_another_thread(info: CheckpointInfo, thread_id: str) -> InvalidRun:
    return InvalidRun(
        f"Checkpoint {info.checkpoint_id!r} belongs to thread {info.thread_id!r}, so thread {thread_id!r} cannot go "
        "back to it. Nothing was changed. Rewind its own thread, or fork the checkpoint to a new one."
    )


# ---------------------------------------------------------------- a fork in a store


async def add_fork(store: Store, fork: WorkflowCheckpoint, codec: Codec) -> CheckpointInfo:
    """Keep it as a thread of its own, with its own copies of all chunks. Raises UnsavableValue or ThreadExists; then
    there is nothing of it."""
    opened = OpenedThread(Lease(fork.thread_id, "fork", 1), 0, None, None, 0)
    thread = StoredThread(store, opened, DeclaredTypes(), lambda _: codec, RecentThreads())
    commit = thread._packed(fork, None, (), "", fork.status, (), (), ((), 0))
    standing = ThreadHeader(
        fork.thread_id,
        fork.workflow_name,
        commit.number,
        opened.lease.fence,
        fork.status,
        fork.timestamp,
        last_seq=0,
        head=commit.number,
        due_at=commit.due_at,
        requests=commit.requests or (),
    )
    with storage_errors(store, "add a thread"):
        await store.add_thread(standing, [commit])
    return fork.info


# ---------------------------------------------------------------- what is said of a thread


def merged_about(head: WorkflowCheckpoint, said: Any) -> dict[str, Any]:
    """What is said of the thread, with this. A value of None takes its key away. Raises InvalidRun."""
    if not isinstance(said, Mapping) or not all(isinstance(key, str) for key in said):
        raise InvalidRun(f"What is said of a thread must map texts to JSON values, got {said!r}. Nothing was written.")
    for key, value in said.items():
        for wrong in _faults(value):
            raise InvalidRun(
                f"What is said of a thread must be JSON, and {key!r} holds {wrong!r} ({type(wrong).__name__}). Nothing "
                "was written."
            )
    merged = {**head.metadata.get("about", {}), **said}
    return {key: value for key, value in merged.items() if value is not None}


def _faults(value: Any) -> Iterator[Any]:
    """What is in it that JSON does not have."""
    if type(value) is dict:
        yield from (key for key in value if type(key) is not str)
        value = list(value.values())
    if type(value) is list:
        for one in value:
            yield from _faults(one)
    elif not (value is None or type(value) in (bool, int, str) or (type(value) is float and isfinite(value))):
        yield value


# ---------------------------------------------------------------- edited state


def edited_state(source: WorkflowCheckpoint, update_state: Any, remove_state: Any) -> dict[str, Any]:
    """The state with these values in place of its own. Raises WrongStateType or InvalidRun; nothing is changed."""
    update = {} if update_state is None else update_state
    if not isinstance(update, Mapping) or not all(isinstance(key, str) for key in update):
        raise InvalidRun(f"update_state must map keys of the state (texts) to new values, got {update_state!r}.")
    is_list = isinstance(remove_state, Iterable) and not isinstance(remove_state, str)
    removed = [*remove_state] if is_list else []
    if not is_list or not all(isinstance(key, str) for key in removed):
        raise InvalidRun(f"remove_state must be a list of keys of the state (texts), got {remove_state!r}.")
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
    expected, given = _type_name(stored), _type_name(value)
    if expected != given:
        raise WrongStateType(key, _short(expected), _short(given), checkpoint_id)


def _type_name(value: object) -> str:
    """As it is stored: a value of a type that nobody declared here has no class."""
    if isinstance(value, Opaque):
        return value.type
    known = registered(type(value))
    return stable_name(type(value)) if known is None else known.name


def _short(name: str) -> str:
    return name.removeprefix("builtins:")
