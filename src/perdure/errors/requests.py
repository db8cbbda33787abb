"""Errors of calling `run`, and of answering requests."""

from __future__ import annotations

from collections.abc import Iterable

from perdure.errors.base import WorkflowException, did_you_mean, type_name


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
            f"{storage} has only the six methods of CheckpointStorage, so it has no event log. Use one of "
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
            "The superstep was discarded. Choose different ids, or leave them out: perdure then generates them."
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
    """The answer came too late: its delivery continued without it."""

    code = "request_withdrawn"

    def __init__(self, request_id: str, thread_id: str) -> None:
        self.request_id = request_id
        self.thread_id = thread_id
        super().__init__(
            f"Request {request_id!r} of thread {thread_id!r} is no longer pending: the delivery that asked continued "
            "without an answer, or ended. None of the given answers was accepted. Leave it out."
        )
