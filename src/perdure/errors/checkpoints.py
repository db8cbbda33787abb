"""Errors of saving and loading: checkpoints, threads, conversations, stores and values."""

from __future__ import annotations

from collections.abc import Sequence

from perdure.errors.running import WorkflowRunnerException


class WorkflowCheckpointException(WorkflowRunnerException):
    code = "checkpoint"


class CheckpointNotFound(WorkflowCheckpointException):
    def __init__(self, checkpoint_id: str) -> None:
        self.checkpoint_id = checkpoint_id
        super().__init__(
            f"No checkpoint {checkpoint_id!r} exists in this storage. It may have been deleted or pruned, or be in "
            "another storage; list_checkpoint_ids() lists the ids."
        )


class CheckpointPinned(WorkflowCheckpointException, ValueError):
    def __init__(self, checkpoint_id: str) -> None:
        self.checkpoint_id = checkpoint_id
        super().__init__(
            f"Checkpoint {checkpoint_id!r} is pinned, so it was not deleted. Unpin it first: "
            f"await storage.unpin({checkpoint_id!r}), or `perdure unpin {checkpoint_id}`."
        )


class ThreadNotFound(WorkflowCheckpointException):
    def __init__(self, thread_id: str) -> None:
        self.thread_id = thread_id
        super().__init__(
            f"No thread {thread_id!r} exists here. Check the id and the storage; list_threads() lists the threads, "
            f"and run(message, thread_id={thread_id!r}) starts one."
        )


class ThreadExists(WorkflowCheckpointException, ValueError):
    def __init__(self, thread_id: str, reason: str = "the store has a thread with that id") -> None:
        self.thread_id = thread_id
        self.reason = reason
        super().__init__(
            f"Thread {thread_id!r} was not added: {reason}. Nothing was changed. Give it another thread_id, or delete "
            "the existing one."
        )


class WrongStateType(WorkflowCheckpointException, TypeError):
    def __init__(self, key: str, expected: str, got: str, checkpoint_id: str) -> None:
        self.key = key
        super().__init__(
            f"state[{key!r}] of checkpoint {checkpoint_id!r} is {expected}, and the new value is {got}. Nothing was "
            "written. Give a value of the same type; None always fits."
        )


class NoThreadFile(WorkflowCheckpointException, ValueError):
    def __init__(self, path: str, reason: str) -> None:
        self.path = path
        self.reason = reason
        super().__init__(
            f"{path!r} cannot be imported: {reason}. Nothing was imported. Export the thread again, or check how the "
            "file was copied."
        )


class IncompatibleWorkflow(WorkflowCheckpointException):
    def __init__(self, checkpoint_id: str, workflow_name: str, differences: Sequence[str]) -> None:
        self.checkpoint_id = checkpoint_id
        self.differences = list(differences)
        listed = "".join(f"\n  - {difference}" for difference in differences)
        super().__init__(
            f"Checkpoint {checkpoint_id!r} was made by a workflow that differs from {workflow_name!r}:{listed}\n"
            "Nothing was changed. Rebuild the workflow as it was, add migrations=[...] that describe the changes, "
            "or pass force=True to continue with the parts that still fit."
        )


class MigrationFailed(WorkflowCheckpointException):
    def __init__(self, migration: str, checkpoint_id: str, thread_id: str, reason: str) -> None:
        self.migration = migration
        self.checkpoint_id = checkpoint_id
        self.thread_id = thread_id
        super().__init__(
            f"Migration {migration!r} failed at checkpoint {checkpoint_id!r} of thread {thread_id!r}: {reason}. "
            "Nothing was changed. Correct it, and try it on all stored threads: await workflow.check_threads()."
        )


class DamagedCheckpoint(WorkflowCheckpointException):
    def __init__(self, checkpoint_id: str, reason: str, thread_id: str | None = None) -> None:
        self.checkpoint_id = checkpoint_id
        self.thread_id = thread_id
        self.reason = reason
        of_thread = "" if thread_id is None else f" of thread {thread_id!r}"
        super().__init__(
            f"Checkpoint {checkpoint_id!r}{of_thread} cannot be read: {reason}. No older checkpoint was used in its "
            "place; to go back, name one: run(checkpoint_id=...)."
        )


class DamagedStore(WorkflowCheckpointException):
    """A whole store, or one of its files, cannot be read, rather than one checkpoint in it."""

    def __init__(self, path: str, reason: str) -> None:
        self.path = path
        self.reason = reason
        super().__init__(
            f"The store {path!r} cannot be read: {reason}. Nothing was changed. Restore it from a backup, or move it "
            "away to begin with an empty one."
        )


