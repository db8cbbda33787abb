"""SequentialBuilder: participants run one after another, each with the conversation so far."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from perdure.agents.conversation.message import Message
from perdure.agents.executor import AgentExecutorResponse
from perdure.engine.run.request import Durability
from perdure.graph.context import WorkflowContext
from perdure.graph.executor import Executor, accepts
from perdure.graph.handlers import handler
from perdure.orchestrations.participants import (
    InputConversation,
    IntermediateOutputFrom,
    OutputFrom,
    ReviewedTeamBuilder,
    designate,
    read_participants,
)
from perdure.workflows.builder import DEFAULT_MAX_ITERATIONS
from perdure.workflows.workflow import Workflow


class SequentialBuilder(ReviewedTeamBuilder):
    """`SequentialBuilder(participants=[writer, editor]).build()`.

    Each participant gets the whole conversation, or with `chain_only_agent_responses` only the messages of the agent
    before it. The output is the AgentResponse of the last one. An executor gets an AgentExecutorResponse or, without a
    handler for it, the conversation as `list[Message]`, which it may also send on.
    """

    KIND = "sequential"

    def __init__(
        self,
        *,
        participants: Sequence[Any],
        checkpoint_storage: Any = None,
        chain_only_agent_responses: bool = False,
        output_from: OutputFrom = None,
        intermediate_output_from: IntermediateOutputFrom = None,
        name: str | None = None,
        description: str | None = None,
        durability: Durability = "sync",
        allowed_types: Iterable[type | str] = (),
    ) -> None:
        super().__init__(name, description, checkpoint_storage, durability, allowed_types)
        self._team = read_participants(participants)
        last = self._team[-1].name
        self._designation = designate(self._team, output_from, intermediate_output_from, default=[last])
        self._context_mode = "last_agent" if chain_only_agent_responses else None

    def build(self) -> Workflow:
        """Raises WorkflowValidationError or ValueError."""
        executors = self._executors(self._team, context_mode=self._context_mode)
        start = InputConversation()
        longest = max(DEFAULT_MAX_ITERATIONS, 2 * len(executors) + 1)
        builder = self._workflow_builder(self._team, start, self._designation, max_iterations=longest)
        before: Executor = start
        for executor in executors.values():
            if _takes_only_a_conversation(executor, before):
                between = ResponseToConversation(f"conversation-for-{executor.id}")
                builder.add_edge(before, between)
                before = between
            builder.add_edge(before, executor)
            before = executor
        return builder.build()


def _takes_only_a_conversation(executor: Executor, before: Executor) -> bool:
    sends_response = AgentExecutorResponse in before.output_types
    return sends_response and not accepts(executor, AgentExecutorResponse) and accepts(executor, list[Message])


class ResponseToConversation(Executor):
    """Unpacks the conversation for an executor without a handler for AgentExecutorResponse."""

    @handler
    async def unpack(self, response: AgentExecutorResponse, ctx: WorkflowContext[list[Message]]) -> None:
        await ctx.send_message(response.full_conversation)
