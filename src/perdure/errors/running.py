"""Errors of a run: a handler, a step, an agent, or the thread that it moves."""

from __future__ import annotations

from collections.abc import Sequence

from perdure.errors.base import PerdureError, WorkflowException, type_name, type_names


class WorkflowRunnerException(WorkflowException):
    code = "runner"


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


class StepOutsideWorkflow(WorkflowRunnerException, RuntimeError):
    def __init__(self, name: str) -> None:
        self.name = name
        super().__init__(
            f"Step {name!r} was called outside of a workflow, where nothing can record its result. Call it from a "
            f"function marked @workflow or from a handler; to call the plain function use {name}.function(...)."
        )


class StepNameTaken(WorkflowRunnerException, ValueError):
    def __init__(self, name: str) -> None:
        self.name = name
        super().__init__(
            f"Two different functions are called as step {name!r}. Results are found by name, so one function "
            "could get the other's result. Give one of them another name: @step(name=...) or ctx.step(..., name=...)."
        )


class WrongInputType(WorkflowRunnerException, RuntimeError):
    def __init__(self, executor_id: str, value: object, accepted: Sequence[object]) -> None:
        self.executor_id = executor_id
        super().__init__(
            f"The start executor {executor_id!r} does not accept {type_name(type(value))}; it accepts "
            f"{type_names(accepted)}. Nothing was written. Send one of these types, or add a handler."
        )


class InvalidSelection(WorkflowRunnerException, RuntimeError):
    """A selection function or an orchestrator chose something other than its targets."""


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
            f"Thread {thread_id!r} is being run{by}. Nothing was written. Wait for it, choose on_busy='enqueue' "
            "or 'interrupt', give this run a thread_id of its own (threads run side by side), or, if that run hangs, "
            "take the thread from it with takeover=True."
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
            f"Thread {thread_id!r} was interrupted and still has {due} message(s) to deliver, so a new message "
            f"would overtake them. Nothing was written. Resume it first with run(thread_id={thread_id!r}), or pass "
            "on_busy='enqueue' to let the message wait."
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


def _short(value: object, max_length: int = 100) -> str:
    text = repr(value)
    return text if len(text) <= max_length else f"{text[: max_length - 3]}..."