class NewerFormat(WorkflowCheckpointException):
    def __init__(self, path: str, found: object, known: object) -> None:
        self.path = path
        super().__init__(
            f"{path!r} has format {found}; this perdure reads up to {known}. Another version wrote it. Nothing was "
            "changed; use that version, or upgrade perdure."
        )


class CheckpointHookFailed(WorkflowCheckpointException):
    def __init__(self, executor_id: str, hook: str, reason: str) -> None:
        self.executor_id = executor_id
        super().__init__(
            f"{hook} of executor {executor_id!r} failed: {reason}. Nothing was saved, and the thread is at its "
            "last checkpoint. Fix the hook and resume."
        )


class StorageFailed(WorkflowCheckpointException):
    def __init__(self, storage: str, action: str, reason: str) -> None:
        super().__init__(
            f"{storage} failed to {action}: {reason}. Nothing was changed; the thread is at its last checkpoint "
            "and can be resumed once the storage works."
        )


class StoreUnavailable(StorageFailed, ConnectionError):
    """The server of a store cannot be reached, or does not answer."""


class PoolExhausted(StorageFailed, TimeoutError):
    """All connections to the server of a store were in use for too long."""


class UnsupportedId(WorkflowCheckpointException, ValueError):
    def __init__(self, name: str, value: str, reason: str) -> None:
        self.value = value
        super().__init__(f"The {name} {value!r} cannot be stored here: {reason}. Nothing was written. Choose another.")


class MissingKey(WorkflowCheckpointException):
    """The store is encrypted, and the key that it needs is missing."""

    def __init__(self, place: str, key_id: str | None = None) -> None:
        self.place = place
        self.key_id = key_id
        with_which = "" if key_id is None else f" with key {key_id!r}"
        remedy = "Pass encryption=AesGcm(key)" if key_id is None else "Give AesGcm that key too"
        super().__init__(f"{place} is encrypted{with_which}, and that key is missing. {remedy}. Nothing was changed.")


class PlaintextRefused(WorkflowCheckpointException):
    """An encrypted store contains plaintext, which was written without the key."""

    def __init__(self, place: str, remedy: str = "") -> None:
        self.place = place
        super().__init__(
            f"{place} is not encrypted, although this storage uses a key. It was written without the key and is "
            f"rejected. Nothing was changed.{' ' + remedy if remedy else ''}"
        )


class UnsavableValue(WorkflowCheckpointException, TypeError):
    """A value could not be read back later, so it was rejected before anything was written."""

    def __init__(self, path: str, reason: str, remedy: str = "") -> None:
        self.path = path
        self.reason = reason
        self.remedy = remedy
        super().__init__(f"Cannot save {path}: {reason}. Nothing was written.{' ' + remedy if remedy else ''}")

    def within(self, whole: str) -> UnsavableValue:
        """The same error, where the value is part of `whole`."""
        return UnsavableValue(f"{whole}.{self.path}", self.reason, self.remedy)


class StepArgumentsUnsavable(UnsavableValue):
    """The arguments of a step have no digest, so they cannot identify it. The step was not called."""

    def __init__(self, name: str, error: UnsavableValue) -> None:
        self.name = name
        remedy = "The step was not called. Pass key='...' to identify the call: ctx.step(..., key='...')."
        super().__init__(error.path, error.reason, remedy)


class UnreadableValue(WorkflowCheckpointException):
    """Stored data is not a value that may be built here."""

    def __init__(self, path: str, reason: str, remedy: str = "") -> None:
        self.path = path
        super().__init__(f"Cannot read {path}: {reason}.{' ' + remedy if remedy else ''}")


class ExecutionNotFound(ThreadNotFound):
    """An execution of a workflow of agents does not exist, or no longer does."""

    def __init__(self, execution_id: str, workflow_name: str, *, is_kept: bool) -> None:
        WorkflowCheckpointException.__init__(
            self,
            f"No execution {execution_id!r} of {workflow_name!r} exists. Nothing was run. "
            f"run(input, execution_id={execution_id!r}) begins one."
            + ("" if is_kept else " Without with_checkpointing() executions are deleted when they end."),
        )
        self.thread_id = execution_id


class ConversationNotFound(WorkflowCheckpointException):
    """A checkpoint refers to a version of a conversation that the session store does not have."""

    def __init__(self, session_id: str, version: str) -> None:
        self.session_id = session_id
        self.version = version
        super().__init__(
            f"The session store has no version {version!r} of session {session_id!r}. The session was deleted, or the "
            "execution began with another session store, or with one in memory, which ends with its process. "
            "Nothing was written. Use the store that it began with, or begin another execution."
        )
