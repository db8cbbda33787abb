"""Errors of agents, and of workflows of agents."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from perdure.errors.base import PerdureError, WorkflowException, did_you_mean
from perdure.errors.checkpoints import ThreadNotFound, WorkflowCheckpointException
from perdure.errors.running import WorkflowRunnerException


class AgentFailed(PerdureError, RuntimeError):
    """A turn of an agent did not finish: its model failed, or returned nothing usable."""

    code = "agent_failed"

    def __init__(self, agent_name: str, problem: str, advice: str) -> None:
        self.agent_name = agent_name
        super().__init__(f"Agent {agent_name!r}: {problem} {advice}")


class AnswerNotUsable(AgentFailed, ValueError):
    """The agent's answer lacks the value of the requested type, or the handoff."""

    code = "answer_not_usable"
    asks_again = True
    """The next attempt calls the model again, although its answer is recorded."""

    def __init__(self, agent_name: str, problem: str) -> None:
        advice = "Calls of tools are recorded; a further attempt asks the model again."
        super().__init__(agent_name, problem if problem.endswith((".", "'", '"')) else f"{problem}.", advice)


class UsageLimitReached(AgentFailed):
    code = "usage_limit_reached"


class ApprovalTimedOut(WorkflowRunnerException, TimeoutError):
    """An agent's output was not approved in time."""

    code = "approval_timed_out"

    def __init__(self, node: str, seconds: float) -> None:
        self.node = node
        self.seconds = seconds
        super().__init__(f"The output of {node!r} was not approved within {seconds:g} s, so it was not used.")


class PredicateFailed(WorkflowRunnerException, ValueError):
    """A predicate of an edge, or of an approval, raised an error. The message has its path in the definition."""

    code = "predicate_failed"


class InputMismatch(WorkflowRunnerException, ValueError):
    """An execution exists already, with another input."""

    code = "input_mismatch"

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


class DefinitionNotFound(WorkflowException, LookupError):
    """No definition of a workflow of agents is stored under this name, or none of this version."""

    code = "definition_not_found"

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

    code = "damaged_definition"

    def __init__(self, name: str, reason: str) -> None:
        self.name = name
        self.reason = reason
        super().__init__(
            f"Definition {name!r} cannot be read: {reason}. Other definitions are not affected. Restore the store from "
            "a backup, or delete the definition and save it again."
        )


class InvalidDefinition(WorkflowException, ValueError):
    """A workflow of agents, or its document, is invalid. Lists every problem with its path in the document."""

    code = "invalid_definition"

    def __init__(self, problems: Sequence[tuple[str, str]], source: str | None = None) -> None:
        self.problems = tuple(problems)
        """Pairs of a path, such as `agents.review.retry.max_attempts`, and a sentence."""
        self.source = source
        """The file that was read, if any."""
        lines = [f"{path}: {problem}" if path else problem for path, problem in problems]
        super().__init__("\n".join(f"{source}: {line}" if source else line for line in lines))


class ExecutionNotFound(ThreadNotFound):
    """An execution of a workflow of agents does not exist, or no longer does."""

    code = "execution_not_found"

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

    code = "conversation_not_found"

    def __init__(self, session_id: str, version: str) -> None:
        self.session_id = session_id
        self.version = version
        super().__init__(
            f"The session store has no version {version!r} of session {session_id!r}. The session was deleted, or the "
            "execution began with another session store, or with one in memory, which ends with its process. "
            "Nothing was written. Use the store that it began with, or begin another execution."
        )
