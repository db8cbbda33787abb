"""Errors of a run and of what it keeps: threads, checkpoints, conversations, stores, values."""

from __future__ import annotations

from collections.abc import Sequence

from perdure.errors.base import WorkflowRunnerException


class ContextEnded(WorkflowRunnerException, RuntimeError):
    def __init__(self, executor_id: str) -> None:
        self.executor_id = executor_id
        super().__init__(
            f"The context of a delivery to executor {executor_id!r} was used after its handler had ended, so its "
            "messages and writes would be lost. Await such work inside the handler, or make it an executor of its own."
        )


class HandlerCancelled(WorkflowRunnerException, RuntimeError):
    def __init__(self, executor_id: str) -> None:
        self.executor_id = executor_id
        super().__init__(
            f"A handler of executor {executor_id!r} ended with CancelledError although the run was not "
            "cancelled: something that it awaited was cancelled. The superstep was discarded. Catch the error in the "
            "handler."
        )


class TimedOut(WorkflowRunnerException, TimeoutError):
    """An executor or a step took longer than its `timeout`. It was cancelled and has ended."""

    def __init__(self, executor_id: str, seconds: float) -> None:
        self.executor_id = executor_id
        self.seconds = seconds
        super().__init__(
            f"{executor_id!r} did not end within {seconds:g} s. It was cancelled, and the attempt was "
            "discarded. Give it a longer timeout, or retries."
        )


class SubWorkflowFailed(WorkflowRunnerException):
    """A sub-workflow failed, and with it the executor that runs it. `__cause__` is the error raised inside."""

    def __init__(self, executor_id: str, workflow_name: str, error: BaseException) -> None:
        self.executor_id = executor_id
        self.workflow_name = workflow_name
        self.error = error
        super().__init__(
            f"Sub-workflow {workflow_name!r} of executor {executor_id!r} failed: {type(error).__name__}: "
            f"{str(error).rstrip('. ')}. The superstep was discarded; the thread is at its last checkpoint, inside "
            "the sub-workflow, and a resume continues there."
        )


class WorkflowConvergenceException(WorkflowRunnerException):
    code = "no_convergence"

    def __init__(self, thread_id: str, max_iterations: int) -> None:
        self.thread_id = thread_id
        self.max_iterations = max_iterations
        super().__init__(
            f"Runner did not converge after {max_iterations} iterations. Thread {thread_id!r} ran {max_iterations} "
            "supersteps since its last input and still has messages to deliver. What was committed is kept. If the "
            "loop is meant to be this long, build the workflow with a higher max_iterations and resume the thread; a "
            "team of agents is bounded by max_rounds, max_round_count or a termination condition."
        )


class StateConflict(WorkflowRunnerException):
    def __init__(self, key: str, first: str, second: str) -> None:
        self.key = key
        self.executors = (first, second)
        super().__init__(
            f"Executors {first!r} and {second!r} both wrote the state key {key!r} in one superstep, so neither "
            f"value can be chosen. The superstep was discarded. Declare how to join them, "
            f"WorkflowBuilder(state={{{key!r}: reducer}}), or let each write a key of its own."
        )


class MissingSecret(WorkflowRunnerException):
    def __init__(self, key: str) -> None:
        self.key = key
        super().__init__(
            f"The run argument {key!r} was marked secret, so it is in no checkpoint, and this run was resumed without "
            "it. Pass it again: run(..., function_invocation_kwargs=... or client_kwargs=...)."
        )


class ThreadBusy(WorkflowRunnerException, RuntimeError):
    def __init__(self, thread_id: str, run_id: str | None = None, *, is_here: bool = False) -> None:
        self.thread_id = thread_id
        self.run_id = run_id
        self.is_here = is_here
        """Whether the run is certainly one of this process."""
        by = f" by run {run_id!r}" if run_id else ""
        super().__init__(
            "Workflow is already running; concurrent runs are not allowed on the same instance and thread. Thread "
            f"{thread_id!r} is being run{by}. Nothing was written. Wait for it, choose on_busy='enqueue' or "
            "'interrupt', give this run a thread_id of its own (threads run side by side), or, if that run hangs, take "
            "the thread from it with takeover=True."
        )


class RunInterrupted(WorkflowRunnerException, RuntimeError):
    def __init__(self, run_id: str, thread_id: str, *, has_begun: bool = False) -> None:
        self.run_id = run_id
        self.thread_id = thread_id
        self.has_begun = has_begun
        """Whether the run had begun: its input is stored, and the thread can be resumed."""
        super().__init__(
            f"Run {run_id!r} left thread {thread_id!r} in the middle, as workflow.leave() asked for. Nothing is lost: "
            "the store has all input and all finished work. Resume it, in any process, with "
            f"run(thread_id={thread_id!r})."
            if has_begun
            else f"Run {run_id!r} was interrupted while it waited for thread {thread_id!r}, before it had begun. "
            "Nothing was written. Send its input again."
        )


class ThreadNotIdle(WorkflowRunnerException, RuntimeError):
    def __init__(self, thread_id: str, due: int) -> None:
        self.thread_id = thread_id
        super().__init__(
            "Cannot start a new run with 'message' while in-flight executor messages remain from a prior run: it would "
            f"overtake them. Thread {thread_id!r} was interrupted and still has {due} message(s) to deliver. Nothing "
            f"was written. Resume it first with run(thread_id={thread_id!r})"
            ", or pass on_unfinished='resume' to let the message wait, or 'discard' to set the others aside."
        )


class ThreadConflict(WorkflowRunnerException):
    def __init__(self, thread_id: str, tried: str, found: str) -> None:
        self.thread_id = thread_id
        super().__init__(
            f"Thread {thread_id!r} was changed by another owner: this run tried to write {tried}, the store has "
            f"{found}. Nothing was stored. Open the thread again to continue from its present state."
        )


class CursorExpired(WorkflowRunnerException):
    def __init__(self, thread_id: str, after: int, oldest: int) -> None:
        self.thread_id = thread_id
        self.oldest = oldest
        super().__init__(
            f"Events of thread {thread_id!r} after {after} are no longer kept; the oldest has seq {oldest}. "
            f"Start from events(after={oldest - 1})."
        )


class WorkflowCheckpointException(WorkflowRunnerException):
    code = "checkpoint"


class CheckpointNotFound(WorkflowCheckpointException):
    def __init__(self, checkpoint_id: str) -> None:
        self.checkpoint_id = checkpoint_id
        super().__init__(
            # Programs match the id without quotes; an id from outside must not write lines of a log.
            f"No checkpoint found with ID {repr(checkpoint_id)[1:-1]} in this storage. It may have been deleted or "
            "pruned, or be in another storage; list_checkpoint_ids() lists the ids."
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


class IncompatibleWorkflow(WorkflowCheckpointException, ValueError):
    def __init__(self, checkpoint_id: str, workflow_name: str, differences: Sequence[str]) -> None:
        self.checkpoint_id = checkpoint_id
        self.differences = list(differences)
        listed = "".join(f"\n  - {difference}" for difference in differences)
        super().__init__(
            f"Workflow graph has changed since the checkpoint was created. Checkpoint {checkpoint_id!r} was created by "
            f"a different version of workflow {workflow_name!r} and is not compatible:{listed}\nNothing was changed. "
            "Rebuild the workflow as it was, add migrations=[...] that describe the changes, or pass force=True to "
            "continue with the parts that still fit."
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
