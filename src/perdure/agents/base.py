"""What an agent is: anything with a name and `run`."""

from __future__ import annotations

from collections.abc import Coroutine
from typing import Any, ClassVar, Literal, Protocol, TypeAlias, overload, runtime_checkable

from perdure.agents.conversation.message import AgentSession, Message, as_messages
from perdure.agents.conversation.response import AgentResponse, AgentResponseUpdate
from perdure.agents.recording import heard_by, new_session_id, record_turn
from perdure.engine.run.result import ResponseStream

AgentStream: TypeAlias = ResponseStream[AgentResponseUpdate, AgentResponse]


@runtime_checkable
class SupportsAgentRun(Protocol):
    """Anything that can be asked: `await agent.run(messages)`, or `agent.run(messages, stream=True)` for updates as
    they come. An agent needs nothing of perdure for it."""

    name: Any

    def run(self, messages: Any = None, *, stream: bool = False, session: Any = None, **kwargs: Any) -> Any: ...


class BaseAgent:
    """Base of agents of your own: a subclass writes `run`. `name` stays the same in every process, since checkpoints
    know the agent by it."""

    records_itself: ClassVar[bool] = False
    """Whether its `run` records what it does, call by call. A turn of one that does not is recorded as a whole."""
    value_types: tuple[Any, ...] = ()
    """The types of its structured outputs: a checkpoint may hold them."""
    keeps_conversation: ClassVar[bool] = False
    """Whether it knows what was said before without being given a session."""

    def __init__(self, name: str, *, id: str | None = None, description: str | None = None) -> None:
        if not name:
            raise ValueError(f"An agent needs a name, got {name!r}. Checkpoints know it by that.")
        self.name = name
        self.id = id or name
        self.description = description

    def create_session(self, *, session_id: str | None = None) -> AgentSession:
        """A new conversation."""
        return AgentSession(session_id=session_id or new_session_id())

    def run(self, messages: Any = None, *, stream: bool = False, session: Any = None, **kwargs: Any) -> Any:
        """Something to await for an AgentResponse or, with `stream`, to iterate for updates."""
        raise NotImplementedError(f"{type(self).__name__} does not write `run`: a subclass has to.")

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.name!r})"


class RecordingAgent(BaseAgent):
    """Base of agents whose turns are made of recorded steps: a subclass writes `turn`."""

    records_itself = True

    async def turn(self, messages: list[Message], session: AgentSession | None, **kwargs: Any) -> AgentResponse:
        """One turn. Calls that must not be repeated go through `record_call`, updates through `tell`: all, or none.
        The session is read here, and added to by `run`. Among the arguments may be `tools` for this turn alone, and
        `response_format`, a type for its structured output."""
        raise NotImplementedError(f"{type(self).__name__} does not write `turn`: a subclass has to.")

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
        """Answer. Inside of a workflow what was recorded is not done again; anywhere else it is just done."""
        given = as_messages(messages)
        if not stream:
            return self._run(given, session, kwargs)

        async def start(put: Any) -> AgentResponse:
            is_told = False

            def listen(update: AgentResponseUpdate, *, replayed: bool) -> None:
                nonlocal is_told
                is_told = True
                put(update)

            with heard_by(listen):
                response = await self._run(given, session, kwargs)
            for update in () if is_told else response.to_updates():  # recorded as a whole, or told as a whole
                put(update)
            return response

        return ResponseStream[AgentResponseUpdate, AgentResponse](start, lambda: False)

    async def _run(
        self, messages: list[Message], session: AgentSession | None, kwargs: dict[str, Any]
    ) -> AgentResponse:
        response = await record_turn(self.name, messages, session, lambda given: self.turn(given, session, **kwargs))
        if session is not None:
            session.add([*messages, *response.messages])
        return response
