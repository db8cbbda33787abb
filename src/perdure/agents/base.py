"""The contract of agents: a name and `run`. One turn of any agent, its messages and response as ours."""

from __future__ import annotations

import asyncio
import inspect
import sys
from collections.abc import Collection, Coroutine, Iterable, Mapping, Sequence
from importlib import import_module
from itertools import chain, count
from typing import Any, ClassVar, Literal, Protocol, TypeAlias, overload, runtime_checkable
from uuid import UUID, uuid4

import msgspec

from perdure.agents.conversation.content_fields import add_usage
from perdure.agents.conversation.json_struct import framework_class
from perdure.agents.conversation.message import AgentSession, Message, as_messages, as_session, put_back
from perdure.agents.conversation.response import AgentResponse, as_response
from perdure.agents.conversation.update import AgentResponseUpdate, as_update
from perdure.agents.recording import (
    ask_user,
    current_delivery,
    emit_replay,
    emit_update,
    emit_updates_to,
    is_streaming,
    new_session_id,
    record_turn,
    record_whole_turn,
)
from perdure.engine.run.stream import ResponseStream, StreamWork
from perdure.errors import InvalidRun

AgentStream: TypeAlias = ResponseStream[AgentResponseUpdate, AgentResponse]


@runtime_checkable
class SupportsAgentRun(Protocol):
    """An agent: `await agent.run(messages)`, or `agent.run(messages, stream=True)` for updates. It needs nothing of
    perdure."""

    name: Any

    def run(self, messages: Any = None, *, stream: bool = False, session: Any = None, **kwargs: Any) -> Any: ...


class BaseAgent:
    """Base of your own agents: a subclass writes `run`. `name` must stay the same in every process, since checkpoints
    refer to it."""

    records_itself: ClassVar[bool] = False
    """Whether `run` records each call. Otherwise a turn is recorded as a whole."""
    value_types: tuple[Any, ...] = ()
    """The types of its structured outputs: a checkpoint may hold them."""
    keeps_conversation: ClassVar[bool] = False
    """Whether it remembers earlier messages without a session."""
    reads_session: bool = False
    """Whether it gets the messages of its session itself: a conversation that comes back is not repeated to it."""

    def __init__(
        self,
        name: str | None = None,
        *,
        id: str | None = None,
        description: str | None = None,
        context_providers: Sequence[Any] | None = None,
        middleware: Sequence[Any] | None = None,
        additional_properties: Mapping[str, Any] | None = None,
    ) -> None:
        """The last three are for your `run`, as in Agent Framework. Without a name and an id, a workflow names the
        agent by its class."""
        if self.records_itself and not (name or id):
            raise ValueError(f"An agent needs a name, got {name!r}. Checkpoints refer to its steps by the name.")
        self.name: Any = name or id
        self.id = id or name or str(uuid4())
        self.description = description
        self.context_providers = list(context_providers or ())
        self.middleware = list(middleware or ())
        self.additional_properties = dict(additional_properties or {})

    def create_session(self, *, session_id: str | None = None) -> AgentSession:
        """A new conversation."""
        return AgentSession(session_id=session_id or new_session_id())

    def get_session(self, service_session_id: Any, *, session_id: str | None = None) -> AgentSession:
        """A conversation that the model's service stores under this id."""
        return AgentSession(session_id=session_id or new_session_id(), service_session_id=service_session_id)

    def run(self, messages: Any = None, *, stream: bool = False, session: Any = None, **kwargs: Any) -> Any:
        """Returns an awaitable AgentResponse or, with `stream`, an async iterator of updates."""
        raise NotImplementedError(f"{type(self).__name__} must implement `run`.")

    def as_tool(self, **options: Any) -> Any:
        """A tool for agents of Agent Framework, which runs this agent. `options` are those of their `as_tool`."""
        base = framework_class("BaseAgent")
        if base is None:
            raise RuntimeError(f"as_tool makes {self.name!r} a tool of Agent Framework: import agent_framework first.")
        return base.as_tool(self, **options)

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.name!r})"


