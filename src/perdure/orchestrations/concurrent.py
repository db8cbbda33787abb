"""ConcurrentBuilder: all at once, and then what they said is joined."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Callable, Iterable, Sequence
from typing import Any, Never, Self

from perdure.agents.conversation.message import Message, as_messages
from perdure.agents.conversation.response import AgentResponse
from perdure.agents.executor import AgentExecutorRequest, AgentExecutorResponse
from perdure.cancelling import await_uncancelled
from perdure.engine.run.options import Durability
from perdure.graph.context import WorkflowContext
from perdure.graph.executor import Executor
from perdure.graph.function_executor import is_async
from perdure.graph.handlers import handler
from perdure.orchestrations.participants import (
    Designation,
    IntermediateOutputFrom,
    OutputFrom,
    Settings,
    designate,
    read_participants,
)
from perdure.orchestrations.request_info import Reviewing
from perdure.workflows.workflow import Workflow

KIND = "concurrent"
DISPATCHER_ID = "dispatcher"
AGGREGATOR_ID = "aggregator"


class ConcurrentBuilder:
    """`ConcurrentBuilder(participants=[optimist, sceptic]).build()`.

    All participants get the input at the same time. The output is one AgentResponse with the last message of each, in
    their order, or what the aggregator makes of it.
    """

    def __init__(
        self,
        *,
        participants: Sequence[Any],
        checkpoint_storage: Any = None,
        output_from: OutputFrom = None,
        intermediate_output_from: IntermediateOutputFrom = None,
        name: str | None = None,
        description: str | None = None,
        durability: Durability = "sync",
        allowed_types: Iterable[type | str] = (),
    ) -> None:
        self._settings = Settings(KIND, name, description, checkpoint_storage, durability, tuple(allowed_types))
        self._team = read_participants(participants, least=2)
        self._designation = designate(self._team, output_from, intermediate_output_from)
        self._aggregator: Executor | None = None
        self._reviewing = Reviewing()

    def with_aggregator(self, aggregator: Executor | Callable[..., Any]) -> Self:
        """An executor that takes `list[AgentExecutorResponse]`, or a function of the results, and of the context if it
        takes two arguments. What a function gives is the output, unless it is None."""
        if self._aggregator is not None:
            raise ValueError(f"There is an aggregator already: {self._aggregator!r}.")
        if isinstance(aggregator, Executor):
            self._aggregator = aggregator
        elif callable(aggregator):
            self._aggregator = CallbackAggregator(aggregator)
        else:
            raise TypeError(f"An aggregator is an executor or a function, got {aggregator!r}.")
        return self

    def with_checkpointing(self, checkpoint_storage: Any) -> Self:
        self._settings.keep_in(checkpoint_storage)
        return self

    def with_request_info(self, *, agents: Sequence[Any] | None = None) -> Self:
        """Ask somebody about the answer of each of these agents, or of all, before they are joined."""
        self._reviewing.ask(agents)
        return self

    def build(self) -> Workflow:
        """Raises WorkflowValidationError, or ValueError for what does not fit together."""
        made = list(self._reviewing.executors(self._team).values())
        dispatcher = Dispatcher(DISPATCHER_ID)
        aggregator = self._aggregator or ResponseAggregator(AGGREGATOR_ID)
        outputs = [aggregator.id, *self._designation["output_from"]]
        designation: Designation = {**self._designation, "output_from": outputs}
        return (
            self._settings.builder(self._team, dispatcher, designation)
            .add_fan_out_edges(dispatcher, made)
            .add_fan_in_edges(made, aggregator)
            .build()
        )


class Dispatcher(Executor):
    """Gives the input to all."""

    @handler
    async def from_request(self, request: AgentExecutorRequest, ctx: WorkflowContext[AgentExecutorRequest]) -> None:
        await ctx.send_message(request)

    @handler
    async def from_str(self, text: str, ctx: WorkflowContext[AgentExecutorRequest]) -> None:
        await ctx.send_message(AgentExecutorRequest(as_messages(text)))

    @handler
    async def from_message(self, message: Message, ctx: WorkflowContext[AgentExecutorRequest]) -> None:
        await ctx.send_message(AgentExecutorRequest([message]))

    @handler
    async def from_messages(self, messages: list[str | Message], ctx: WorkflowContext[AgentExecutorRequest]) -> None:
        await ctx.send_message(AgentExecutorRequest(as_messages(messages)))


class ResponseAggregator(Executor):
    """One response, with the last that each one said."""

    @handler
    async def join(self, results: list[AgentExecutorResponse], ctx: WorkflowContext[Never, AgentResponse]) -> None:
        last = [
            _last_said(result.agent_response.messages) or _last_said(result.full_conversation) for result in results
        ]
        await ctx.yield_output(AgentResponse(messages=tuple(one for one in last if one is not None)))


def _last_said(messages: Sequence[Message]) -> Message | None:
    return next((message for message in reversed(messages) if message.role == "assistant"), None)


class CallbackAggregator(Executor):
    """A function that joins the results. One that is not async runs in a thread."""

    def __init__(self, callback: Callable[..., Any], id: str = AGGREGATOR_ID) -> None:
        super().__init__(id)
        self._callback = callback
        self._takes_context = len(inspect.signature(callback).parameters) > 1

    @property
    def code(self) -> Any:
        return self._callback

    @handler
    async def join(self, results: list[AgentExecutorResponse], ctx: WorkflowContext[Never, Any]) -> None:
        given = (results, ctx) if self._takes_context else (results,)
        if is_async(self._callback):
            made = await self._callback(*given)
        else:
            # A thread cannot be cancelled, so a cancelled run waits for it: its side effects must not outlive the run.
            made, cancelled = await await_uncancelled(asyncio.to_thread(self._callback, *given))
            if cancelled is not None:
                raise cancelled
            if inspect.isawaitable(made):
                made = await made
        if made is not None:
            await ctx.yield_output(made)
