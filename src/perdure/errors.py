"""Every error perdure raises. Messages say what happened, to what, what was written, and what to do.

PerdureError
├── WorkflowException                          something about a workflow or one of its threads
│   ├── WorkflowValidationError                the graph is not sound (raised by `build`)
│   │   ├── EdgeDuplicationError
│   │   ├── TypeCompatibilityError
│   │   ├── GraphConnectivityError
│   │   └── DuplicateExecutorId                (also ValueError)
│   ├── DefinitionNotFound                     (also LookupError)
│   ├── DamagedDefinition
│   ├── InvalidDefinition                      a workflow of agents, or its document, is not sound (also ValueError)
│   ├── InvalidRun                             `run` was called in a way that has no meaning (also ValueError)
│   │   ├── NoStorage
│   │   ├── NoEventLog
│   │   └── UnknownExecutor
│   ├── RequestError                           about a question to a person
│   │   ├── NoPendingRequests                  (also RuntimeError)
│   │   ├── UnknownRequest                     (also ValueError)
│   │   ├── AlreadyAnswered                    (also ValueError)
│   │   ├── AnswerRejected                     (also ValueError)
│   │   ├── DuplicateRequest                   (also ValueError)
│   │   ├── NoResponseHandler                  (also ValueError)
│   │   ├── RequestExpired
│   │   └── RequestWithdrawn
│   └── WorkflowRunnerException                a run could not start or go on
│       ├── ContextEnded                       (also RuntimeError)
│       ├── HandlerCancelled                   (also RuntimeError)
│       ├── TimedOut                           (also TimeoutError)
│       ├── ApprovalTimedOut                   (also TimeoutError)
│       ├── PredicateFailed                    (also ValueError)
│       ├── InputMismatch                      (also ValueError)
│       ├── SubWorkflowFailed
│       ├── StepOutsideWorkflow                (also RuntimeError)
│       ├── StepNameTaken                      (also ValueError)
│       ├── WrongInputType                     (also RuntimeError)
│       ├── InvalidSelection                   (also RuntimeError)
│       ├── WorkflowConvergenceException
│       ├── StateConflict
│       ├── MissingSecret
│       ├── ThreadBusy                         (also RuntimeError)
│       ├── RunInterrupted                     (also RuntimeError)
│       ├── ThreadNotIdle                      (also RuntimeError)
│       ├── ThreadConflict
│       ├── CursorExpired
│       └── WorkflowCheckpointException        saving or loading
│           ├── CheckpointNotFound
│           ├── CheckpointPinned                   (also ValueError)
│           ├── ThreadNotFound
│           │   └── ExecutionNotFound
│           ├── ConversationNotFound
│           ├── ThreadExists                       (also ValueError)
│           ├── WrongStateType                     (also TypeError)
│           ├── NoThreadFile                       (also ValueError)
│           ├── IncompatibleWorkflow
│           ├── MigrationFailed
│           ├── DamagedCheckpoint
│           ├── DamagedStore
│           ├── NewerFormat
│           ├── CheckpointHookFailed
│           ├── StorageFailed
│           │   ├── StoreUnavailable               (also ConnectionError)
│           │   └── PoolExhausted                  (also TimeoutError)
│           ├── UnsupportedId                      (also ValueError)
│           ├── MissingKey
│           ├── PlaintextRefused
│           ├── UnsavableValue                 (also TypeError)
│           │   └── StepArgumentsUnsavable
│           └── UnreadableValue
├── AgentFailed                                a turn of an agent came to no end (also RuntimeError)
│   ├── AnswerNotUsable                        (also ValueError)
│   └── UsageLimitReached
├── MissingExtra                               an optional dependency is not installed (also ImportError)
├── MissingProgram                             a program that is not part of perdure is needed (also RuntimeError)
└── NotInAsyncCode                             `run_sync` inside a running event loop (also RuntimeError)
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from difflib import get_close_matches
from enum import Enum


class PerdureError(Exception):
    """The root: `except PerdureError` catches everything perdure raises on purpose."""

    code = "error"
    """Stable name for machines; the sentence may change, this does not."""

    def __reduce__(self) -> tuple[object, ...]:
        # Made again from its sentence and attributes, not by calling the class, which takes other arguments: errors
        # cross process boundaries and are copied.
        return _made_again, (type(self), self.args, self.__dict__)


def _made_again(kind: type[PerdureError], args: tuple[object, ...], attributes: dict[str, object]) -> PerdureError:
    error = kind.__new__(kind, *args)
    error.__dict__.update(attributes)
    return error


class MissingProgram(PerdureError, RuntimeError):
    """Something needs a program that is not installed, or that failed."""

    code = "missing_program"


class AgentFailed(PerdureError, RuntimeError):
    """A turn of an agent that came to no end: its model failed, or gave nothing that can be used."""

    code = "agent_failed"

    def __init__(self, agent_name: str, problem: str, advice: str) -> None:
        self.agent_name = agent_name
        super().__init__(f"Agent {agent_name!r}: {problem} {advice}")


class AnswerNotUsable(AgentFailed, ValueError):
    """An agent has answered, but not with what it was to give: a value of a type, or a handoff."""

    code = "answer_not_usable"
    asks_again = True
    """The next attempt asks the model again, although what it said is recorded."""

    def __init__(self, agent_name: str, problem: str) -> None:
        advice = "Calls of tools are recorded; a further attempt asks the model again."
        super().__init__(agent_name, problem if problem.endswith((".", "'", '"')) else f"{problem}.", advice)


class UsageLimitReached(AgentFailed):
    code = "usage_limit_reached"


class MissingExtra(PerdureError, ImportError):
    code = "missing_extra"

    def __init__(self, needed_by: str, package: str, extra: str) -> None:
        self.extra = extra
        super().__init__(
            f"{needed_by} needs the package {package!r}, which is not installed: pip install 'perdure[{extra}]'."
        )


class NotInAsyncCode(PerdureError, RuntimeError):
    code = "not_in_async_code"


class WorkflowException(PerdureError):
    code = "workflow"


# ---------------------------------------------------------------- the graph


class ValidationTypeEnum(Enum):
    """What kind of unsoundness `build` found."""

    EDGE_DUPLICATION = "EDGE_DUPLICATION"
    EXECUTOR_DUPLICATION = "EXECUTOR_DUPLICATION"
    TYPE_COMPATIBILITY = "TYPE_COMPATIBILITY"
    GRAPH_CONNECTIVITY = "GRAPH_CONNECTIVITY"
    HANDLER_OUTPUT_ANNOTATION = "HANDLER_OUTPUT_ANNOTATION"
    OUTPUT_VALIDATION = "OUTPUT_VALIDATION"


class WorkflowValidationError(WorkflowException):
    code = "validation"

    def __init__(self, message: str, validation_type: ValidationTypeEnum) -> None:
        self.message = message
        self.validation_type = validation_type
        super().__init__(f"[{validation_type.value}] {message}")


class DefinitionNotFound(WorkflowException, LookupError):
    """No definition of a workflow of agents is stored under this name, or none of this version."""

    code = "definition_not_found"

    def __init__(self, name: str, known: Iterable[str] = (), version: str | int | None = None) -> None:
        self.name = name
        self.version = version
        known = list(known)
        said = f"There is no definition {name!r} in this store{did_you_mean(name, known)}."
        if version is not None:
            said = f"Definition {name!r} has no version {version!r}; there are {', '.join(known) or 'none'}."
        super().__init__(f"{said} DefinitionStore(storage).list() shows what there is, and save() keeps one.")


class DamagedDefinition(WorkflowException):
    """A stored definition cannot be read. Others can."""

    code = "damaged_definition"

    def __init__(self, name: str, reason: str) -> None:
        self.name = name
        self.reason = reason
        super().__init__(
            f"Definition {name!r} cannot be read: {reason}. Others are not touched. Restore the store from a backup, "
            "or delete it and save it again."
        )


class InvalidDefinition(WorkflowException, ValueError):
    """A workflow of agents that is not sound: what is wrong, by its place in the document."""

    code = "invalid_definition"

    def __init__(self, problems: Sequence[tuple[str, str]], source: str | None = None) -> None:
        self.problems = tuple(problems)
        """Each with its place, such as `agents.review.retry.max_attempts`."""
        self.source = source
        """The file, where it was read from one."""
        lines = [f"{place}: {problem}" if place else problem for place, problem in problems]
        super().__init__("\n".join(f"{source}: {line}" if source else line for line in lines))


class EdgeDuplicationError(WorkflowValidationError):
    code = "edge_duplication"

    def __init__(self, edge_id: str) -> None:
        self.edge_id = edge_id
        super().__init__(
            f"The edge {edge_id!r} was added twice. Remove one of the calls; to send by "
            "condition, give one switch-case group instead of several edges to one target.",
            ValidationTypeEnum.EDGE_DUPLICATION,
        )


class TypeCompatibilityError(WorkflowValidationError):
    code = "type_compatibility"

    def __init__(
        self,
        source_executor_id: str,
        target_executor_id: str,
        source_types: Sequence[object],
        target_types: Sequence[object],
    ) -> None:
        self.source_executor_id = source_executor_id
        self.target_executor_id = target_executor_id
        self.source_types = list(source_types)
        self.target_types = list(target_types)
        super().__init__(
            f"{source_executor_id!r} sends {_names(source_types)}, but {target_executor_id!r} accepts only "
            f"{_names(target_types)}. Add a handler for one of these types to {target_executor_id!r}, or "
            f"correct the annotation of {source_executor_id!r}'s context.",
            ValidationTypeEnum.TYPE_COMPATIBILITY,
        )


class GraphConnectivityError(WorkflowValidationError):
    code = "graph_connectivity"

    def __init__(self, message: str) -> None:
        super().__init__(message, ValidationTypeEnum.GRAPH_CONNECTIVITY)


class DuplicateExecutorId(WorkflowValidationError, ValueError):
    code = "duplicate_executor_id"

    def __init__(self, executor_id: str) -> None:
        self.executor_id = executor_id
        super().__init__(
            f"Two different executors have the id {executor_id!r}. Give one of them another `id=`; "
            "checkpoints find an executor's state by it.",
            ValidationTypeEnum.EXECUTOR_DUPLICATION,
        )


# ---------------------------------------------------------------- calling run


class InvalidRun(WorkflowException, ValueError):
    code = "invalid_run"


class NoStorage(InvalidRun):
    code = "no_storage"

    def __init__(self, what: str) -> None:
        super().__init__(
            f"{what} needs a checkpoint storage, and this workflow has none. Pass checkpoint_storage= to the "
            "call, or build the workflow with WorkflowBuilder(checkpoint_storage=...)."
        )


class NoEventLog(InvalidRun):
    code = "no_event_log"

    def __init__(self, storage: str) -> None:
        super().__init__(
            f"{storage} has only the six methods of CheckpointStorage, so it keeps no event log to read. Use one of "
            "perdure's storages, or write a store for it (perdure.store.Store)."
        )


class UnknownExecutor(InvalidRun):
    code = "unknown_executor"

    def __init__(self, executor_id: str, known: Iterable[str], what: str) -> None:
        self.executor_id = executor_id
        super().__init__(
            f"{what} names the executor {executor_id!r}, which this workflow does not have"
            f"{did_you_mean(executor_id, known)}. Nothing was sent."
        )


# ---------------------------------------------------------------- requests


class RequestError(WorkflowException):
    code = "request"


class NoPendingRequests(RequestError, RuntimeError):
    code = "no_pending_requests"

    def __init__(self, thread_id: str) -> None:
        self.thread_id = thread_id
        super().__init__(
            f"Thread {thread_id!r} has no pending requests, so there is nothing to answer. Nothing was "
            "written. Run the workflow until it asks, or pass the thread_id or checkpoint_id that holds the question."
        )


class UnknownRequest(RequestError, ValueError):
    code = "unknown_request"

    def __init__(self, request_id: str, thread_id: str, pending: Iterable[str]) -> None:
        self.request_id = request_id
        self.thread_id = thread_id
        known = sorted(pending)
        whose = f"Thread {thread_id!r} has no" if thread_id else "No thread waits for the"
        super().__init__(
            f"{whose} request {request_id!r}{did_you_mean(request_id, known)}. Pending: "
            f"{', '.join(map(repr, known)) or 'none'}. None of the given answers was accepted."
        )


class AlreadyAnswered(RequestError, ValueError):
    code = "already_answered"

    def __init__(self, request_id: str, thread_id: str) -> None:
        self.request_id = request_id
        self.thread_id = thread_id
        super().__init__(
            f"Request {request_id!r} of thread {thread_id!r} was answered before; the first answer stands. None "
            "of the given answers was accepted. Leave it out, or rewind to a checkpoint before the answer."
        )


class DuplicateRequest(RequestError, ValueError):
    code = "duplicate_request"

    def __init__(self, request_id: str, first: str, second: str) -> None:
        self.request_id = request_id
        self.executors = (first, second)
        super().__init__(
            f"Executors {first!r} and {second!r} both asked with the request_id {request_id!r} in one superstep. "
            "Nothing of it was kept. Choose different ids, or leave them out to have them made."
        )


class AnswerRejected(RequestError, ValueError):
    code = "answer_rejected"

    def __init__(self, request_id: str, expected: object, answer: object, reason: str) -> None:
        self.request_id = request_id
        self.expected = expected
        super().__init__(
            f"The answer to request {request_id!r} was not accepted: expected {type_name(expected)}, got "
            f"{type_name(type(answer))}{': ' + reason if reason else ''}. The request is still pending and none of "
            "the given answers was accepted."
        )


class NoResponseHandler(RequestError, ValueError):
    code = "no_response_handler"

    def __init__(self, executor_id: str, request_type: object, response_type: object) -> None:
        self.executor_id = executor_id
        super().__init__(
            f"Executor {executor_id!r} has no @response_handler for a request of {type_name(request_type)} answered "
            f"with {type_name(response_type)}. Add one; the request is still pending and no answer was accepted."
        )


class RequestExpired(RequestError):
    code = "request_expired"

    def __init__(self, request_id: str, executor_id: str, deadline: object) -> None:
        self.request_id = request_id
        self.executor_id = executor_id
        super().__init__(
            f"Request {request_id!r} of executor {executor_id!r} was not answered by {deadline}, and it has no "
            "default. It is no longer pending. Ask again, with a later deadline or a default."
        )


class RequestWithdrawn(RequestError):
    """The answer came too late: whoever asked has gone on without it."""

    code = "request_withdrawn"

    def __init__(self, request_id: str, thread_id: str) -> None:
        self.request_id = request_id
        self.thread_id = thread_id
        super().__init__(
            f"Request {request_id!r} of thread {thread_id!r} is no longer pending: whoever asked it went on without an "
            "answer, or was given up. None of the given answers was accepted. Leave it out."
        )


# ---------------------------------------------------------------- running


class WorkflowRunnerException(WorkflowException):
    code = "runner"


class ContextEnded(WorkflowRunnerException, RuntimeError):
    code = "context_ended"

    def __init__(self, executor_id: str) -> None:
        self.executor_id = executor_id
        super().__init__(
            f"The context of a delivery to executor {executor_id!r} was used after its handler had ended, so nobody "
            "would get what it sends or writes. Await such work inside the handler, or make it an executor of its own."
        )


class HandlerCancelled(WorkflowRunnerException, RuntimeError):
    code = "handler_cancelled"

    def __init__(self, executor_id: str) -> None:
        self.executor_id = executor_id
        super().__init__(
            f"A handler of executor {executor_id!r} ended with CancelledError although nobody cancelled the run: "
            "something that it awaited was cancelled. Nothing of the superstep was kept. Catch that error where it "
            "arises."
        )


class TimedOut(WorkflowRunnerException, TimeoutError):
    """An executor or a step took longer than its `timeout`. It was cancelled and has ended."""

    code = "timed_out"

    def __init__(self, executor_id: str, seconds: float) -> None:
        self.executor_id = executor_id
        self.seconds = seconds
        super().__init__(
            f"{executor_id!r} did not end within {seconds:g} s. It was cancelled, and nothing of the attempt was "
            "kept. Give it a longer timeout, or retries."
        )


class ApprovalTimedOut(WorkflowRunnerException, TimeoutError):
    """Nobody said in time whether what an agent said may be used."""

    code = "approval_timed_out"

    def __init__(self, node: str, seconds: float) -> None:
        self.node = node
        self.seconds = seconds
        super().__init__(f"Nobody approved what {node!r} said within {seconds:g} s. It was not used.")


class PredicateFailed(WorkflowRunnerException, ValueError):
    """A function that decides about an edge, or whether somebody is asked, raised an error: told with its place."""

    code = "predicate_failed"


class InputMismatch(WorkflowRunnerException, ValueError):
    """An execution was asked for again, with another input than it has."""

    code = "input_mismatch"

    def __init__(self, execution_id: str, workflow_name: str, known: object, given: object) -> None:
        self.execution_id = execution_id
        super().__init__(
            f"Execution {execution_id!r} of {workflow_name!r} has another input: it was given {_short(known)}, and now "
            f"{_short(given)}. Nothing was run. Resume it with resume({execution_id!r}), or choose another id."
        )


def _short(value: object, most: int = 100) -> str:
    shown = repr(value)
    return shown if len(shown) <= most else f"{shown[: most - 3]}..."


class SubWorkflowFailed(WorkflowRunnerException):
    """A sub-workflow failed, and with it the executor that runs it. `__cause__` is what was raised inside."""

    code = "sub_workflow_failed"

    def __init__(self, executor_id: str, workflow_name: str, error: BaseException) -> None:
        self.executor_id = executor_id
        self.workflow_name = workflow_name
        self.error = error
        super().__init__(
            f"Sub-workflow {workflow_name!r} of executor {executor_id!r} failed: {type(error).__name__}: "
            f"{str(error).rstrip('. ')}. Nothing of the superstep was kept; the thread stands at its last checkpoint, "
            "inside the sub-workflow, and a resume goes on there."
        )


class StepOutsideWorkflow(WorkflowRunnerException, RuntimeError):
    code = "step_outside_workflow"

    def __init__(self, name: str) -> None:
        self.name = name
        super().__init__(
            f"Step {name!r} was called outside of a workflow, where nothing can record its result. Call it from a "
            f"function marked @workflow or from a handler; to call the plain function use {name}.function(...)."
        )


class StepNameTaken(WorkflowRunnerException, ValueError):
    code = "step_name_taken"

    def __init__(self, name: str) -> None:
        self.name = name
        super().__init__(
            f"Two different functions are called as step {name!r}. Results are found by name, so one could be given "
            "to the other. Give one of them another name: @step(name=...) or ctx.step(..., name=...)."
        )


class WrongInputType(WorkflowRunnerException, RuntimeError):
    code = "wrong_input_type"

    def __init__(self, executor_id: str, value: object, accepted: Sequence[object]) -> None:
        self.executor_id = executor_id
        super().__init__(
            f"The start executor {executor_id!r} does not accept {type_name(type(value))}; it accepts "
            f"{_names(accepted)}. Nothing was written. Send one of these types, or add a handler."
        )


class InvalidSelection(WorkflowRunnerException, RuntimeError):
    code = "invalid_selection"


class WorkflowConvergenceException(WorkflowRunnerException):
    code = "no_convergence"

    def __init__(self, thread_id: str, max_iterations: int) -> None:
        self.thread_id = thread_id
        self.max_iterations = max_iterations
        super().__init__(
            f"Thread {thread_id!r} ran {max_iterations} supersteps since its last input and still has messages to "
            "deliver. What was committed is kept. If the loop is meant to be this long, build the workflow "
            "with a higher max_iterations and resume the thread; a team of agents is bounded by max_rounds, "
            "max_round_count or a termination condition."
        )


class StateConflict(WorkflowRunnerException):
    code = "state_conflict"

    def __init__(self, key: str, first: str, second: str) -> None:
        self.key = key
        self.executors = (first, second)
        super().__init__(
            f"Executors {first!r} and {second!r} both wrote the state key {key!r} in one superstep, so neither "
            f"value can be chosen. Nothing of the superstep was kept. Declare how to join them, "
            f"WorkflowBuilder(state={{{key!r}: reducer}}), or let each write a key of its own."
        )


class MissingSecret(WorkflowRunnerException):
    code = "missing_secret"

    def __init__(self, key: str) -> None:
        self.key = key
        super().__init__(
            f"The run argument {key!r} was marked secret, so it is in no checkpoint, and this run was resumed without "
            "it. Pass it again: run(..., function_invocation_kwargs=... or client_kwargs=...)."
        )


class ThreadBusy(WorkflowRunnerException, RuntimeError):
    code = "thread_busy"

    def __init__(self, thread_id: str, run_id: str | None = None, *, is_here: bool = False) -> None:
        self.thread_id = thread_id
        self.run_id = run_id
        self.is_here = is_here
        """Whether it is sure that the run is one of this process."""
        by = f" by run {run_id!r}" if run_id else ""
        super().__init__(
            f"Thread {thread_id!r} is being run{by}. Nothing was written. Wait for it, choose on_busy='enqueue' "
            "or 'interrupt', give this run a thread_id of its own (threads run side by side), or, if that run hangs, "
            "take the thread from it with takeover=True."
        )


class RunInterrupted(WorkflowRunnerException, RuntimeError):
    code = "run_interrupted"

    def __init__(self, run_id: str, thread_id: str, *, has_begun: bool = False) -> None:
        self.run_id = run_id
        self.thread_id = thread_id
        self.has_begun = has_begun
        """Whether it was left in the middle: what was sent is stored, and the thread can be resumed."""
        super().__init__(
            f"Run {run_id!r} left thread {thread_id!r} in the middle, as workflow.leave() asked for. Nothing is lost: "
            f"what was sent and all that ended is stored. Resume it, in any process, with run(thread_id={thread_id!r})."
            if has_begun
            else f"Run {run_id!r} was interrupted while it waited for thread {thread_id!r}, before it had begun. "
            "Nothing was written: what it was to deliver has to be sent again."
        )


class ThreadNotIdle(WorkflowRunnerException, RuntimeError):
    code = "thread_not_idle"

    def __init__(self, thread_id: str, due: int) -> None:
        self.thread_id = thread_id
        super().__init__(
            f"Thread {thread_id!r} was interrupted and still has {due} message(s) to deliver, so a new message "
            f"would overtake them. Nothing was written. Resume it first with run(thread_id={thread_id!r}), or pass "
            "on_busy='enqueue' to let the message wait."
        )


class ThreadConflict(WorkflowRunnerException):
    code = "thread_conflict"

    def __init__(self, thread_id: str, tried: str, found: str) -> None:
        self.thread_id = thread_id
        super().__init__(
            f"Thread {thread_id!r} was moved by somebody else: this run tried to write {tried}, the store has "
            f"{found}. Nothing of it was stored. Open the thread again to go on from where it is now."
        )


class CursorExpired(WorkflowRunnerException):
    code = "cursor_expired"

    def __init__(self, thread_id: str, after: int, oldest: int) -> None:
        self.thread_id = thread_id
        self.oldest = oldest
        super().__init__(
            f"Events of thread {thread_id!r} after {after} are no longer kept; the oldest has seq {oldest}. "
            f"Start from events(after={oldest - 1})."
        )


# ---------------------------------------------------------------- saving and loading


class WorkflowCheckpointException(WorkflowRunnerException):
    code = "checkpoint"


class CheckpointNotFound(WorkflowCheckpointException):
    code = "checkpoint_not_found"

    def __init__(self, checkpoint_id: str) -> None:
        self.checkpoint_id = checkpoint_id
        super().__init__(
            f"There is no checkpoint {checkpoint_id!r} in this storage. It may have been deleted or pruned, or be in "
            "another storage; list_checkpoint_ids() shows what is here."
        )


class ThreadNotFound(WorkflowCheckpointException):
    code = "thread_not_found"

    def __init__(self, thread_id: str) -> None:
        self.thread_id = thread_id
        super().__init__(
            f"There is no thread {thread_id!r} here. Check the id and the storage; list_threads() shows what there is, "
            f"and run(message, thread_id={thread_id!r}) starts one."
        )


class CheckpointPinned(WorkflowCheckpointException, ValueError):
    code = "checkpoint_pinned"

    def __init__(self, checkpoint_id: str) -> None:
        self.checkpoint_id = checkpoint_id
        super().__init__(
            f"Checkpoint {checkpoint_id!r} is pinned, so it was not deleted. Unpin it first: "
            f"await storage.unpin({checkpoint_id!r}), or `perdure unpin {checkpoint_id}`."
        )


class ExecutionNotFound(ThreadNotFound):
    """An execution of a workflow of agents that there is not, or no more."""

    code = "execution_not_found"

    def __init__(self, execution_id: str, workflow_name: str, *, is_kept: bool) -> None:
        WorkflowCheckpointException.__init__(
            self,
            f"There is no execution {execution_id!r} of {workflow_name!r}. Nothing was run. "
            f"run(input, execution_id={execution_id!r}) begins one."
            + ("" if is_kept else " Without with_checkpointing() executions are forgotten when they have ended."),
        )
        self.thread_id = execution_id


class ConversationNotFound(WorkflowCheckpointException):
    """A checkpoint refers to a version of a conversation that the session store does not have."""

    code = "conversation_not_found"

    def __init__(self, session_id: str, version: str) -> None:
        self.session_id = session_id
        self.version = version
        super().__init__(
            f"The session store has no version {version!r} of session {session_id!r}. The session was deleted, or the "
            "execution was begun with another session store, or with one in memory, which ends with its process. "
            "Nothing was written. Use the store that it was begun with, or begin another execution."
        )


class ThreadExists(WorkflowCheckpointException, ValueError):
    code = "thread_exists"

    def __init__(self, thread_id: str, reason: str = "the store has a thread of that id") -> None:
        self.thread_id = thread_id
        self.reason = reason
        super().__init__(
            f"Thread {thread_id!r} was not added: {reason}. Nothing was changed. Give it another thread_id, or delete "
            "the one that is there."
        )


class WrongStateType(WorkflowCheckpointException, TypeError):
    code = "wrong_state_type"

    def __init__(self, key: str, expected: str, got: str, checkpoint_id: str) -> None:
        self.key = key
        super().__init__(
            f"state[{key!r}] of checkpoint {checkpoint_id!r} is {expected}, and the new value is {got}. Nothing was "
            "written. Give a value of the same type; None always fits."
        )


class NoThreadFile(WorkflowCheckpointException, ValueError):
    code = "no_thread_file"

    def __init__(self, path: str, reason: str) -> None:
        self.path = path
        self.reason = reason
        super().__init__(
            f"{path!r} cannot be imported: {reason}. Nothing was imported. Export the thread again, or check how the "
            "file was copied."
        )


class IncompatibleWorkflow(WorkflowCheckpointException):
    code = "incompatible_workflow"

    def __init__(self, checkpoint_id: str, workflow_name: str, differences: Sequence[str]) -> None:
        self.checkpoint_id = checkpoint_id
        self.differences = list(differences)
        listed = "".join(f"\n  - {difference}" for difference in differences)
        super().__init__(
            f"Checkpoint {checkpoint_id!r} was made by a workflow that differs from {workflow_name!r}:{listed}\n"
            "Nothing was changed. Rebuild the workflow as it was, give it migrations=[...] that say what became of "
            "what is stored, or pass force=True to go on with what still fits."
        )


class MigrationFailed(WorkflowCheckpointException):
    code = "migration_failed"

    def __init__(self, migration: str, checkpoint_id: str, thread_id: str, reason: str) -> None:
        self.migration = migration
        self.checkpoint_id = checkpoint_id
        self.thread_id = thread_id
        super().__init__(
            f"Migration {migration!r} failed at checkpoint {checkpoint_id!r} of thread {thread_id!r}: {reason}. "
            "Nothing was changed. Correct it, and try it on everything that is stored: await workflow.check_threads()."
        )


class DamagedCheckpoint(WorkflowCheckpointException):
    code = "damaged_checkpoint"

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
    """What keeps the checkpoints cannot be read as a whole, rather than one checkpoint in it."""

    code = "damaged_store"

    def __init__(self, path: str, reason: str) -> None:
        self.path = path
        self.reason = reason
        super().__init__(
            f"The store {path!r} cannot be read: {reason}. Nothing was changed. Restore it from a backup, or move it "
            "away to begin with an empty one."
        )


class NewerFormat(WorkflowCheckpointException):
    code = "newer_format"

    def __init__(self, path: str, found: object, known: object) -> None:
        self.path = path
        super().__init__(
            f"{path!r} has format {found}; this perdure knows up to {known}. Another version wrote it, and nothing "
            "was changed: use that version, or upgrade perdure."
        )


class CheckpointHookFailed(WorkflowCheckpointException):
    code = "checkpoint_hook_failed"

    def __init__(self, executor_id: str, hook: str, reason: str) -> None:
        self.executor_id = executor_id
        super().__init__(
            f"{hook} of executor {executor_id!r} failed: {reason}. Nothing was saved, and the thread stands at its "
            "last checkpoint. Mend the hook and resume."
        )


class StorageFailed(WorkflowCheckpointException):
    code = "storage_failed"

    def __init__(self, storage: str, action: str, reason: str) -> None:
        super().__init__(
            f"{storage} failed to {action}: {reason}. Nothing was changed; the thread stands at its last checkpoint "
            "and can be resumed once the storage works."
        )


class StoreUnavailable(StorageFailed, ConnectionError):
    """The server of a store cannot be reached, or does not answer."""

    code = "store_unavailable"


class PoolExhausted(StorageFailed, TimeoutError):
    """All connections to the server of a store were in use for too long."""

    code = "pool_exhausted"


class UnsupportedId(WorkflowCheckpointException, ValueError):
    code = "unsupported_id"

    def __init__(self, name: str, value: str, reason: str) -> None:
        self.value = value
        super().__init__(f"The {name} {value!r} cannot be stored here: {reason}. Nothing was written. Choose another.")


class MissingKey(WorkflowCheckpointException):
    """What is stored is encrypted, and the key it needs was not given."""

    code = "missing_key"

    def __init__(self, place: str, key_id: str | None = None) -> None:
        self.place = place
        self.key_id = key_id
        with_which = "" if key_id is None else f" with key {key_id!r}"
        remedy = "Pass encryption=AesGcm(key)" if key_id is None else "Give AesGcm that key too"
        super().__init__(
            f"{place} is encrypted{with_which}, and this key was not given. {remedy}. Nothing was changed."
        )


class PlaintextRefused(WorkflowCheckpointException):
    """Something in an encrypted store is not encrypted: nobody who has the key wrote it."""

    code = "plaintext_refused"

    def __init__(self, place: str, remedy: str = "") -> None:
        self.place = place
        super().__init__(
            f"{place} is not encrypted, and a key was given: whoever wrote it did not have the key, so it is not "
            f"believed. Nothing was changed.{' ' + remedy if remedy else ''}"
        )


class UnsavableValue(WorkflowCheckpointException, TypeError):
    """A value that could not be read back was refused before anything was written."""

    code = "unsavable_value"

    def __init__(self, path: str, reason: str, remedy: str = "") -> None:
        self.path = path
        self.reason = reason
        self.remedy = remedy
        super().__init__(f"Cannot save {path}: {reason}. Nothing was written.{' ' + remedy if remedy else ''}")

    def within(self, whole: str) -> UnsavableValue:
        """The same error, where the value is part of something larger."""
        return UnsavableValue(f"{whole}.{self.path}", self.reason, self.remedy)


class StepArgumentsUnsavable(UnsavableValue):
    """A step is found again by its arguments, and these have no digest. It was not called."""

    code = "step_arguments_unsavable"

    def __init__(self, name: str, error: UnsavableValue) -> None:
        self.name = name
        remedy = "The step was not called. Pass key='...' to say which call it is: ctx.step(..., key='...')."
        super().__init__(error.path, error.reason, remedy)


class UnreadableValue(WorkflowCheckpointException):
    """Stored bytes are not a value that may be built here."""

    code = "unreadable_value"

    def __init__(self, path: str, reason: str, remedy: str = "") -> None:
        self.path = path
        super().__init__(f"Cannot read {path}: {reason}.{' ' + remedy if remedy else ''}")


# ---------------------------------------------------------------- words


def type_name(annotation: object) -> str:
    """How a type is called in a message: `str`, `list[int]`, `Ticket`."""
    if annotation is None or annotation is type(None):
        return "None"
    if isinstance(annotation, type) and not hasattr(annotation, "__args__"):
        return annotation.__qualname__
    return str(annotation).replace("typing.", "")


def did_you_mean(name: str, known: Iterable[str]) -> str:
    close = get_close_matches(name, list(known), n=1)
    return f" (did you mean {close[0]!r}?)" if close else ""


def _names(types: Sequence[object]) -> str:
    return ", ".join(map(type_name, types)) or "nothing"
