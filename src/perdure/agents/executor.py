"""AgentExecutor: an agent in a graph."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import takewhile
from typing import Any, Literal, TypeAlias

import msgspec

from perdure.agents.base import adapt_agent, agent_name, take_live_turn
from perdure.agents.conversation.message import AgentSession, Message, as_messages, as_session, put_all_back
from perdure.agents.conversation.response import AgentResponse, as_response
from perdure.agents.conversation.update import AgentResponseUpdate
from perdure.agents.recording import current_delivery, record_call
from perdure.agents.tools import types_of
from perdure.events import WorkflowEvent
from perdure.graph.context import WorkflowContext
from perdure.graph.executor import Executor
from perdure.graph.handlers import handler
from perdure.twins import Beside


def messages_not_seen(conversation: Sequence[Message], known: Sequence[Message], seen: Any) -> list[Message]:
    """The messages of another executor's conversation that this agent has not seen.

    `known` are all messages of the agent; a conversation that begins with their end continues them. `seen` marks how
    far the agent has seen the conversation of that executor: its length and last message then.
    """
    overlap = 0
    if known:
        ends = (n for n in range(min(len(known), len(conversation)), 0, -1) if conversation[n - 1] == known[-1])
        overlap = next((n for n in ends if list(known[-n:]) == list(conversation[:n])), 0)
    seen_count = 0
    if seen is not None:
        count, last = seen
        seen_count = count if 0 < count <= len(conversation) and conversation[count - 1] == last else 0
    return list(conversation[max(overlap, seen_count) :])


def merge_conversations(conversations: Sequence[Sequence[Message]]) -> list[Message]:
    """Their common beginning once, then the rest of each."""
    common = takewhile(lambda places: places.count(places[0]) == len(places), zip(*conversations, strict=False))
    shared = [places[0] for places in common]
    return [*shared, *(message for conversation in conversations for message in conversation[len(shared) :])]


ContextMode: TypeAlias = Literal["full", "last_agent", "custom"]
ContextFilter: TypeAlias = Callable[[list[Message]], Sequence[Message]]


class AgentExecutorRequest(Beside, msgspec.Struct, omit_defaults=True):
    """Messages for an agent; with `should_respond=False` it only stores them for its next turn."""

    messages: list[Message]
    should_respond: bool = True

    def __post_init__(self) -> None:
        self.messages = as_messages(self.messages)


class AgentExecutorResponse(Beside, msgspec.Struct, omit_defaults=True):
    """The response of an agent with the whole conversation, for the next executor."""

    executor_id: str
    agent_response: AgentResponse
    full_conversation: list[Message] = []  # msgspec copies it

    def __post_init__(self) -> None:
        self.agent_response = as_response(self.agent_response, None)
        self.full_conversation = as_messages(self.full_conversation)

    def with_text(self, text: str) -> AgentExecutorResponse:
        """A copy with this text as the agent's response."""
        before = self.full_conversation[: len(self.full_conversation) - len(self.agent_response.messages)]
        authors = [message.author_name for message in self.agent_response.messages if message.author_name]
        message = Message("assistant", text, authors[-1] if authors else None)
        response = msgspec.structs.replace(self.agent_response, messages=[message], value=None)
        return AgentExecutorResponse(self.executor_id, response, [*before, message])


ResponseContext: TypeAlias = WorkflowContext[AgentExecutorResponse, AgentResponse]


