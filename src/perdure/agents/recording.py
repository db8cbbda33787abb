"""Recorded turns and calls of agents: a resumed run returns what is recorded instead of calling again."""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import Awaitable, Callable, Coroutine, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from contextvars import ContextVar
from datetime import datetime
from typing import Any, ClassVar, TypeAlias, TypeVar
from uuid import uuid4
from weakref import WeakKeyDictionary

import msgspec

from perdure.agents.conversation.content import Content
from perdure.agents.conversation.json_struct import TwinType, is_own
from perdure.agents.conversation.message import AgentSession, Message
from perdure.agents.conversation.response import AgentResponse
from perdure.agents.conversation.update import AgentResponseUpdate
from perdure.clock import SystemClock, run_with_timeout
from perdure.engine.delivery.context import DeliveryContext
from perdure.engine.delivery.lane import current_context
from perdure.engine.delivery.recorder import Work
from perdure.engine.delivery.replay import frame_of
from perdure.errors import AgentFailed, RequestWithdrawn, TimedOut
from perdure.graph.policy import STOP, RetryPolicy, Seconds, step_policy
from perdure.names import check_identifier
from perdure.twins import to_own

T = TypeVar("T")


class _ChecksInstances(TwinType):
    """A Content is an instance if it approves or rejects, so that the engine rejects any other answer."""

    checks_types = False

    def __instancecheck__(cls, value: Any) -> bool:
        return is_own(value, Content) and _problem(value) is None


class ApprovalResponse(Content, forbid_unknown_fields=True, metaclass=_ChecksInstances):
    """The type of the answer: a `function_approval_response` from `request.approve()`, or as JSON `{"approved": true}`,
    with `reason` or other `arguments`."""

    sample_answer: ClassVar[str] = '{"approved": true}'
    """The command line shows it with the request."""
    type: str = "function_approval_response"

    def __post_init__(self) -> None:
        super().__post_init__()
        problem = _problem(self)
        if problem is not None:
            raise ValueError(problem)


def edited_arguments(answer: Content, call: Content | None) -> dict[str, Any] | None:
    """The arguments of an approval that replace those of the call; None if they are the same."""
    edited = answer.function_call
    if not answer.approved or edited is None or edited.arguments in (None, call and call.arguments):
        return None
    arguments = edited.parse_arguments()
    return None if call is not None and arguments == call.parse_arguments() else arguments


def _problem(answer: Content) -> str | None:
    if answer.type != "function_approval_response":
        return f"Expected a function_approval_response, got a {answer.type}"
    if answer.approved is None:
        return "Expected `approved` to be true or false"
    for call in (answer, answer.function_call):
        try:
            _ = call and call.parse_arguments()
        except ValueError as error:
            return str(error)
    return None


UpdateListener: TypeAlias = Callable[[AgentResponseUpdate, bool], None]
"""Receives an update of a response, and whether an earlier run emitted it: then it completes the response."""
_listener: ContextVar[UpdateListener | None] = ContextVar("perdure_listener", default=None)


def is_streaming() -> bool:
    """Whether a listener receives updates."""
    return _listener.get() is not None


def emit_update(update: AgentResponseUpdate, *, replayed: bool = False) -> None:
    """Emit a part of the response to the listener. Updates are not stored."""
    listener = _listener.get()
    if listener is not None:
        listener(update, replayed)


@contextmanager
def _set(variable: ContextVar[T], value: T) -> Iterator[None]:
    token = variable.set(value)
    try:
        yield
    finally:
        variable.reset(token)


def emit_updates_to(listener: UpdateListener | None) -> AbstractContextManager[None]:
    return _set(_listener, listener)


ReplayListener: TypeAlias = Callable[[str, AgentResponseUpdate], None]
"""Receives the id of an executor, and an update that its agent emitted before an interruption."""
_replay_listener: ContextVar[ReplayListener | None] = ContextVar("perdure_replay_listener", default=None)


