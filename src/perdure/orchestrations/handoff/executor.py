"""The executors of a handoff: one for each agent, and the floor, which knows whose turn it is."""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from typing import Any, TypeAlias

import msgspec

from perdure.agents.adapters import adapted
from perdure.agents.conversation.message import AgentSession, Message, as_messages
from perdure.agents.conversation.response import AgentResponse
from perdure.agents.executor import run_arguments, session_id_for
from perdure.agents.tools import Tool, types_of
from perdure.agents.turn import take_live_turn
from perdure.events import WorkflowEvent
from perdure.graph.context import WorkflowContext
from perdure.graph.executor import Executor
from perdure.graph.handlers import handler, response_handler
from perdure.graph.sub_workflow import agent_name
from perdure.orchestrations.group_chat.types import TerminationCondition
from perdure.orchestrations.participants import clean_conversation_for_handoff

# ---------------------------------------------------------------- handoff messages


UserAnswer: TypeAlias = list[str | Message] | Message | str
"""What a HandoffAgentUserRequest is answered with: messages, as `create_response` makes them, or just a text."""


class HandoffSentEvent(msgspec.Struct, frozen=True):
    """The data of a `handoff_sent` event."""

    source: str
    target: str


class HandoffAgentUserRequest(msgspec.Struct, frozen=True):
    """An agent has answered without a handoff: it is the user's turn."""

    agent_response: AgentResponse

    @staticmethod
    def create_response(response: Any) -> list[Message]:
        """What the user says: a text, a Message, or several. Raises ValueError for nothing, which would be
        `terminate()`."""
        said = as_messages(response)
        if not said:
            raise ValueError("An answer without messages would end the conversation: say so with terminate().")
        return said

    @staticmethod
    def terminate() -> list[Message]:
        """Nothing more: the conversation ends."""
        return []


class TakeTurn(msgspec.Struct, frozen=True):
    """It is an agent's turn: all that it has not heard yet."""

    messages: list[Message]


class TurnTaken(msgspec.Struct, frozen=True):
    """What an agent made of its turn."""

    agent: str
    response: AgentResponse
    target: str | None
    """Whom it hands off to."""


FLOOR_ID = "handoff"
CONVERSATION = "conversation"
"""The key in the thread's state."""
MOST_HANDOFFS = 100
"""Without a word of the user: agents that send each other round in circles are not left alone for ever."""


class HandoffRoute(msgspec.Struct, frozen=True):
    """One way to hand off, as an agent is offered it."""

    target: str
    tool_name: str
    description: str

    def tool(self) -> Tool:
        target = self.target

        async def hand_off(reason: str | None = None, **more: Any) -> dict[str, str]:  # models like to say why
            return {"handoff_to": target}

        hand_off.__name__ = hand_off.__qualname__ = self.tool_name  # what other frameworks call it by
        return Tool(hand_off, name=self.tool_name, description=self.description, ends_turn=True)


class Autonomy(msgspec.Struct, frozen=True):
    """How an agent goes on by itself before it asks the user."""

    prompt: str
    turn_limit: int


class HandoffAgentExecutor(Executor):
    """Lets an agent take its turn, with a tool for each agent that it may hand off to."""

    def __init__(self, agent: Any, routes: tuple[HandoffRoute, ...]) -> None:
        super().__init__(agent_name(agent))
        self.agent = agent
        self.description = getattr(agent, "description", None)
        self.value_types = types_of(adapted(agent))
        self._routes = routes

    @handler
    async def take_turn(self, turn: TakeTurn, ctx: WorkflowContext[TurnTaken, AgentResponse]) -> None:
        session = ctx.private.get("session") or AgentSession(session_id=session_id_for(ctx))
        tools = [route.tool() for route in self._routes]
        response = await take_live_turn(self.agent, turn.messages, session, tools=tools, **run_arguments(ctx))
        ctx.private["session"] = session
        await ctx.yield_output(response)
        await ctx.send_message(TurnTaken(self.id, response, self._target(response)))

    def _target(self, response: AgentResponse) -> str | None:
        """Of the first handoff that was made: with several the conversation would go on in two places."""
        targets = {route.tool_name: route.target for route in self._routes}
        results = (one for message in response.messages for one in message.of_type("function_result"))
        made = {result.call_id for result in results if result.exception is None}
        calls = (call for message in response.messages for call in message.of_type("function_call"))
        return next((targets[call.name] for call in calls if call.name in targets and call.call_id in made), None)


class HandoffStanding(msgspec.Struct):
    """Where the conversation stands."""

    speaker: str | None = None
    """Whose turn it is, or who waits for the user. None before the conversation begins, and once it is ended."""
    is_working: bool = False
    """Whether an agent has its turn now."""
    heard: dict[str, int] = {}  # msgspec copies it
    """How much of the conversation each agent knows."""
    turns_alone: int = 0
    """That the speaker took in autonomous mode, one after the other."""
    handoffs: int = 0
    """Since the user said something."""
    unheard: list[Message] = []
    """What the user said while an agent had its turn: it joins the conversation after that."""


