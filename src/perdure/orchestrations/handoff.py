"""The executors of a handoff: one for each agent, and a coordinator that knows the active agent."""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from typing import Any, TypeAlias

import msgspec

from perdure.agents.base import adapt_agent, agent_name, take_live_turn
from perdure.agents.conversation.message import AgentSession, Message, as_messages
from perdure.agents.conversation.response import AgentResponse
from perdure.agents.executor import session_id_for, turn_arguments
from perdure.agents.tools import Tool, types_of
from perdure.events import WorkflowEvent
from perdure.graph.context import WorkflowContext
from perdure.graph.executor import Executor
from perdure.graph.handlers import handler, response_handler
from perdure.orchestrations.group_chat import TerminationCondition
from perdure.orchestrations.participants import UserInput, clean_conversation_for_handoff

UserAnswer: TypeAlias = list[str | Message] | Message | str
"""The answer to a HandoffAgentUserRequest: messages, as from `create_response`, or just a text."""


class HandoffSentEvent(msgspec.Struct, frozen=True):
    """The data of a `handoff_sent` event."""

    source: str
    target: str


class HandoffAgentUserRequest(msgspec.Struct, frozen=True):
    """An agent has answered without a handoff: the user is asked."""

    agent_response: AgentResponse

    @staticmethod
    def create_response(response: Any) -> list[Message]:
        """The user's answer: a text, a Message, or several. Raises ValueError for no messages, which would end the
        conversation like `terminate()`."""
        messages = as_messages(response)
        if not messages:
            raise ValueError("An answer without messages would end the conversation: use terminate() for that.")
        return messages

    @staticmethod
    def terminate() -> list[Message]:
        """An answer that ends the conversation."""
        return []


class TakeTurn(msgspec.Struct, frozen=True):
    """Starts an agent's turn, with the messages that it has not seen."""

    messages: list[Message]


class AskUser(msgspec.Struct, frozen=True):
    """Lets an agent ask the user, after this response."""

    response: AgentResponse


class UserAnswered(msgspec.Struct, frozen=True):
    """The user's answer to an agent."""

    messages: list[Message]


class TurnTaken(msgspec.Struct, frozen=True):
    """The result of an agent's turn."""

    agent: str
    response: AgentResponse
    target: str | None
    """The target of its handoff."""


COORDINATOR_ID = "handoff"
CONVERSATION = "conversation"
"""The key in the thread's state."""
MAX_HANDOFFS = 100
"""Without a message of the user: it stops agents that hand off to each other in circles."""


def handoff_tool(target: str, name: str, description: str) -> Tool:
    async def hand_off(reason: str | None = None, **more: Any) -> dict[str, str]:  # models often add a reason
        return {"handoff_to": target}

    hand_off.__name__ = hand_off.__qualname__ = name  # other frameworks use this name
    return Tool(hand_off, name=name, description=description, ends_turn=True)


class Autonomy(msgspec.Struct, frozen=True):
    """How an agent continues before it asks the user."""

    prompt: str
    turn_limit: int


class HandoffAgentExecutor(Executor):
    """Runs an agent's turns, with a tool for each target of a handoff, and asks the user in the agent's name."""

    streams_output = True

    def __init__(self, agent: Any, handoffs: Mapping[str, Tool], *, id: str | None = None) -> None:
        super().__init__(id or agent_name(agent))
        self.agent = agent
        self.description = getattr(agent, "description", None)
        self.value_types = types_of(adapt_agent(agent))
        self._handoffs = handoffs

    @handler
    async def take_turn(self, turn: TakeTurn, ctx: WorkflowContext[TurnTaken, AgentResponse]) -> None:
        session = ctx.private.get("session") or AgentSession(session_id=session_id_for(ctx))
        messages = [*ctx.private.pop("unsent", ()), *turn.messages]
        options = turn_arguments(ctx, list(self._handoffs.values()))
        response = await take_live_turn(self.agent, messages, session, is_output=self.streams_output, **options)
        target = self._target(response)
        if target is not None and getattr(self.agent, "resends_results", False):
            ctx.private["unsent"] = list(response.messages[-1:])
        ctx.private["session"] = session
        await ctx.yield_output(response)
        await ctx.send_message(TurnTaken(self.id, response, target))

    @handler
    async def ask_user(self, question: AskUser, ctx: WorkflowContext) -> None:
        await ctx.request_info(HandoffAgentUserRequest(question.response), UserAnswer)

    @response_handler
    async def take_answer(
        self, request: HandoffAgentUserRequest, answer: UserAnswer, ctx: WorkflowContext[UserAnswered]
    ) -> None:
        await ctx.send_message(UserAnswered(as_messages(answer)))

    def _target(self, response: AgentResponse) -> str | None:
        """The target of the first successful handoff: the conversation can continue with one agent only."""
        targets = {tool.name: target for target, tool in self._handoffs.items()}
        results = (result for message in response.messages for result in message.of_type("function_result"))
        performed = {result.call_id for result in results if result.exception is None}
        calls = (call for message in response.messages for call in message.of_type("function_call"))
        return next((targets[call.name] for call in calls if call.name in targets and call.call_id in performed), None)