def emit_replays_to(listener: ReplayListener) -> AbstractContextManager[None]:
    """For a caller that needs whole responses, including updates of earlier runs."""
    return _set(_replay_listener, listener)


def emit_replay(executor_id: str, update: AgentResponseUpdate) -> None:
    listener = _replay_listener.get()
    if listener is not None:
        listener(executor_id, update)


_answer_deadline: ContextVar[datetime | None] = ContextVar("perdure_answer_deadline", default=None)


def set_answer_deadline(deadline: datetime | None) -> AbstractContextManager[None]:
    """Requests inside expire at the deadline, with RequestExpired."""
    return _set(_answer_deadline, deadline)


current_delivery: Callable[[], DeliveryContext | None] = current_context.get
"""The delivery of this task; None outside of a workflow."""


async def record_turn(
    agent: str,
    messages: Sequence[Message],
    session: AgentSession | None,
    turn: Callable[[list[Message]], Awaitable[AgentResponse]],
) -> AgentResponse:
    """A whole turn as a group of steps. The turn itself is not recorded: an interrupted turn runs again, and its steps
    return their recorded results."""
    context = current_delivery()
    if context is None:
        return await turn(list(messages))

    version = None if session is None else session.version
    response: AgentResponse = await context.group(
        lambda new, version: turn(new), list(messages), version, name=f"{agent}.turn"
    )
    if response.usage_details:
        context.add_usage(response.usage_details)
    return response


class RecordedTurn(msgspec.Struct, frozen=True, omit_defaults=True):
    """The recorded result of a turn of an agent that does not record its steps."""

    response: AgentResponse
    state: dict[str, Any]
    service_session_id: Any = None


async def record_whole_turn(
    agent: str,
    messages: Sequence[Message],
    session: AgentSession | None,
    turn: Callable[[list[Message], AgentSession | None], Awaitable[AgentResponse]],
) -> AgentResponse:
    """Record a whole turn of an agent that does not record its steps, with the changes of its session."""

    async def whole_turn(new: list[Message], version: int | None) -> RecordedTurn:
        own = None if session is None else session.copy()
        response = await turn(new, own)
        return RecordedTurn(response, own.state if own else {}, own.service_session_id if own else None)

    version = None if session is None else session.version  # a session's id differs in each run of a handler
    recorded: RecordedTurn = await record_call(
        whole_turn, list(messages), version, name=f"{agent}.turn", is_shown=False
    )
    context = current_delivery()
    if context is not None and recorded.response.usage_details:
        context.add_usage(recorded.response.usage_details)
    if session is not None:
        session.add([*messages, *recorded.response.messages])
        session.state, session.service_session_id = dict(recorded.state), recorded.service_session_id
    return recorded.response


async def record_call(
    work: Callable[..., Coroutine[Any, Any, Any]],
    *arguments: Any,
    name: str,
    key: str | None = None,
    retry: RetryPolicy | int | None = None,
    timeout: Seconds | None = None,
    is_shown: bool = True,
) -> Any:
    """The result of `work`, recorded by `key` or by its arguments: a recorded call is not repeated. `is_shown`: whether
    the call has events."""
    context = current_delivery()
    policy, attempts = step_policy(name, retry, timeout, STOP), 0
    if context is not None:
        check_identifier("A step's name", name)
        return await context.delivery.session.step(Work(work, arguments, {}, policy), name, key, is_shown=is_shown)
    while True:
        try:
            if policy.timeout is None:
                return await work(*arguments)
            late = TimedOut(name, policy.timeout)
            return await run_with_timeout(policy.timeout, work(*arguments), SystemClock(), late)
        except Exception as error:
            attempts += 1
            if policy.retry is None or not policy.retry.retries(error, attempts):
                raise
        await asyncio.sleep(policy.retry.delay_after(attempts))


_session_counts: WeakKeyDictionary[Any, int] = WeakKeyDictionary()
"""Sessions of each running delivery."""


