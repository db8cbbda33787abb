"""Recorded turns and calls of agents: a resumed run returns what is recorded instead of calling again."""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import Awaitable, Callable, Coroutine, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from datetime import datetime
from typing import Any, ClassVar, Protocol, TypeAlias
from uuid import uuid4
from weakref import WeakKeyDictionary

import msgspec

from perdure.agents.conversation.content import Content
from perdure.agents.conversation.message import AgentSession, Message
from perdure.agents.conversation.response import AgentResponse, AgentResponseUpdate
from perdure.clock import SystemClock
from perdure.engine.delivery.context import DeliveryContext
from perdure.engine.delivery.lane import current_context
from perdure.engine.steps.attempts import TimeLimitReached, run_with_timeout
from perdure.engine.steps.calls import frame_of
from perdure.errors import AgentFailed, TimedOut
from perdure.graph.policy import STOP, RetryPolicy, Seconds, step_policy


class _ChecksInstances(type(msgspec.Struct)):  # type: ignore[misc]  # msgspec does not name its metaclass
    """A Content is an instance if it approves or rejects, so that the engine refuses any other as an answer."""

    def __instancecheck__(cls, value: Any) -> bool:
        return isinstance(value, Content) and _problem(value) is None


class ApprovalResponse(Content, frozen=True, forbid_unknown_fields=True, metaclass=_ChecksInstances):
    """The type of the answer: a `function_approval_response` such as `request.approve()` gives, or as JSON
    `{"approved": true}`, with `reason` or other `arguments`."""

    sample_answer: ClassVar[str] = '{"approved": true}'
    """Shown to people who are asked on the command line."""
    type: str = "function_approval_response"

    def __post_init__(self) -> None:
        super().__post_init__()
        problem = _problem(self)
        if problem is not None:
            raise ValueError(problem)


def completed(request: Content, answer: Content) -> Content:
    """The answer with the request's id, and the call as it is to be made."""
    call = request.function_call
    if call is None or request.id is None:
        raise ValueError(f"Only a function_approval_request can be answered, this is a {request.type}.")
    changed = answer.arguments if answer.function_call is None else answer.function_call.arguments
    if changed is not None:
        call = msgspec.structs.replace(call, arguments=changed)
    return Content.from_function_approval_response(bool(answer.approved), request.id, call, reason=answer.reason)


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


class UpdateListener(Protocol):
    """Whoever watches a response come in."""

    def __call__(self, update: AgentResponseUpdate, *, replayed: bool) -> None:
        """`replayed`: it was told before, and is told again only so that updates join up to the response."""


_listener: ContextVar[UpdateListener | None] = ContextVar("perdure_listener", default=None)


def is_heard() -> bool:
    """Whether somebody watches, so that streaming is worth it."""
    return _listener.get() is not None


def tell(update: AgentResponseUpdate, *, replayed: bool = False) -> None:
    """Pass on a part of the response. Never kept, so never told to anybody who comes later."""
    listener = _listener.get()
    if listener is not None:
        listener(update, replayed=replayed)


@contextmanager
def heard_by(listener: UpdateListener | None) -> Iterator[None]:
    token = _listener.set(listener)
    try:
        yield
    finally:
        _listener.reset(token)


Repeated: TypeAlias = Callable[[str, AgentResponseUpdate], None]
"""Takes what an executor's agent said before an interruption, with the executor's id."""
_repeated: ContextVar[Repeated | None] = ContextVar("perdure_repeated", default=None)


@contextmanager
def repeated_to(listener: Repeated) -> Iterator[None]:
    """For whoever needs all of a response, and not only what is new in this run."""
    token = _repeated.set(listener)
    try:
        yield
    finally:
        _repeated.reset(token)


def repeat(executor_id: str, update: AgentResponseUpdate) -> None:
    listener = _repeated.get()
    if listener is not None:
        listener(executor_id, update)


_latest: ContextVar[datetime | None] = ContextVar("perdure_latest", default=None)


@contextmanager
def waiting_until(deadline: datetime | None) -> Iterator[None]:
    """People who are asked meanwhile have until then. An answer that does not come raises RequestExpired."""
    token = _latest.set(deadline)
    try:
        yield
    finally:
        _latest.reset(token)


def latest_answer() -> datetime | None:
    """When whoever is asked now must have answered; None: it may take as long as it takes."""
    return _latest.get()


def working_for() -> DeliveryContext | None:
    """The delivery that is being worked for in this task; None outside of a workflow."""
    return current_context.get()


