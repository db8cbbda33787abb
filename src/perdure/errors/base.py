"""The root of all errors, and errors of what users write: a graph, a definition, a step, an answer, an agent."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from enum import Enum

from perdure.errors.wording import did_you_mean, short_repr as _short, type_name, type_names


class PerdureError(Exception):
    """The root: `except PerdureError` catches everything perdure raises on purpose."""

    code = "error"
    """Stable name for machines; the sentence may change, this does not. A class of this package that does not set it
    has its own name: `ThreadBusy` has `thread_busy`."""

    def __reduce__(self) -> tuple[object, ...]:
        # Errors cross process boundaries and are copied. Calling the class would need its arguments, which are not
        # kept, so a copy starts from the sentence and the attributes.
        return type(self).__new__, (type(self),), {"args": self.args, **self.__dict__}


class WorkflowException(PerdureError):
    code = "workflow"


class WorkflowRunnerException(WorkflowException):
    code = "runner"


class MissingExtra(PerdureError, ImportError):
    def __init__(self, needed_by: str, package: str, extra: str) -> None:
        self.extra = extra
        super().__init__(
            f"{needed_by} needs the package {package!r}, which is not installed: pip install 'perdure[{extra}]'."
        )


class MissingProgram(PerdureError, RuntimeError):
    """A program that perdure needs is not installed, or failed."""


class NotInAsyncCode(PerdureError, RuntimeError):
    """`run_sync` was called inside a running event loop."""


class ValidationTypeEnum(Enum):
    """The kind of mistake in a graph that `build` rejects."""

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


class EdgeDuplicationError(WorkflowValidationError):
    code = "edge_duplication"

    def __init__(self, edge_id: str) -> None:
        self.edge_id = edge_id
        super().__init__(
            f"Duplicate edge detected: {edge_id}. Each edge in the workflow must be unique. To send by condition, give "
            "one switch-case group instead of several edges to one target.",
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
            f"Type incompatibility between executors {source_executor_id!r} -> {target_executor_id!r}. Source executor "
            f"outputs types {type_names(source_types)} but target executor can only handle types "
            f"{type_names(target_types)}. Add a handler for "
            f"one of these types to {target_executor_id!r}, or correct the annotation of {source_executor_id!r}'s "
            "context.",
            ValidationTypeEnum.TYPE_COMPATIBILITY,
        )


class GraphConnectivityError(WorkflowValidationError):
    code = "graph_connectivity"

    def __init__(self, message: str) -> None:
        super().__init__(message, ValidationTypeEnum.GRAPH_CONNECTIVITY)


class DuplicateExecutorId(WorkflowValidationError, ValueError):
    def __init__(self, executor_id: str, problem: str | None = None) -> None:
        self.executor_id = executor_id
        super().__init__(
            f"{problem or f'Duplicate executor ID {executor_id!r} detected in workflow'}. Agent IDs or names must be "
            "unique within a workflow, as those of executors: checkpoints find an executor's state by its id.",
            ValidationTypeEnum.EXECUTOR_DUPLICATION,
        )


class DefinitionNotFound(WorkflowException, LookupError):
    """No definition of a workflow of agents is stored under this name, or none of this version."""

    def __init__(self, name: str, known: Iterable[str] = (), version: str | int | None = None) -> None:
        self.name = name
        self.version = version
        known = list(known)
        text = f"No definition {name!r} exists in this store{did_you_mean(name, known)}."
        if version is not None:
            text = f"Definition {name!r} has no version {version!r}; its versions: {', '.join(known) or 'none'}."
        super().__init__(f"{text} DefinitionStore(storage).list() lists the definitions, and save() stores one.")


class DamagedDefinition(WorkflowException):
    """A stored definition cannot be read. Others are not affected."""

    def __init__(self, name: str, reason: str) -> None:
        self.name = name
        self.reason = reason
        super().__init__(
            f"Definition {name!r} cannot be read: {reason}. Other definitions are not affected. Restore the store from "
            "a backup, or delete the definition and save it again."
        )


class InvalidDefinition(WorkflowException, ValueError):
    """A workflow of agents, or its document, is invalid. Lists every problem with its path in the document."""

    def __init__(self, problems: Sequence[tuple[str, str]], source: str | None = None) -> None:
        self.problems = tuple(problems)
        """Pairs of a path, such as `agents.review.retry.max_attempts`, and a sentence."""
        self.source = source
        """The file that was read, if any."""
        lines = [f"{path}: {problem}" if path else problem for path, problem in problems]
        super().__init__("\n".join(f"{source}: {line}" if source else line for line in lines))


class InvalidFunction(WorkflowException, TypeError, ValueError):
    """A function cannot be a workflow: its parameters or its kind do not fit."""


class InvalidRun(WorkflowException, ValueError):
    """The arguments of a call of `run` have no meaning together."""


class NoStorage(InvalidRun):
    def __init__(self, what: str) -> None:
        super().__init__(
            f"{what} needs a checkpoint storage, and this workflow has none. Pass checkpoint_storage= to the "
            "call, or build the workflow with WorkflowBuilder(checkpoint_storage=...)."
        )


class NoEventLog(InvalidRun):
    def __init__(self, storage: str) -> None:
        super().__init__(
            f"{storage} has only the six methods of CheckpointStorage, so it has no event log. Use one of "
            "perdure's storages, or write a store for it (perdure.store.Store)."
        )


class UnknownExecutor(InvalidRun):
    def __init__(self, executor_id: str, known: Iterable[str], what: str) -> None:
        self.executor_id = executor_id
        super().__init__(
            f"{what} names the executor {executor_id!r}, which this workflow does not have"
            f"{did_you_mean(executor_id, known)}. Nothing was sent."
        )


class RequestError(WorkflowException):
    code = "request"


class NoPendingRequests(RequestError, RuntimeError, ValueError):
    def __init__(self, thread_id: str) -> None:
        self.thread_id = thread_id
        super().__init__(
            "No pending requests found in workflow context: the responses do not correspond to any pending request of "
            f"thread {thread_id!r}. Nothing was written. Run the workflow until it asks, or pass the thread_id or "
            "checkpoint_id that holds the question."
        )


class UnknownRequest(RequestError, ValueError):
    def __init__(self, request_id: str, thread_id: str, pending: Iterable[str]) -> None:
        self.request_id = request_id
        self.thread_id = thread_id
        known = sorted(pending)
        whose = f"Thread {thread_id!r} has no" if thread_id else "No thread waits for the"
        super().__init__(
            # Programs match the id without quotes; an id from outside must not write lines of a log.
            f"Response provided for unknown request ID: {repr(request_id)[1:-1]}. {whose} request {request_id!r}"
            f"{did_you_mean(request_id, known)}. Pending: {', '.join(map(repr, known)) or 'none'}. None of the given "
            "answers was accepted, since some do not answer any of the currently-pending requests."
        )


class AlreadyAnswered(RequestError, ValueError):
    def __init__(self, request_id: str, thread_id: str) -> None:
        self.request_id = request_id
        self.thread_id = thread_id
        super().__init__(
            f"Request {request_id!r} of thread {thread_id!r} was answered before; the first answer stands. None "
            "of the given answers was accepted. Leave it out, or rewind to a checkpoint before the answer."
        )


class DuplicateRequest(RequestError, ValueError):
    def __init__(self, request_id: str, first: str, second: str) -> None:
        self.request_id = request_id
        self.executors = (first, second)
        super().__init__(
            f"Executors {first!r} and {second!r} both asked with the request_id {request_id!r} in one superstep. "
            "The superstep was discarded. Choose different ids, or leave them out: perdure then generates them."
        )


class AnswerRejected(RequestError, ValueError, TypeError):
    def __init__(self, request_id: str, expected: object, answer: object, reason: str) -> None:
        self.request_id = request_id
        self.expected = expected
        super().__init__(
            f"Response type mismatch for request ID {request_id}: expected {type_name(expected)}, got "
            f"{type_name(type(answer))}{': ' + reason if reason else ''}. The answer to request {request_id!r} was not "
            "accepted. The request is still pending and none of the given answers was accepted."
        )


class NoResponseHandler(RequestError, ValueError):
    def __init__(self, executor_id: str, request_type: object, response_type: object) -> None:
        self.executor_id = executor_id
        super().__init__(
            f"Executor {executor_id!r} has no @response_handler for a request of {type_name(request_type)} answered "
            f"with {type_name(response_type)}. Add one; the request is still pending and no answer was accepted."
        )


class RequestExpired(RequestError):
    def __init__(self, request_id: str, executor_id: str, deadline: object) -> None:
        self.request_id = request_id
        self.executor_id = executor_id
        super().__init__(
            f"Request {request_id!r} of executor {executor_id!r} was not answered by {deadline}, and it has no "
            "default. It is no longer pending. Ask again, with a later deadline or a default."
        )


class RequestWithdrawn(RequestError):
    """The request was cancelled, or the answer came too late: its delivery continued without it."""

    def __init__(self, request_id: str, thread_id: str) -> None:
        self.request_id = request_id
        self.thread_id = thread_id
        super().__init__(
            f"Request {request_id!r} of thread {thread_id!r} is no longer pending: it was cancelled, or the delivery "
            "that asked continued or ended without an answer. None of the given answers was accepted. Leave it out."
        )


class StepNameTaken(WorkflowRunnerException, ValueError):
    def __init__(self, name: str) -> None:
        self.name = name
        super().__init__(
            f"Two different functions are called as step {name!r}. Results are found by name, so one function "
            "could get the other's result. Give one of them another name: @step(name=...) or ctx.step(..., name=...)."
        )


class WrongInputType(WorkflowRunnerException, RuntimeError, ValueError):
    def __init__(self, executor_id: str, value: object, accepted: Sequence[object]) -> None:
        self.executor_id = executor_id
        advice = "Send one of these types, or add a handler"
        if list(accepted) == [type(None)]:
            advice = "It has no non-RunContext parameter to receive a message: add it, or call run() without a message"
        super().__init__(
            f"Start executor {executor_id!r} cannot handle input of type {type_name(type(value))!r}; it accepts "
            f"{type_names(accepted)}. Nothing was written. {advice}."
        )


class InvalidSelection(WorkflowRunnerException, RuntimeError, ValueError):
    """A selection function or an orchestrator chose something other than its targets."""


class AgentFailed(PerdureError, RuntimeError):
    """A turn of an agent did not finish: its model failed, or returned nothing usable."""

    def __init__(self, agent_name: str, problem: str, advice: str) -> None:
        self.agent_name = agent_name
        super().__init__(f"Agent {agent_name!r}: {problem} {advice}")


class AnswerNotUsable(AgentFailed, ValueError):
    """The agent's answer lacks the value of the requested type, or the handoff."""

    asks_again = True
    """The next attempt calls the model again, although its answer is recorded."""

    def __init__(self, agent_name: str, problem: str) -> None:
        advice = "Calls of tools are recorded; a further attempt asks the model again."
        super().__init__(agent_name, problem if problem.endswith((".", "'", '"')) else f"{problem}.", advice)


class UsageLimitReached(AgentFailed):
    """A turn of an agent used more than its limit."""


class ApprovalTimedOut(WorkflowRunnerException, TimeoutError):
    """An agent's output was not approved in time."""

    def __init__(self, node: str, seconds: float) -> None:
        self.node = node
        self.seconds = seconds
        super().__init__(f"The output of {node!r} was not approved within {seconds:g} s, so it was not used.")


class PredicateFailed(WorkflowRunnerException, ValueError):
    """A predicate of an edge, or of an approval, raised an error. The message has its path in the definition."""


class InputMismatch(WorkflowRunnerException, ValueError):
    """An execution exists already, with another input."""

    def __init__(self, execution_id: str, workflow_name: str, known: object, given: object) -> None:
        self.execution_id = execution_id
        super().__init__(
            f"Execution {execution_id!r} of {workflow_name!r} has another input: it began with {_short(known)}, and "
            f"this call has {_short(given)}. Nothing was run. Resume it with resume({execution_id!r}), or choose "
            "another id."
        )
