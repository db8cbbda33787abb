"""One recorded turn of a node's agent, or one for each item of a list, with its retries and limits."""

from __future__ import annotations

import asyncio
import functools
import operator
import random
from collections.abc import Callable, Collection, Mapping
from contextlib import AbstractAsyncContextManager, nullcontext
from dataclasses import dataclass
from typing import Any
from weakref import WeakKeyDictionary

import msgspec

from perdure.agent_workflow.conversations import ConversationMessages, merge_messages, new_messages
from perdure.agent_workflow.definition import ANSWER, MapConfig, NodeDraft, RetryConfig, RetryStrategy
from perdure.agent_workflow.execution.values import Values, handoff_tool, input_of, messages_for, outputs_of
from perdure.agent_workflow.state import NodeTask, OutOfTime, clock, delivery, is_over, seconds_left
from perdure.agents.base import adapt_agent, take_live_turn
from perdure.agents.conversation.message import AgentSession
from perdure.agents.executor import run_arguments
from perdure.agents.recording import set_answer_deadline
from perdure.clock import run_with_timeout
from perdure.errors import AnswerNotUsable, StorageFailed
from perdure.graph.context import WorkflowContext
from perdure.graph.policy import RetryPolicy, in_seconds

_BUSY = frozenset({408, 409, 425, 429, 500, 502, 503, 504, 529})
"""HTTP statuses that a later attempt may not get."""


@dataclass(frozen=True)
class NodeRetry(RetryPolicy):
    """The retries of a node's config."""

    strategy: RetryStrategy = "exponential"

    def delay_after(self, attempts: int) -> float:
        if self.strategy == "linear":  # each delay grows by the initial delay
            longest = in_seconds("max_delay", self.max_delay or 0.0)
            return min(in_seconds("initial_delay", self.initial_delay) * attempts, longest)
        # A random part, from half to all, so that many clients do not retry at the same time.
        part = random.uniform(0.5, 1) if self.strategy == "jittered" else 1.0  # noqa: S311  # it protects nothing
        return super().delay_after(attempts) * part


def retry_policy_of(config: RetryConfig | None) -> RetryPolicy | None:
    if config is None:
        return None
    return NodeRetry(
        config.max_attempts,
        config.initial_delay,
        2.0 if config.strategy in ("exponential", "jittered") else 1.0,
        config.max_delay,
        retry_on=is_transient if config.only_transient else Exception,
        strategy=config.strategy,
    )


@dataclass(frozen=True, kw_only=True)
class BoundedRetry(RetryPolicy):
    """Another policy, limited by a deadline: the last attempt is due at the deadline."""

    policy: RetryPolicy
    seconds_left: Callable[[], float]

    def retries(self, error: BaseException, attempts: int) -> bool:
        return not isinstance(error, OutOfTime) and self.policy.retries(error, attempts)

    def delay_after(self, attempts: int) -> float:
        return min(self.policy.delay_after(attempts), self.seconds_left())


def is_transient(error: BaseException | None) -> bool:
    """Whether a retry may succeed, judged by the error or its causes."""
    seen = 0
    while error is not None and seen < 10:
        if isinstance(error, TimeoutError | ConnectionError | StorageFailed):
            return True
        status = getattr(error, "status_code", None) or getattr(getattr(error, "response", None), "status_code", None)
        if status in _BUSY or type(error).__name__ in _NAMES:
            return True
        error, seen = error.__cause__ or error.__context__, seen + 1
    return False


_NAMES = (
    *("APIConnectionError", "APITimeoutError", "RateLimitError", "InternalServerError", "ServiceUnavailableError"),
    *("ConnectError", "ConnectTimeout", "ReadTimeout", "ReadError", "RemoteProtocolError", "PoolTimeout"),
)
"""Errors of common clients, by name: the clients are not imported."""


class NodeTurn(msgspec.Struct, frozen=True, omit_defaults=True):
    """The recorded result of a turn."""

    outputs: dict[str, Any]
    recorded: ConversationMessages | None = None
    """The messages for the conversation, if the node takes part in one."""