async def record_turn(
    agent: str,
    messages: Sequence[Message],
    session: AgentSession | None,
    turn: Callable[[list[Message]], Awaitable[AgentResponse]],
) -> AgentResponse:
    """A whole turn, whose steps are told from those of other turns. It is not recorded itself, since they are: one that
    was cut short, or waited, is run again and takes what they recorded."""
    context = working_for()
    if context is None:
        return await turn(list(messages))

    async def take_turn(given: list[Message], place: int | None) -> AgentResponse:
        return await turn(given)

    response: AgentResponse = await context.group(take_turn, list(messages), standing(session), name=f"{agent}.turn")
    if response.usage_details:
        context.add_usage(response.usage_details)
    return response


class RecordedTurn(msgspec.Struct, frozen=True, omit_defaults=True):
    """What came of a turn of an agent that keeps its own session."""

    response: AgentResponse
    state: dict[str, Any]
    service_session_id: str | None = None


async def record_whole_turn(
    agent: str,
    messages: Sequence[Message],
    session: AgentSession | None,
    turn: Callable[[list[Message], AgentSession | None], Awaitable[AgentResponse]],
) -> AgentResponse:
    """A turn of an agent that records nothing itself, with what it changes in its session."""

    async def whole_turn(given: list[Message], place: int | None) -> RecordedTurn:
        own = None if session is None else session.copy()
        response = await turn(given, own)
        return RecordedTurn(response, own.state if own else {}, own.service_session_id if own else None)

    made: RecordedTurn = await record_call(whole_turn, list(messages), standing(session), name=f"{agent}.turn")
    context = working_for()
    if context is not None and made.response.usage_details:
        context.add_usage(made.response.usage_details)
    if session is not None:
        session.add([*messages, *made.response.messages])
        session.state, session.service_session_id = dict(made.state), made.service_session_id
    return made.response


def standing(session: AgentSession | None) -> int | None:
    """What tells turns in one session apart. Not its id: one that is made in a handler has another each time."""
    return None if session is None else session.version


async def record_call(
    work: Callable[..., Coroutine[Any, Any, Any]],
    *arguments: Any,
    name: str,
    key: str | None = None,
    retry: RetryPolicy | int | None = None,
    timeout: Seconds | None = None,
) -> Any:
    """What `work` gives, recorded: not done again once it is. Found by `key`, or by its arguments."""
    context = working_for()
    if context is not None:
        return await context.step(work, *arguments, name=name, key=key, retry=retry, timeout=timeout)
    policy, made = step_policy(name, retry, timeout, STOP), 0
    while True:
        try:
            if policy.timeout is None:
                return await work(*arguments)
            return await run_with_timeout(policy.timeout, work(*arguments), SystemClock())
        except TimeLimitReached as late:
            error: Exception = TimedOut(name, policy.timeout or 0)
            error.__cause__ = late.__cause__
        except Exception as raised:  # noqa: BLE001  # raised again, unless it is to be tried again
            error = raised
        made += 1
        if policy.retry is None or not policy.retry.retries(error, made):
            raise error
        await asyncio.sleep(policy.retry.delay_after(made))


_sessions_made: WeakKeyDictionary[Any, int] = WeakKeyDictionary()
"""By delivery, while it runs."""


def new_session_id() -> str:
    """Of a session that is made now: in a workflow the same whenever the delivery is run again."""
    context = working_for()
    if context is None:
        return str(uuid4())
    number = _sessions_made[context.delivery] = _sessions_made.get(context.delivery, 0) + 1
    return f"{context.thread_id}/{context.delivery_name}/{number}"


async def answered(request: Content, *, key: str) -> Content | None:
    """The answer of somebody outside to a request for approval, maybe weeks later. None outside of a workflow, where
    nobody can be asked."""
    context = working_for()
    if context is None:
        return None
    answer = await context.ask(request, ApprovalResponse, request_id=key, deadline=latest_answer())
    return completed(request, answer)


def request_id_for(call_id: str) -> str:
    """Of a call that is to be approved: the same whenever its turn is run again, and of no other turn or thread."""
    context = working_for()
    if context is None:
        return call_id
    frame = frame_of(context.delivery)
    turn = "" if frame is None else hashlib.blake2b(frame.call.key.encode(), digest_size=4).hexdigest()
    return "-".join(filter(None, (context.delivery_name, call_id, turn)))


class DeadEnds:
    """Those of one turn: its model's answers are recorded, and would lead there again whenever the turn is run."""

    def __init__(self, agent_name: str) -> None:
        self._agent_name = agent_name
        self._met = 0

    async def meet(self, failure: AgentFailed) -> None:
        """Raises the failure, until the delivery has failed with it: then the turn is to go on some other way. Code
        that caught it meets it again when it is run again."""
        self._met += 1
        is_new = False

        async def reach() -> None:
            nonlocal is_new
            is_new = True

        async def leave() -> None:
            if is_new:
                raise failure

        key = str(self._met)
        await record_call(reach, name=f"{self._agent_name}.dead_end", key=key)
        # Another step: its failure is taken back when the delivery fails with it, which the first one remembers.
        await record_call(leave, name=f"{self._agent_name}.way_out", key=key)