class HandoffFloor(Executor):
    """Gives the floor to one agent at a time. It alone writes the conversation, so nothing is in it twice, and nothing
    is lost that the user says while an agent is speaking."""

    def __init__(
        self,
        start: str,
        autonomy: Mapping[str, Autonomy],
        termination_condition: TerminationCondition | None,
        *,
        returns_to_previous: bool,
    ) -> None:
        super().__init__(FLOOR_ID)
        self._start = start
        self._autonomy = autonomy
        self._termination_condition = termination_condition
        self._returns_to_previous = returns_to_previous

    # ------------------------------------------------------------ what comes in

    @handler
    async def from_str(self, text: str, ctx: WorkflowContext[TakeTurn]) -> None:
        await self._user_said(as_messages(text), ctx)

    @handler
    async def from_message(self, message: Message, ctx: WorkflowContext[TakeTurn]) -> None:
        await self._user_said([message], ctx)

    @handler
    async def from_messages(self, messages: list[str | Message], ctx: WorkflowContext[TakeTurn]) -> None:
        await self._user_said(as_messages(messages), ctx)

    @response_handler
    async def answered(
        self, asked: HandoffAgentUserRequest, answer: UserAnswer, ctx: WorkflowContext[TakeTurn]
    ) -> None:
        said = as_messages(answer)
        if said:
            await self._user_said(said, ctx)
        else:
            _end(_standing(ctx), ctx)

    @handler
    async def turn_taken(self, turn: TurnTaken, ctx: WorkflowContext[TakeTurn]) -> None:
        standing = _standing(ctx)
        conversation = ctx.get_state(CONVERSATION, [])
        said = clean_conversation_for_handoff(turn.response.messages)
        standing.heard[turn.agent] = len(conversation) + len(said)
        user_said, standing.unheard, standing.is_working = standing.unheard, [], False
        conversation += [*said, *user_said]
        ctx.set_state(CONVERSATION, conversation)
        if user_said:
            standing.handoffs = 0
        ctx.private["standing"] = standing
        if (said or user_said) and await self._is_over(conversation):
            _end(standing, ctx)
        elif standing.speaker is None and not user_said:
            return  # the user has ended it meanwhile
        elif turn.target is not None:
            await self._hand_off(turn, turn.target, ctx)
        elif user_said:
            await self._give_floor(self._speaker_after_user(standing), ctx)
        else:
            await self._go_on_alone_or_ask(turn, ctx)

    # ------------------------------------------------------------ who is next

    async def _user_said(self, messages: list[Message], ctx: WorkflowContext[TakeTurn]) -> None:
        said = clean_conversation_for_handoff(messages)
        standing = _standing(ctx)
        if standing.is_working:
            standing.unheard += said
            ctx.private["standing"] = standing
            return
        standing.handoffs = 0
        conversation = [*ctx.get_state(CONVERSATION, []), *said]
        ctx.set_state(CONVERSATION, conversation)
        if said and await self._is_over(conversation):
            _end(standing, ctx)
        else:
            ctx.private["standing"] = standing
            await self._give_floor(self._speaker_after_user(standing), ctx)

    def _speaker_after_user(self, standing: HandoffStanding) -> str:
        return standing.speaker if standing.speaker and self._returns_to_previous else self._start

    async def _hand_off(self, turn: TurnTaken, target: str, ctx: WorkflowContext[TakeTurn]) -> None:
        await ctx.add_event(WorkflowEvent("handoff_sent", HandoffSentEvent(turn.agent, target)))
        standing = _standing(ctx)
        if standing.handoffs < MOST_HANDOFFS:
            standing.handoffs += 1
            ctx.private["standing"] = standing
            await self._give_floor(target, ctx)
            return
        standing.speaker = target
        ctx.private["standing"] = standing
        text = f"Agents handed off {MOST_HANDOFFS} times in a row; before {target!r} goes on, the user is asked."
        await ctx.add_event(WorkflowEvent("warning", text))
        await ctx.request_info(HandoffAgentUserRequest(turn.response), UserAnswer)

    async def _go_on_alone_or_ask(self, turn: TurnTaken, ctx: WorkflowContext[TakeTurn]) -> None:
        standing, autonomy = _standing(ctx), self._autonomy.get(turn.agent)
        if autonomy is not None and standing.turns_alone < autonomy.turn_limit:
            turns = standing.turns_alone + 1
            await self._give_floor(turn.agent, ctx, Message("user", autonomy.prompt), turns_alone=turns)
            return
        await ctx.request_info(HandoffAgentUserRequest(turn.response), UserAnswer)

    async def _give_floor(
        self, agent: str, ctx: WorkflowContext[TakeTurn], *prompts: Message, turns_alone: int = 0
    ) -> None:
        """A prompt is for the agent alone: nobody has said it."""
        standing, conversation = _standing(ctx), ctx.get_state(CONVERSATION, [])
        new = conversation[standing.heard.get(agent, 0) :]
        standing.heard[agent] = len(conversation)
        standing.speaker, standing.is_working, standing.turns_alone = agent, True, turns_alone
        ctx.private["standing"] = standing
        await ctx.send_message(TakeTurn([*new, *prompts]), target_id=agent)

    async def _is_over(self, conversation: list[Message]) -> bool:
        if self._termination_condition is None:
            return False
        over = self._termination_condition(list(conversation))
        return bool(await over) if inspect.isawaitable(over) else bool(over)


def _standing(ctx: WorkflowContext[Any, Any]) -> HandoffStanding:
    found: HandoffStanding = ctx.private.get("standing") or HandoffStanding()
    return found


def _end(standing: HandoffStanding, ctx: WorkflowContext[Any, Any]) -> None:
    standing.speaker = None
    ctx.private["standing"] = standing