def new_session_id() -> str:
    """The id of a new session: in a workflow, equal in every run of the delivery."""
    context = current_delivery()
    if context is None:
        return str(uuid4())
    number = _session_counts[context.delivery] = _session_counts.get(context.delivery, 0) + 1
    return f"{context.thread_id}/{context.delivery_name}/{number}"


async def ask(request: Content, response_type: Any, request_id: str) -> Any:
    """Wait for the answer to a request inside of a workflow, also across restarts."""
    context = current_delivery()
    assert context is not None  # noqa: S101  # the caller checks it
    return await context.ask(request, response_type, request_id=request_id, deadline=_answer_deadline.get())


async def ask_for_approval(request: Content, *, key: str) -> Content | None:
    """The answer to a request for approval, with its id and the approved call; a cancelled one is rejected. None
    outside of a workflow, which cannot ask."""
    if current_delivery() is None:
        return None
    try:
        answer: Content = await ask(request, ApprovalResponse, key)
    except RequestWithdrawn:
        return request.to_function_approval_response(False)
    changed = answer.arguments if answer.function_call is None else answer.function_call.arguments
    return request.to_function_approval_response(bool(answer.approved), reason=answer.reason, arguments=changed)


def request_id_for(call_id: str) -> str:
    """The request id of a call: equal in every run of its turn, and different in other turns and threads."""
    context = current_delivery()
    if context is None:
        return call_id
    frame = frame_of(context.delivery)
    turn = "" if frame is None else hashlib.blake2b(frame.call.key.encode(), digest_size=4).hexdigest()
    return "-".join(filter(None, (context.delivery_name, call_id, turn)))


def turn_failure(agent_name: str, error: Exception, advice: str) -> AgentFailed:
    """The failure of a turn that an error of its model or framework ended."""
    text = end_sentence(str(error).strip() or type(error).__name__)
    failure = AgentFailed(agent_name, f"its turn failed with {type(error).__name__}: {text}", advice)
    failure.__cause__ = error
    return failure


def end_sentence(text: str) -> str:
    return text if text.endswith((".", "!", "?")) else f"{text}."


async def is_first_record(name: str, key: str) -> bool:
    """Record a step without a result. Returns False if an earlier run of the delivery has recorded it."""
    is_first = False

    async def note() -> None:
        nonlocal is_first
        is_first = True

    await record_call(note, name=name, key=key)
    return is_first


class BadAnswerRetry:
    """Handles unusable answers of one turn's model: they are recorded, and a repeated turn would get them again."""

    def __init__(self, agent_name: str) -> None:
        self._agent_name = agent_name
        self._count = 0

    async def report(self, failure: AgentFailed) -> None:
        """Raises the failure until the delivery has failed with it. After that it returns, and the turn asks the model
        again. Code that catches the failure gets it again in the next run."""
        self._count += 1
        key = str(self._count)
        is_new = await is_first_record(f"{self._agent_name}.bad_answer", key)

        async def fail_once() -> None:
            if is_new:
                raise failure

        # A second step: a failed delivery discards its failed step, but not the first step.
        await record_call(fail_once, name=f"{self._agent_name}.bad_answer_failure", key=key)


async def ask_user(request: Content) -> Content:
    """The answer to an agent's request, as the agent reads it."""
    request_id = request_id_for(str(request.id or request.call_id))
    if request.type == "function_approval_request":
        return await ask_for_approval(request, key=request_id) or request.to_function_approval_response(False)
    if request.type != "function_call":
        answer: Content = await ask(request, Content, request_id)
        return msgspec.structs.replace(answer, id=request.id)
    try:
        result = to_own(await ask(request, Any, request_id))  # any: the result of the function
    except RequestWithdrawn:
        result = "Error: Tool call was cancelled."
    if isinstance(result, Content) and result.type == "function_result":
        return msgspec.structs.replace(result, call_id=request.call_id)
    return Content.from_function_result(str(request.call_id), result=result)
