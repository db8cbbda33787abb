"""SequentialBuilder and ConcurrentBuilder: teams that run one after another, or all at the same time."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from typing import Any, Never, Self, Unpack

from perdure.agents.conversation.message import Message, as_messages
from perdure.agents.conversation.response import AgentResponse
from perdure.agents.executor import AgentExecutorRequest, AgentExecutorResponse
from perdure.engine.delivery.recorder import Work
from perdure.graph.context import WorkflowContext
from perdure.graph.executor import Executor, accepts
from perdure.graph.handlers import handler
from perdure.graph.policy import DEFAULT
from perdure.orchestrations.participants import (
    InputConversation,
    ReviewedTeamBuilder,
    TeamSettings,
    UserInput,
    read_participants,
)
from perdure.workflows.builder import DEFAULT_MAX_ITERATIONS
from perdure.workflows.workflow import Workflow

AGGREGATOR_ID = "aggregator"


class SequentialBuilder(ReviewedTeamBuilder):
    """`SequentialBuilder(participants=[writer, editor]).build()`.

    Each participant gets the whole conversation, or with `chain_only_agent_responses` only the messages of the agent
    before it. The output is the AgentResponse of the last one. An executor gets an AgentExecutorResponse or, without a
    handler for it, the conversation as `list[Message]`, which it may also send on. `ensure_trailing_user_turn` is that
    of AgentExecutor.
    """

    KIND = "sequential"

    def __init__(
        self,
        *,
        participants: Sequence[Any],
        chain_only_agent_responses: bool = False,
        ensure_trailing_user_turn: bool = False,
        **settings: Unpack[TeamSettings],
    ) -> None:
        super().__init__(settings)
        self._team = read_participants(participants)
        self._options = {
            "context_mode": "last_agent" if chain_only_agent_responses else None,
            "ensure_trailing_user_turn": ensure_trailing_user_turn,
        }

    def build(self) -> Workflow:
        """Raises WorkflowValidationError or ValueError."""
        executors = self._executors(self._team, **self._options)
        before: Executor = InputConversation("input-conversation")
        longest = max(DEFAULT_MAX_ITERATIONS, 2 * len(executors) + 1)
        builder = self._workflow_builder(self._team, before, default=[self._team[-1].name], max_iterations=longest)
        for executor in executors.values():
            sends_response = AgentExecutorResponse in before.output_types
            if sends_response and not accepts(executor, AgentExecutorResponse) and accepts(executor, list[Message]):
                between = ResponseToConversation(f"conversation-for-{executor.id}")
                builder.add_edge(before, between)
                before = between
            builder.add_edge(before, executor)
            before = executor
        return builder.build()


class ResponseToConversation(Executor):
    """Unpacks the conversation for an executor without a handler for AgentExecutorResponse."""

    @handler
    async def unpack(self, response: AgentExecutorResponse, ctx: WorkflowContext[list[Message]]) -> None:
        await ctx.send_message(response.full_conversation)


class ConcurrentBuilder(ReviewedTeamBuilder):
    """`ConcurrentBuilder(participants=[optimist, sceptic]).build()`.

    All participants get the input at the same time. The output is one AgentResponse with the last message of each, in
    their order, or the result of the aggregator.
    """

    KIND = "concurrent"

    def __init__(self, *, participants: Sequence[Any], **settings: Unpack[TeamSettings]) -> None:
        super().__init__(settings)
        self._team = read_participants(participants, minimum=2)
        self._aggregator: Executor | None = None

    def with_aggregator(self, aggregator: Executor | Callable[..., Any]) -> Self:
        """An executor for `list[AgentExecutorResponse]`, or a function of the results, and of the context if it has two
        parameters. The result of a function is the output, unless it is None."""
        if self._aggregator is not None:
            raise ValueError(f"with_aggregator() has already been called, with {self._aggregator!r}.")
        if isinstance(aggregator, Executor):
            self._aggregator = aggregator
        elif callable(aggregator):
            self._aggregator = CallbackAggregator(aggregator)
        else:
            raise TypeError(f"aggregator must be an Executor or a callable, got {aggregator!r}.")
        return self

    def build(self) -> Workflow:
        """Raises WorkflowValidationError or ValueError."""
        executors = list(self._executors(self._team).values())
        dispatcher = Dispatcher("dispatcher")
        aggregator = self._aggregator or ResponseAggregator(AGGREGATOR_ID)
        return (
            self._workflow_builder(self._team, dispatcher, always=[aggregator.id])
            .add_fan_out_edges(dispatcher, executors)
            .add_fan_in_edges(executors, aggregator)
            .build()
        )


class Dispatcher(Executor):
    """Sends the input to all participants."""

    @handler
    async def from_request(self, request: AgentExecutorRequest, ctx: WorkflowContext[AgentExecutorRequest]) -> None:
        await ctx.send_message(request)

    @handler
    async def from_user(self, user_input: UserInput, ctx: WorkflowContext[AgentExecutorRequest]) -> None:
        await ctx.send_message(AgentExecutorRequest(as_messages(user_input)))


class ResponseAggregator(Executor):
    """Joins the last message of each participant to one response."""

    @handler
    async def join(self, results: list[AgentExecutorResponse], ctx: WorkflowContext[Never, AgentResponse]) -> None:
        last = [
            _last_answer(result.agent_response.messages) or _last_answer(result.full_conversation) for result in results
        ]
        await ctx.yield_output(AgentResponse(messages=tuple(message for message in last if message is not None)))


def _last_answer(messages: Sequence[Message]) -> Message | None:
    return next((message for message in reversed(messages) if message.role == "assistant"), None)


class CallbackAggregator(Executor):
    """Joins the results by a function. A function that is not async runs in a worker thread."""

    def __init__(self, callback: Callable[..., Any]) -> None:
        name = str(getattr(callback, "__name__", AGGREGATOR_ID))
        super().__init__(name if name.isidentifier() else AGGREGATOR_ID)
        self._callback = callback
        self._takes_context = len(inspect.signature(callback).parameters) > 1

    @property
    def code(self) -> Any:
        return self._callback

    @handler
    async def join(self, results: list[AgentExecutorResponse], ctx: WorkflowContext[Never, Any]) -> None:
        arguments = (results, ctx) if self._takes_context else (results,)
        output = await Work(self._callback, arguments, {}, DEFAULT).perform()
        if output is not None:
            await ctx.yield_output(output)
