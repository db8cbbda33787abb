"""What an agent is: anything with a name and `run`."""

from __future__ import annotations

from collections.abc import Coroutine
from typing import Any, ClassVar, Literal, Protocol, TypeAlias, overload, runtime_checkable

from perdure.agents.conversation.message import AgentSession, Message, as_messages
from perdure.agents.conversation.response import AgentResponse, AgentResponseUpdate
from perdure.agents.recording import emit_updates_to, new_session_id, record_turn
from perdure.engine.run.stream import ResponseStream

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

    def __init__(self, name: str, *, id: str | None = None, description: str | None = None) -> None:
        if not name:
            raise ValueError(f"An agent needs a name, got {name!r}. Checkpoints refer to the agent by its name.")
        self.name = name
        self.id = id or name
        self.description = description

    def create_session(self, *, session_id: str | None = None) -> AgentSession:
        """A new conversation."""
        return AgentSession(session_id=session_id or new_session_id())

    def run(self, messages: Any = None, *, stream: bool = False, session: Any = None, **kwargs: Any) -> Any:
        """Returns an awaitable AgentResponse or, with `stream`, an async iterator of updates."""
        raise NotImplementedError(f"{type(self).__name__} must implement `run`.")

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
            return self._run(new, session, kwargs)

        async def start(put: Any) -> AgentResponse:
            has_updates = False

            def listen(update: AgentResponseUpdate, *, replayed: bool) -> None:
                nonlocal has_updates
                has_updates = True
                put(update)

            with emit_updates_to(listen):
                response = await self._run(new, session, kwargs)
            for update in () if has_updates else response.to_updates():  # a turn without updates of its own
                put(update)
            return response

        return ResponseStream[AgentResponseUpdate, AgentResponse](start, lambda: False)

    async def _run(
        self, messages: list[Message], session: AgentSession | None, kwargs: dict[str, Any]
    ) -> AgentResponse:
        response = await record_turn(self.name, messages, session, lambda new: self.turn(new, session, **kwargs))
        if session is not None:
            session.add([*messages, *response.messages])
        return response