class Turns:
    """The turns of one node's agent. The executors of all threads share it, and so they share its limit."""

    def __init__(self, node_id: str, node: NodeDraft, known_outputs: Mapping[str, Collection[str] | None]) -> None:
        """`known_outputs`: the output keys of each node of the workflow; None: unknown before it runs."""
        self.node_id = node_id
        self.node = node
        self.agent = None if node.agent is None else adapt_agent(node.agent)
        self.agent_name = str(getattr(self.agent, "name", None) or node_id)
        self._config = node.config
        self._known_outputs = known_outputs
        self._retry = node.retry or retry_policy_of(node.config.retry)
        self._tools = [*node.tools, *(handoff_tool(to.target, to.description) for to in node.config.handoffs)]
        self._semaphores: WeakKeyDictionary[asyncio.AbstractEventLoop, asyncio.Semaphore] = WeakKeyDictionary()

    def input_text(self, task: NodeTask) -> str:
        return input_of(self.node_id, self._config, Values(task, self._known_outputs))

    def retry(self, task: NodeTask) -> RetryPolicy | None:
        """The node's retry policy, limited by the deadline of the execution."""
        if self._retry is None or task.deadline is None:
            return self._retry
        return BoundedRetry(policy=self._retry, seconds_left=lambda: seconds_left(task) or 0.0)

    async def take(self, task: NodeTask, session: AgentSession | None, ctx: WorkflowContext[Any]) -> NodeTurn:
        """Raises the agent's exception when no attempt is left."""
        if self._config.map is None:
            return await self._turn(self.input_text(task), task, session, ctx, "turn")
        return await self._map(self._config.map, task, session, ctx)

    async def _turn(
        self, text: str, task: NodeTask, session: AgentSession | None, ctx: WorkflowContext[Any], key: str
    ) -> NodeTurn:
        """One recorded turn: a recorded turn is not repeated for this task. An answer that does not fit the node's
        output mode is a failed attempt."""
        options = dict(run_arguments(ctx))
        if self._tools:
            options["tools"] = self._tools
        if self.node.types:
            union = functools.reduce(operator.or_, self.node.types)  # or the only type
            options |= {"response_format": union, "output_mode": self._config.structured_mode}
        messages = messages_for(self._config, text)

        async def turn() -> NodeTurn:
            own = None if session is None else session.copy()  # for this attempt, and for this item of a map
            response = await take_live_turn(self.node.agent, messages, own, **options)
            try:
                outputs = outputs_of(self.node_id, self._config, response, self.node.types)
            except ValueError as error:
                raise AnswerNotUsable(self.agent_name, str(error)) from error
            return NodeTurn(outputs, None if own is None or session is None else new_messages(own, session.version))

        async def timely_turn() -> NodeTurn:
            if is_over(task):
                raise OutOfTime
            with set_answer_deadline(task.deadline):
                result: NodeTurn = await run_with_timeout(seconds_left(task), turn(), clock(), OutOfTime())
                return result

        limit: AbstractAsyncContextManager[None] = nullcontext()
        if self._config.max_concurrent is not None:
            semaphore = asyncio.Semaphore(self._config.max_concurrent)
            limit = self._semaphores.setdefault(asyncio.get_running_loop(), semaphore)
        async with limit:
            recorded: NodeTurn = await ctx.step(
                turn if task.deadline is None else timely_turn,
                name=self.agent_name,
                key=key,
                retry=self.retry(task),
                timeout=self._config.timeout,
            )
        return recorded

    async def _map(
        self, config: MapConfig, task: NodeTask, session: AgentSession | None, ctx: WorkflowContext[Any]
    ) -> NodeTurn:
        """One turn for each item. A resumed map repeats only items without a recorded turn. Every item starts from the
        same conversation; their messages are appended in the order of the items."""
        values = Values(task, self._known_outputs)
        items = values.find(config.over, f"agents.{self.node_id}.map.over")
        if not isinstance(items, list | tuple):
            path, kind = f"agents.{self.node_id}.map.over", type(items).__name__
            raise TypeError(f"{path}: expected a list, {config.over!r} is {kind}: {items!r:.200}")
        limit = asyncio.Semaphore(config.max_parallel)

        failures: list[BaseException] = []

        async def take_item(index: int, item: Any) -> NodeTurn | None:
            async with limit:
                if failures:
                    return None
                try:
                    text = input_of(self.node_id, self._config, values, {"item": item, "index": index})
                    return await self._turn(text, task, session, ctx, f"turn {index}")
                except asyncio.CancelledError:
                    raise
                except BaseException as error:  # noqa: BLE001  # raised below
                    is_own = isinstance(error, Exception) and not isinstance(error, OutOfTime)
                    if not is_own or config.on_error == "fail" or delivery().delivery.journal_error is not None:
                        failures.append(error)
                    return None

        results = await asyncio.gather(*(take_item(*pair) for pair in enumerate(items)))
        if failures:  # raised last, so that the other items are recorded
            stopped = [error for error in failures if not isinstance(error, Exception) or isinstance(error, OutOfTime)]
            if stopped or len(failures) == 1:
                raise [*stopped, *failures][0]
            raise ItemsFailed("items failed", [error for error in failures if isinstance(error, Exception)])
        turns = [result for result in results if isinstance(result, NodeTurn)]
        key = self._config.output_key or ANSWER
        listed = results if config.on_error == "null" else turns
        # The output of an item, or a mapping of several.
        outputs = [
            result and (result.outputs[key] if list(result.outputs) == [key] else result.outputs) for result in listed
        ]
        return NodeTurn({key: outputs}, merge_messages(turn.recorded for turn in turns if turn.recorded is not None))


class ItemsFailed(ExceptionGroup[Exception]):
    """Several items of a map failed. A resume retries all of them."""

    def __str__(self) -> str:
        first = self.exceptions[0]
        return f"{len(self.exceptions)} items failed; the first: {type(first).__name__}: {first}"