class AgentExecutor(Executor):
    """Runs an agent with incoming messages, and sends on and yields its response.

    The agent's session is a part of the thread. It begins as a copy of `session`, and executors with the same `session`
    share it: an agent gets what the others added in earlier supersteps. The workflow object's default thread also adds
    its turns to `session` itself. `context_mode` selects the messages from the agent before it: the whole
    conversation (`"full"`), only the messages of that agent (`"last_agent"`), or the result of `context_filter`
    (`"custom"`). With `ensure_trailing_user_turn` the agent is asked to continue if the last message is an assistant's,
    which some services reject; that message is not part of the conversation.
    """

    may_end_here = True
    is_stateless = True
    streams_output = True

    def __init__(
        self,
        agent: Any,
        *,
        session: AgentSession | None = None,
        id: str | None = None,
        context_mode: ContextMode | None = None,
        context_filter: ContextFilter | None = None,
        ensure_trailing_user_turn: bool = False,
        **policy: Any,
    ) -> None:
        super().__init__(id or agent_name(agent), **policy)
        if context_mode not in ("full", "last_agent", "custom", None):
            raise ValueError(f"context_mode must be one of 'full', 'last_agent', or 'custom', got {context_mode!r}.")
        if (context_mode == "custom") is not (context_filter is not None):
            raise ValueError("context_filter must be provided when context_mode is set to 'custom', and only then.")
        self.agent = agent
        self.description = getattr(agent, "description", None)
        self.value_types = types_of(adapt_agent(agent))
        start = as_session(session)
        self._session, self._shared_session = start and start.copy(), session
        self._mode: ContextMode = context_mode or "full"
        self._filter = context_filter
        self._ends_with_user = ensure_trailing_user_turn

    def reset(self) -> None:
        """Does nothing: the conversation belongs to the thread. A new thread begins without messages."""

    @handler
    async def run(
        self,
        request: AgentExecutorRequest,
        ctx: WorkflowContext[AgentExecutorResponse, AgentResponse | AgentResponseUpdate],
    ) -> None:
        if request.should_respond:
            await self._respond_to(request.messages, ctx)
        else:
            ctx.private["cache"] = [*ctx.private.get("cache", []), *request.messages]

    @handler
    async def from_response(self, prior: AgentExecutorResponse, ctx: ResponseContext) -> None:
        await self._respond_to_agents([prior], ctx)

    @handler
    async def from_responses(self, priors: list[AgentExecutorResponse], ctx: ResponseContext) -> None:
        """For a fan-in: the common beginning of the conversations counts once."""
        if priors:
            await self._respond_to_agents(priors, ctx)
        else:  # an empty list matches every list type: it came from outside
            text = f"Agent {self.id!r} got no message, so it did not run. Send a text or a Message."
            await ctx.add_event(WorkflowEvent("warning", text))

    @handler
    async def from_agent_response(self, response: AgentResponse, ctx: ResponseContext) -> None:
        """For the output of a sub-workflow of agents."""
        await self._respond_to(response.messages, ctx)

    @handler
    async def from_str(self, text: str, ctx: ResponseContext) -> None:
        await self._respond_to(as_messages(text), ctx)

    @handler
    async def from_message(self, message: Message, ctx: ResponseContext) -> None:
        await self._respond_to([message], ctx)

    @handler
    async def from_messages(self, messages: list[str | Message], ctx: ResponseContext) -> None:
        await self._respond_to(as_messages(messages), ctx)

    async def _respond_to_agents(self, priors: Sequence[AgentExecutorResponse], ctx: ResponseContext) -> None:
        await self._join_session(ctx)
        conversation = merge_conversations([prior.full_conversation for prior in priors])
        if self._mode == "last_agent":
            await self._respond_to([message for prior in priors for message in prior.agent_response.messages], ctx)
        elif self._filter is not None:
            await self._respond_to(as_messages(self._filter(conversation)), ctx)
        else:
            known, seen = self.conversation(ctx), dict(ctx.private.get("seen", {}))
            new = [messages_not_seen(prior.full_conversation, known, seen.get(prior.executor_id)) for prior in priors]
            for prior in priors:
                its = prior.full_conversation
                seen[prior.executor_id] = [len(its), its[-1]] if its else None
            ctx.private["seen"] = seen
            await self._respond_to(conversation, ctx, merge_conversations(new))

    def _new(self, messages: Sequence[Message], ctx: WorkflowContext[Any, Any]) -> list[Message]:
        """The messages without the beginning that the agent knows: a coordinator may send the whole conversation."""
        return messages_not_seen(messages, self.conversation(ctx), None) or list(messages)

    async def _respond_to(
        self, messages: Sequence[Message], ctx: ResponseContext, new: Sequence[Message] | None = None
    ) -> None:
        """A turn with these messages, and what it adds to them for the next executor."""
        if new is None:
            await self._join_session(ctx)
        cache = ctx.private.get("cache", [])
        sent = [*cache, *messages]
        waiting = self._new(sent, ctx) if new is None else [*self._new(cache, ctx), *new]
        before = self.conversation(ctx)
        repeated = sent[: len(sent) - len(waiting)] if sent[len(sent) - len(waiting) :] == waiting else []
        added, response = await self.converse(waiting, ctx, repeated)
        ctx.private.pop("cache", None)
        conversation = [*before, *added]
        ctx.private.pop("conversation", None)
        if self.conversation(ctx) != conversation:  # else the session has it
            ctx.private["conversation"] = conversation
        await ctx.yield_output(response)
        await ctx.send_message(AgentExecutorResponse(self.id, response, [*sent, *added[len(waiting) :]]))

    async def converse(
        self, messages: Sequence[Message], ctx: WorkflowContext[Any, Any], repeated: Sequence[Message] = ()
    ) -> tuple[list[Message], AgentResponse]:
        """The messages from these on, including these, and the response that is sent on. `repeated` are earlier
        messages of the conversation that were sent again."""
        response = await self.respond(messages, ctx, repeated)
        return [*messages, *response.messages], response

    def conversation(self, ctx: WorkflowContext[Any, Any]) -> list[Message]:
        """All messages of the agent in this thread."""
        if "conversation" in ctx.private:
            return list(ctx.private["conversation"])
        session = ctx.private.get("session")
        return [] if session is None else session.messages[ctx.private.get("began", 0) :]

    async def respond(
        self, messages: Sequence[Message], ctx: WorkflowContext[Any, Any], repeated: Sequence[Message] = ()
    ) -> AgentResponse:
        """One turn of the agent, in its session of this thread."""
        session = ctx.private.get("session")
        if session is None:
            session_id = session_id_for(ctx)
            session = AgentSession(session_id=session_id)
            if self._session is not None:
                session = self._session.copy(session_id=session_id)
                ctx.private["began"] = session.version
        is_asked = self._ends_with_user and messages and messages[-1].role == "assistant"
        asked = [Message("user", CONTINUE)] if is_asked else []
        options = {"repeated": repeated, "is_output": self.streams_output, **turn_arguments(ctx)}
        response = await take_live_turn(self.agent, [*messages, *asked], session, **options)
        ctx.private["session"] = session
        context = current_delivery()
        if self._session is not None and context is not None and context.delivery.lane.scope.thread.is_default:
            put_all_back(session, self._shared_session)
        return response

    async def _join_session(self, ctx: WorkflowContext[Any, Any]) -> None:
        """Continue the session as the executors that share it left it: the longest one has all that they added."""
        context = current_delivery()
        if self._session is None or context is None:
            return
        lane, start = context.delivery.lane, self._session
        executors, kept = lane.level.compiled.graph.executors, lane.position.private
        sharing = [
            name for name, other in executors.items() if getattr(other, "_shared_session", None) is self._shared_session
        ]

        async def find_longest() -> AgentSession | None:
            sessions = [kept[name]["session"] for name in sharing if "session" in kept.get(name, {})]
            longest = max(sessions, key=lambda session: session.version, default=start)
            return longest if longest.version > ctx.private.get("session", start).version else None

        if len(sharing) > 1:  # recorded, since others may move on while this delivery waits for an answer
            joined = await record_call(find_longest, name=f"{self.id}.session", is_shown=False)
            if joined is not None:
                ctx.private["session"] = joined.copy(session_id=session_id_for(ctx))
                ctx.private["began"] = start.version
                ctx.private.pop("conversation", None)


CONTINUE = "please continue."


def run_arguments(ctx: WorkflowContext[Any, Any]) -> dict[str, Any]:
    """The run's arguments for tools and model clients, as arguments of an agent's `run`."""
    names = ("function_invocation_kwargs", "client_kwargs")
    return {name: dict(arguments) for name in names if (arguments := getattr(ctx, name))}


def turn_arguments(ctx: WorkflowContext[Any, Any], tools: Sequence[Any] = ()) -> dict[str, Any]:
    """`run_arguments`, with these tools and those of the run."""
    all_tools = [*tools, *(ctx.get_runtime_tools() or ())]
    return {**run_arguments(ctx), **({"tools": all_tools} if all_tools else {})}


def session_id_for(ctx: WorkflowContext[Any, Any]) -> str:
    """The session id of this executor's agent in this thread: equal in every process, and different in
    sub-workflows."""
    context = current_delivery()
    child_id = None if context is None else context.delivery.lane.level.child_id
    return "/".join(str(part) for part in (ctx.thread_id, child_id, ctx.executor_id) if part is not None)