class RecordingAgent(BaseAgent):
    """Base of agents whose turns consist of recorded steps: a subclass writes `turn`."""

    records_itself = True

    async def turn(self, messages: list[Message], session: AgentSession | None, **kwargs: Any) -> AgentResponse:
        """One turn. Calls that must not be repeated use `record_call`; updates are emitted completely or not at all.
        The method reads the session, and `run` adds to it. `tools` may be given for this turn, and `response_format`, a
        type for structured output."""
        raise NotImplementedError(f"{type(self).__name__} must implement `turn`.")

    @overload  # type: ignore[override]  # there is one more in the supertype: for a plain bool
    def run(
        self,
        messages: Any = None,
        *,
        stream: Literal[False] = False,
        session: AgentSession | None = None,
        **kwargs: Any,
    ) -> Coroutine[Any, Any, AgentResponse]: ...
    @overload
    def run(
        self, messages: Any = None, *, stream: Literal[True], session: AgentSession | None = None, **kwargs: Any
    ) -> AgentStream: ...
    def run(
        self, messages: Any = None, *, stream: bool = False, session: AgentSession | None = None, **kwargs: Any
    ) -> Any:
        """Take a turn. Inside of a workflow, recorded calls are not repeated."""
        new = as_messages(messages)
        if not stream:
            return self._run_in(session, new, kwargs)

        async def start(put: Any) -> AgentResponse:
            has_updates = False

            def listen(update: AgentResponseUpdate, replayed: bool) -> None:
                nonlocal has_updates
                has_updates = True
                put(update)

            with emit_updates_to(listen):
                response = await self._run_in(session, new, kwargs)
            if response.messages and not has_updates:  # a turn without updates of its own
                for update in response.to_updates():
                    put(update)
            return response

        return ResponseStream[AgentResponseUpdate, AgentResponse](StreamWork(start))

    async def _run_in(self, session: Any, messages: list[Message], kwargs: dict[str, Any]) -> AgentResponse:
        own = as_session(session)
        response = await self._run(messages, own, kwargs)
        if own is not None and own is not session:
            put_back(own, session)
        return response

    async def _run(
        self, messages: list[Message], session: AgentSession | None, kwargs: dict[str, Any]
    ) -> AgentResponse:
        response = await record_turn(self.name, messages, session, lambda new: self.turn(new, session, **kwargs))
        if session is not None:
            session.add([*messages, *response.messages])
        return response


def has_name(agent: Any) -> bool:
    """Whether it has a name, or an id that is equal in every process: a UUID is not."""
    name = getattr(agent, "name", None) or getattr(agent, "id", None)
    if not isinstance(name, str) or not name:
        return False
    try:
        UUID(name)
    except ValueError:
        return True
    return False


def agent_name(agent: Any, taken: Collection[str] = ()) -> str:
    """The agent's name. An agent without a name has that of its class, with a number if the name is `taken`."""
    if has_name(agent):
        return str(getattr(agent, "name", None) or agent.id)
    name = type(agent).__name__
    return next(free for free in chain((name,), (f"{name}-{number}" for number in count(2))) if free not in taken)


def resolve_agent_id(agent: Any) -> str:
    """The id of an agent's executor: the agent's name, or its id."""
    return agent_name(agent)


def is_from(message: Message, agent_name: str) -> bool:
    """Whether it is a message of this agent, not of another."""
    return message.role == "assistant" and message.author_name in (None, agent_name)


def calls_of(conversation: Iterable[Message], agent_name: str) -> set[str | None]:
    """Ids of the calls that this agent made: a model gets results of its own calls only."""
    own = (message for message in conversation if is_from(message, agent_name))
    return {call.call_id for message in own for call in message.of_type("function_call")}


_ADAPTERS = {
    "agent_framework": "perdure.agents.adapters.agent_framework",
    "pydantic_ai": "perdure.agents.pydantic.agent",
    "agents": "perdure.agents.adapters.openai_agents",
    "langgraph": "perdure.agents.adapters.langgraph",
    "langchain_core": "perdure.agents.adapters.langgraph",
}
"""By the package of an agent's class: the module with its `adapt`, imported with the first agent of its framework."""
_MARKS = {"agents": "Runner"}
"""A name that identifies the package: other projects have a package `agents` too."""


def adapt_agent(agent: Any) -> Any:
    """The agent with the protocol of `SupportsAgentRun`; unchanged if it has it already."""
    if getattr(agent, "records_itself", None) is not None:
        return agent
    for kind in type(agent).__mro__:
        package = kind.__module__.partition(".")[0]
        module = _ADAPTERS.get(package)
        if module is not None and hasattr(sys.modules.get(package), _MARKS.get(package, "__name__")):
            return import_module(module).adapt(agent)
    return agent