class HandoffState(msgspec.Struct):
    """The state of the conversation, stored by the coordinator."""

    speaker: str | None = None
    """The active agent, or the agent that waits for the user. None before the conversation begins and after its end."""
    is_working: bool = False
    """Whether an agent's turn is running."""
    seen: dict[str, int] = {}  # msgspec copies it
    """How many messages of the conversation each agent has seen."""
    turns_alone: int = 0
    """Consecutive turns of the speaker in autonomous mode."""
    handoffs: int = 0
    """Handoffs since the last message of the user."""
    pending: list[Message] = []
    """Messages of the user during an agent's turn: they join the conversation after the turn."""


class HandoffCoordinator(Executor):
    """Runs one agent at a time. It alone writes the conversation, so that messages are neither repeated nor lost, even
    if the user sends one during a turn."""

    def __init__(
        self,
        start: str,
        autonomy: Mapping[str, Autonomy],
        termination_condition: TerminationCondition | None,
        *,
        returns_to_previous: bool,
    ) -> None:
        super().__init__(COORDINATOR_ID)
        self._start = start
        self._autonomy = autonomy
        self._termination_condition = termination_condition
        self._returns_to_previous = returns_to_previous

    @handler
    async def from_user(self, user_input: UserInput, ctx: WorkflowContext[TakeTurn]) -> None:
        await self._add_user_messages(as_messages(user_input), ctx)

    @handler
    async def take_answer(self, answer: UserAnswered, ctx: WorkflowContext[TakeTurn]) -> None:
        if answer.messages:
            await self._add_user_messages(answer.messages, ctx)
        else:
            state = _load_state(ctx)
            state.speaker = None
            ctx.private["state"] = state

    @handler
    async def finish_turn(self, turn: TurnTaken, ctx: WorkflowContext[TakeTurn | AskUser]) -> None:
        state = _load_state(ctx)
        autonomy = self._autonomy.get(turn.agent)
        conversation = ctx.get_state(CONVERSATION, [])
        new = clean_conversation_for_handoff(turn.response.messages)
        state.seen[turn.agent] = len(conversation) + len(new)
        from_user, state.pending, state.is_working = state.pending, [], False
        conversation += [*new, *from_user]
        ctx.set_state(CONVERSATION, conversation)
        if from_user:
            state.handoffs = 0
        if (new or from_user) and await self._is_over(conversation):
            state.speaker = None
        elif state.speaker is None and not from_user:
            pass  # the user has ended it meanwhile
        elif turn.target is not None:
            await self._hand_off(turn, turn.target, state, ctx)
        elif from_user:
            await self._start_turn(self._speaker_after_user(state), state, ctx)
        elif autonomy is not None and state.turns_alone < autonomy.turn_limit:
            prompt = Message("user", autonomy.prompt)
            await self._start_turn(turn.agent, state, ctx, prompt, turns_alone=state.turns_alone + 1)
        else:
            await ctx.send_message(AskUser(turn.response), target_id=turn.agent)
        ctx.private["state"] = state

    async def _add_user_messages(self, messages: list[Message], ctx: WorkflowContext[TakeTurn]) -> None:
        new = clean_conversation_for_handoff(messages)
        state = _load_state(ctx)
        if state.is_working:
            state.pending += new
        else:
            state.handoffs = 0
            conversation = [*ctx.get_state(CONVERSATION, []), *new]
            ctx.set_state(CONVERSATION, conversation)
            if new and await self._is_over(conversation):
                state.speaker = None
            else:
                await self._start_turn(self._speaker_after_user(state), state, ctx)
        ctx.private["state"] = state

    def _speaker_after_user(self, state: HandoffState) -> str:
        return state.speaker if state.speaker and self._returns_to_previous else self._start

    async def _hand_off(
        self, turn: TurnTaken, target: str, state: HandoffState, ctx: WorkflowContext[TakeTurn | AskUser]
    ) -> None:
        await ctx.add_event(WorkflowEvent("handoff_sent", HandoffSentEvent(turn.agent, target)))
        if state.handoffs < MAX_HANDOFFS:
            state.handoffs += 1
            await self._start_turn(target, state, ctx)
            return
        state.speaker = target
        text = f"Agents handed off {MAX_HANDOFFS} times in a row; before {target!r} continues, the user is asked."
        await ctx.add_event(WorkflowEvent("warning", text))
        await ctx.send_message(AskUser(turn.response), target_id=turn.agent)

    async def _start_turn(
        self, agent: str, state: HandoffState, ctx: WorkflowContext[Any], *prompts: Message, turns_alone: int = 0
    ) -> None:
        """Prompts are for the agent only: they are not part of the conversation."""
        conversation = ctx.get_state(CONVERSATION, [])
        new = conversation[state.seen.get(agent, 0) :]
        state.seen[agent] = len(conversation)
        state.speaker, state.is_working, state.turns_alone = agent, True, turns_alone
        await ctx.send_message(TakeTurn([*new, *prompts]), target_id=agent)

    async def _is_over(self, conversation: list[Message]) -> bool:
        if self._termination_condition is None:
            return False
        over = self._termination_condition(list(conversation))
        return bool(await over) if inspect.isawaitable(over) else bool(over)


def _load_state(ctx: WorkflowContext[Any, Any]) -> HandoffState:
    state: HandoffState = ctx.private.get("state") or HandoffState()
    return state
