"""AgentExecutor: an agent in a graph."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Literal, TypeAlias

import msgspec

from perdure.agents.adapters import adapted
from perdure.agents.conversation.message import AgentSession, Message, as_messages
from perdure.agents.conversation.response import AgentResponse
from perdure.agents.recording import working_for
from perdure.agents.tools import types_of
from perdure.agents.turn import take_live_turn
from perdure.events import WorkflowEvent
from perdure.graph.context import WorkflowContext
from perdure.graph.executor import Executor
from perdure.graph.handlers import handler
from perdure.graph.sub_workflow import agent_name

# ---------------------------------------------------------------- hearing


def unheard(conversation: Sequence[Message], known: Sequence[Message], heard: Any) -> list[Message]:
    """What is new in the conversation that an executor passes on.

    `known` is all that the agent was told and said; if the conversation begins with the end of that, it went on from
    there. `heard` is how far the same executor told it before.
    """
    overlap = 0
    if known:
        ends = range(min(len(known), len(conversation)), 0, -1)
        overlap = next((n for n in ends if conversation[n - 1] == known[-1] and _ends_with(known, conversation[:n])), 0)
    told = 0
    if heard is not None:
        count, last = heard
        told = count if 0 < count <= len(conversation) and conversation[count - 1] == last else 0
    return list(conversation[max(overlap, told) :])


def up_to(conversation: Sequence[Message]) -> Any:
    """To be given as `heard` next time."""
    return [len(conversation), conversation[-1]] if conversation else None


def joined(conversations: Sequence[Sequence[Message]]) -> list[Message]:
    """The beginning that they have in common once, then what each has beside."""
    common = 0
    while conversations and all(common < len(conversation) for conversation in conversations):
        if any(conversation[common] != conversations[0][common] for conversation in conversations):
            break
        common += 1
    shared = conversations[0][:common] if conversations else ()
    return [*shared, *(message for conversation in conversations for message in conversation[common:])]


def _ends_with(known: Sequence[Message], part: Sequence[Message]) -> bool:
    return list(known[len(known) - len(part) :]) == list(part)


ContextMode: TypeAlias = Literal["full", "last_agent", "custom"]
ContextFilter: TypeAlias = Callable[[list[Message]], Sequence[Message]]


class AgentExecutorRequest(msgspec.Struct, frozen=True, omit_defaults=True):
    """Messages for an agent; with `should_respond=False` it only takes note of them."""

    messages: list[Message]
    should_respond: bool = True


class AgentExecutorResponse(msgspec.Struct, frozen=True, omit_defaults=True):
    """What an agent answered, with the whole conversation, for the executor that comes next."""

    executor_id: str
    agent_response: AgentResponse
    full_conversation: list[Message] = []  # msgspec copies it

    def with_text(self, text: str) -> AgentExecutorResponse:
        """The same, as if the agent had said this."""
        kept = self.full_conversation[: len(self.full_conversation) - len(self.agent_response.messages)]
        said = Message("assistant", text, _author(self.agent_response))
        response = msgspec.structs.replace(self.agent_response, messages=(said,), value=None)
        return AgentExecutorResponse(self.executor_id, response, [*kept, said])


def _author(response: AgentResponse) -> str | None:
    return next((message.author_name for message in reversed(response.messages) if message.author_name), None)


class AgentExecutor(Executor):
    """Gives an agent what comes in, and sends on and yields what it answers.

    The agent's session is a part of the thread. `context_mode` says what it is told of the agent before it: the whole
    conversation (`"full"`), only what that agent said (`"last_agent"`), or what `context_filter` makes of it
    (`"custom"`).
    """

    may_end_here = True

    def __init__(
        self,
        agent: Any,
        *,
        session: AgentSession | None = None,
        id: str | None = None,
        context_mode: ContextMode | None = None,
        context_filter: ContextFilter | None = None,
        **policy: Any,
    ) -> None:
        super().__init__(id or agent_name(agent), **policy)
        if (context_mode == "custom") is not (context_filter is not None):
            raise ValueError("context_filter goes with context_mode='custom', and with nothing else.")
        if context_mode not in ("full", "last_agent", "custom", None):
            raise ValueError(f"context_mode is 'full', 'last_agent' or 'custom', got {context_mode!r}.")
        self.agent = agent
        self.description = getattr(agent, "description", None)
        self.value_types = types_of(adapted(agent))
        self._session = session
        self._mode: ContextMode = context_mode or "full"
        self._filter = context_filter

    def reset(self) -> None:
        """Does nothing: what the agent knows belongs to the thread. A new thread begins with nothing."""

    # ------------------------------------------------------------ what comes in

    @handler
    async def run(
        self, request: AgentExecutorRequest, ctx: WorkflowContext[AgentExecutorResponse, AgentResponse]
    ) -> None:
        await self._hear(as_messages(request.messages), ctx, should_respond=request.should_respond)

    @handler
    async def from_response(
        self, prior: AgentExecutorResponse, ctx: WorkflowContext[AgentExecutorResponse, AgentResponse]
    ) -> None:
        await self._hear(self._told_by([prior], ctx), ctx)

    @handler
    async def from_responses(
        self, priors: list[AgentExecutorResponse], ctx: WorkflowContext[AgentExecutorResponse, AgentResponse]
    ) -> None:
        """Of a fan-in: what they have in common is told once."""
        if priors:
            await self._hear(self._told_by(priors, ctx), ctx)
        else:  # an empty list is one of anything: it came from outside
            text = f"Agent {self.id!r} was given no message, so it was not asked. Send a text or a Message."
            await ctx.add_event(WorkflowEvent("warning", text))

    @handler
    async def from_agent_response(
        self, response: AgentResponse, ctx: WorkflowContext[AgentExecutorResponse, AgentResponse]
    ) -> None:
        """What a sub-workflow of agents gives."""
        await self._hear(response.messages, ctx)

    @handler
    async def from_str(self, text: str, ctx: WorkflowContext[AgentExecutorResponse, AgentResponse]) -> None:
        await self._hear(as_messages(text), ctx)

    @handler
    async def from_message(self, message: Message, ctx: WorkflowContext[AgentExecutorResponse, AgentResponse]) -> None:
        await self._hear([message], ctx)

    @handler
    async def from_messages(
        self, messages: list[str | Message], ctx: WorkflowContext[AgentExecutorResponse, AgentResponse]
    ) -> None:
        await self._hear(as_messages(messages), ctx)

    def _told_by(
        self, priors: Sequence[AgentExecutorResponse], ctx: WorkflowContext[AgentExecutorResponse, AgentResponse]
    ) -> list[Message]:
        if self._mode == "last_agent":
            return [message for prior in priors for message in prior.agent_response.messages]
        if self._filter is not None:
            return as_messages(self._filter(joined([prior.full_conversation for prior in priors])))
        known, heard = self.conversation(ctx), dict(ctx.private.get("heard", {}))
        new = [unheard(prior.full_conversation, known, heard.get(prior.executor_id)) for prior in priors]
        for prior in priors:
            heard[prior.executor_id] = up_to(prior.full_conversation)
        ctx.private["heard"] = heard
        return joined(new)

    # ------------------------------------------------------------ the turn

    async def _hear(
        self,
        messages: Sequence[Message],
        ctx: WorkflowContext[AgentExecutorResponse, AgentResponse],
        *,
        should_respond: bool = True,
    ) -> None:
        waiting = [*ctx.private.get("cache", []), *messages]
        if not should_respond:
            ctx.private["cache"] = waiting
            return
        before = self.conversation(ctx)
        said, response = await self.converse(waiting, ctx)
        ctx.private.pop("cache", None)
        conversation = [*before, *said]
        ctx.private.pop("conversation", None)
        if self.conversation(ctx) != conversation:  # else the session says it
            ctx.private["conversation"] = conversation
        await ctx.yield_output(response)
        await ctx.send_message(AgentExecutorResponse(self.id, response, conversation))

    async def converse(
        self, messages: Sequence[Message], ctx: WorkflowContext[Any, Any]
    ) -> tuple[list[Message], AgentResponse]:
        """What is said from these messages on, with them, and the response that is sent on."""
        response = await self.respond(messages, ctx)
        return [*messages, *response.messages], response

    def conversation(self, ctx: WorkflowContext[Any, Any]) -> list[Message]:
        """All that the agent was told and said in this thread."""
        if "conversation" in ctx.private:
            return list(ctx.private["conversation"])
        session = ctx.private.get("session")
        return [] if session is None else session.messages[ctx.private.get("began", 0) :]

    async def respond(self, messages: Sequence[Message], ctx: WorkflowContext[Any, Any]) -> AgentResponse:
        """One turn of the agent, in its session of this thread."""
        session = ctx.private.get("session")
        if session is None:
            session_id = session_id_for(ctx)
            session = AgentSession(session_id=session_id)
            if self._session is not None:
                session = self._session.copy(session_id=session_id)
                ctx.private["began"] = session.version
        response = await take_live_turn(self.agent, messages, session, **run_arguments(ctx))
        ctx.private["session"] = session
        return response


def run_arguments(ctx: WorkflowContext[Any, Any]) -> dict[str, Any]:
    """What was given to this run for tools and model clients, as arguments of an agent's `run`."""
    given = {
        "function_invocation_kwargs": dict(ctx.function_invocation_kwargs),
        "client_kwargs": dict(ctx.client_kwargs),
    }
    return {name: value for name, value in given.items() if value}


def session_id_for(ctx: WorkflowContext[Any, Any]) -> str:
    """Of this executor's agent in this thread, the same in every process; sub-workflows have their own."""
    context = working_for()
    child_id = None if context is None else context.delivery.lane.level.child_id
    return "/".join(str(one) for one in (ctx.thread_id, child_id, ctx.executor_id) if one is not None)