async def take_turn(
    agent: Any,
    messages: Sequence[Message],
    session: AgentSession | None = None,
    repeated: Sequence[Message] = (),
    **kwargs: Any,
) -> AgentResponse:
    """The response of an agent. Requests that it makes are answered during the turn. The session gets all messages.
    `repeated` are messages of the session that were sent again, before these."""
    agent = adapt_agent(agent)
    new = list(messages)
    recorded: list[Message] = []
    usage: dict[str, int] | None = None
    while True:
        response = await _take_recorded_turn(agent, new, session, repeated, kwargs)
        repeated = ()
        recorded += response.messages
        usage = response.usage_details if usage is None else add_usage(usage, response.usage_details)
        requests = response.user_input_requests
        if not requests or current_delivery() is None:
            break
        answers = await asyncio.gather(*map(ask_user, requests))
        is_result = all(answer.type == "function_result" for answer in answers)
        answering = Message("tool" if is_result else "user", answers)
        has_memory = session is not None or getattr(agent, "keeps_conversation", False)
        new = [answering] if has_memory else [*new, *response.messages, answering]
        recorded.append(answering)
    if len(recorded) == len(response.messages):
        return response
    return msgspec.structs.replace(response, messages=recorded, usage_details=usage)


async def take_live_turn(
    agent: Any,
    messages: Sequence[Message],
    session: AgentSession | None = None,
    *,
    is_output: bool = False,
    **kwargs: Any,
) -> AgentResponse:
    """`take_turn` in a handler: new updates are emitted to subscribers of the run. `is_output`: whether the response is
    the executor's next output."""
    context = current_delivery()
    if context is None:
        raise InvalidRun("take_live_turn needs a workflow. Outside of a workflow use `agent.run`.")
    name = agent_name(agent)

    def listen(update: AgentResponseUpdate, replayed: bool) -> None:
        is_named = update.author_name is not None or update.role not in (None, "assistant")
        named = update if is_named else msgspec.structs.replace(update, author_name=name)
        if replayed:
            emit_replay(context.delivery.lane.full_id, named)
        else:
            context.emit_live(named, is_output=is_output)

    with emit_updates_to(listen if context.is_streaming() else None):
        return await take_turn(agent, messages, session, **kwargs)


async def _take_recorded_turn(
    agent: Any, messages: list[Message], session: AgentSession | None, repeated: Sequence[Message], kwargs: Any
) -> AgentResponse:
    if getattr(agent, "records_itself", False):
        response: AgentResponse = await agent.run(messages, session=session, **kwargs)
        return response
    name = agent_name(agent)

    async def turn(new: list[Message], own: AgentSession | None) -> AgentResponse:
        known = 0 if own is None else own.version - len(repeated)
        may_ignore_session = not getattr(agent, "reads_session", False)
        if own is not None and may_ignore_session and own.messages[known:] == list(repeated):
            new, own.messages = [*repeated, *new], own.messages[:known]
        return await run_agent(agent, name, new, own, kwargs)

    return await record_whole_turn(name, messages, session, turn)


_NO_ARGUMENTS = {"function_invocation_kwargs": None, "client_kwargs": None}
"""Agents of Agent Framework always get both arguments of the run."""


async def run_agent(agent: Any, name: str, messages: list[Any], session: Any, kwargs: Any) -> AgentResponse:
    """An agent gets those arguments that it has parameters for. One without a `session` gets all earlier messages."""
    takes = parameters_of(agent)
    arguments = {**_NO_ARGUMENTS, **kwargs} if isinstance(agent, BaseAgent) else kwargs
    options = {key: value for key, value in arguments.items() if takes is None or key in takes}
    if takes is None or "session" in takes:
        options["session"] = session
    elif session is not None:
        messages = [*session.messages, *messages]
    if not is_streaming() or (takes is not None and "stream" not in takes):
        return as_response(await _resolve(agent.run(messages, **options)), name)
    stream, updates = await _resolve(agent.run(messages, stream=True, **options)), []
    async for item in stream:
        updates.append(as_update(item, name))
        emit_update(updates[-1])
    final = getattr(stream, "get_final_response", None)
    if final is not None:  # the response of a run without streaming
        return as_response(await _resolve(final()), name)
    return AgentResponse.from_updates(updates)


async def _resolve(value: Any) -> Any:
    """Some agents return a stream, others a coroutine that returns one."""
    return await value if inspect.isawaitable(value) and not hasattr(value, "__aiter__") else value


def parameters_of(agent: Any) -> frozenset[str] | None:
    """The parameter names of its `run`; None if it accepts any."""
    try:
        parameters = inspect.signature(agent.run).parameters.values()
    except (TypeError, ValueError):
        return None
    if any(parameter.kind is parameter.VAR_KEYWORD for parameter in parameters):
        return None
    return frozenset(parameter.name for parameter in parameters)
