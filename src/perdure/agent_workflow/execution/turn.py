"""One recorded turn of a node's agent, or one for each item of a list, with its retries and limits."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any
from uuid import uuid4
from weakref import WeakKeyDictionary

import msgspec

from perdure.agent_workflow.conversations import ConversationMessages, Conversations, merge_messages, new_messages
from perdure.agent_workflow.definition import ANSWER, NodeConfig, RetryConfig
from perdure.agent_workflow.execution.values import Values, handoff_tools, input_of, messages_for, outputs_of
from perdure.agent_workflow.state import NodeTask, OutOfTime, clock, delivery, is_over, seconds_left
from perdure.agents.base import take_live_turn
from perdure.agents.conversation.message import AgentSession
from perdure.agents.executor import run_arguments
from perdure.agents.recording import set_answer_deadline
from perdure.agents.tools import Tool
from perdure.engine.delivery.attempts import TimeLimitReached, run_with_timeout
from perdure.errors import AnswerNotUsable, StorageFailed
from perdure.graph.context import WorkflowContext
from perdure.graph.policy import RetryPolicy, in_seconds

_BUSY = frozenset({408, 409, 425, 429, 500, 502, 503, 504, 529})
"""HTTP statuses that a later attempt may not get."""


def retry_policy_of(config: RetryConfig | None) -> RetryPolicy | None:
    if config is None:
        return None
    backoff = 2.0 if config.strategy in ("exponential", "jittered") else 1.0
    kind = (
        LinearRetry if config.strategy == "linear" else JitteredRetry if config.strategy == "jittered" else RetryPolicy
    )
    return kind(
        config.max_attempts,
        config.initial_delay,
        backoff,
        config.max_delay,
        retry_on=is_transient if config.only_transient else Exception,
    )


@dataclass(frozen=True)
class LinearRetry(RetryPolicy):
    """Each delay grows by the initial delay."""

    def delay_after(self, attempts: int) -> float:
        longest = in_seconds("max_delay", self.max_delay or 0.0)
        return min(in_seconds("initial_delay", self.initial_delay) * attempts, longest)


@dataclass(frozen=True)
class JitteredRetry(RetryPolicy):
    """A random part, from half to all, of the exponential delay: many clients do not retry at the same time."""

    def delay_after(self, attempts: int) -> float:
        return super().delay_after(attempts) * random.uniform(0.5, 1)  # noqa: S311  # spreads load, protects nothing


@dataclass(frozen=True, kw_only=True)
class BoundedRetry(RetryPolicy):
    """Another policy, limited by a deadline: the last attempt is due at the deadline."""

    policy: RetryPolicy
    seconds_left: Callable[[], float]
    deadline_error: type[Exception]
    """Raised at the deadline; it is not retried."""

    def retries(self, error: BaseException, attempts: int) -> bool:
        return not isinstance(error, self.deadline_error) and self.policy.retries(error, attempts)

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


_NAMES = frozenset(
    {
        *("APIConnectionError", "APITimeoutError", "RateLimitError", "InternalServerError", "ServiceUnavailableError"),
        *("ConnectError", "ConnectTimeout", "ReadTimeout", "ReadError", "RemoteProtocolError", "PoolTimeout"),
    }
)
"""Errors of common clients, by name: the clients are not imported."""
_semaphores: WeakKeyDictionary[asyncio.AbstractEventLoop, dict[str, asyncio.Semaphore]] = WeakKeyDictionary()
"""By event loop and name of the limit."""


class ConcurrencyLimit:
    """A semaphore for each event loop that uses it; None does not limit. Executors are copied for each thread, and all
    copies count together."""

    def __init__(self, maximum: int | None) -> None:
        self._maximum = maximum
        self._name = uuid4().hex

    def _semaphore(self) -> asyncio.Semaphore | None:
        if self._maximum is None:
            return None
        semaphores = _semaphores.setdefault(asyncio.get_running_loop(), {})
        return semaphores.setdefault(self._name, asyncio.Semaphore(self._maximum))

    async def __aenter__(self) -> None:
        semaphore = self._semaphore()
        if semaphore is not None:
            await semaphore.acquire()

    async def __aexit__(self, *_: object) -> None:
        semaphore = self._semaphore()
        if semaphore is not None:
            semaphore.release()


class NodeTurn(msgspec.Struct, frozen=True, omit_defaults=True):
    """The recorded result of a turn."""

    outputs: dict[str, Any]
    recorded: ConversationMessages | None = None
    """The messages for the conversation, if the node takes part in one."""


@dataclass(frozen=True)
class NodeParts:
    """The parts of a node that only Python has, beside its config."""

    agent: Any = None
    types: Sequence[type] = ()
    tools: Sequence[Tool] = ()
    needs_approval: Callable[[Any], bool] | None = None
    workflow: str | None = None
    """The id of the executor that runs the workflow of the node, if the node is a workflow."""
    conversations: Conversations | None = None
    known_outputs: Mapping[str, Collection[str] | None] = field(default_factory=dict)
    """The output keys of each node of the workflow; None: unknown before it runs."""
    retry: RetryPolicy | None = None
    """Replaces the config's policy."""
    concurrency: ConcurrencyLimit = field(default_factory=lambda: ConcurrencyLimit(None))


class Turns:
    """The turns of one node's agent."""

    def __init__(self, node: str, name: str, config: NodeConfig, parts: NodeParts) -> None:
        self._node = node
        self._name = name
        self._config = config
        self._parts = parts
        self._retry = parts.retry or retry_policy_of(config.retry)
        self._tools = [*parts.tools, *handoff_tools(config)]
        self._concurrency = parts.concurrency

    def input_text(self, task: NodeTask) -> str:
        return input_of(self._node, self._config, Values(task, self._parts.known_outputs))

    def retry(self, task: NodeTask) -> RetryPolicy | None:
        """The node's retry policy, limited by the deadline of the execution."""
        if self._retry is None or task.deadline is None:
            return self._retry
        return BoundedRetry(
            policy=self._retry, seconds_left=lambda: seconds_left(task) or 0.0, deadline_error=OutOfTime
        )

    async def take(self, task: NodeTask, session: AgentSession | None, ctx: WorkflowContext[Any]) -> NodeTurn:
        """Raises the agent's exception when no attempt is left."""
        if self._config.map is None:
            return await self._turn(self.input_text(task), task, session, ctx, "turn")
        return await self._map(task, session, ctx)

    async def _turn(
        self, text: str, task: NodeTask, session: AgentSession | None, ctx: WorkflowContext[Any], key: str
    ) -> NodeTurn:
        """One recorded turn: a recorded turn is not repeated for this task. An answer that does not fit the node's
        output mode is a failed attempt."""
        options = dict(run_arguments(ctx))
        if self._tools:
            options["tools"] = self._tools
        if self._parts.types:
            options |= {"response_format": self._response_format(), "output_mode": self._config.structured_mode}
        messages = messages_for(self._config, text)

        async def turn() -> NodeTurn:
            own = None if session is None else session.copy()  # for this attempt, and for this item of a map
            response = await take_live_turn(self._parts.agent, messages, own, **options)
            try:
                outputs = outputs_of(self._node, self._config, response, self._parts.types)
            except ValueError as error:
                raise AnswerNotUsable(self._name, str(error)) from error
            messages_of_turn = None if own is None or session is None else new_messages(own, session.version)
            return NodeTurn(outputs, messages_of_turn)

        async def timely_turn() -> NodeTurn:
            if is_over(task):
                raise OutOfTime
            with set_answer_deadline(task.deadline):
                try:
                    result: NodeTurn = await run_with_timeout(seconds_left(task), turn(), clock())
                except TimeLimitReached as late:
                    raise OutOfTime from late.__cause__
                return result

        async with self._concurrency:
            recorded: NodeTurn = await ctx.step(
                turn if task.deadline is None else timely_turn,
                name=self._name,
                key=key,
                retry=self.retry(task),
                timeout=self._config.timeout,
            )
        return recorded

    def _response_format(self) -> Any:
        """The output type, or the union of several."""
        types = self._parts.types
        union: Any = types[0]
        for kind in types[1:]:
            union = union | kind
        return union

    async def _map(self, task: NodeTask, session: AgentSession | None, ctx: WorkflowContext[Any]) -> NodeTurn:
        """One turn for each item. A resumed map repeats only items without a recorded turn. Every item starts from the
        same conversation; their messages are appended in the order of the items."""
        config = self._config.map
        assert config is not None  # noqa: S101  # the caller checks it
        values = Values(task, self._parts.known_outputs)
        items = values.find(config.over, f"agents.{self._node}.map.over")
        if not isinstance(items, list | tuple):
            path, kind = f"agents.{self._node}.map.over", type(items).__name__
            raise TypeError(f"{path}: expected a list, {config.over!r} is {kind}: {items!r:.200}")
        limit = asyncio.Semaphore(config.max_parallel)

        failures: list[BaseException] = []

        async def take_item(index: int, item: Any) -> NodeTurn | None:
            async with limit:
                if failures:
                    return None
                try:
                    text = input_of(self._node, self._config, values, {"item": item, "index": index})
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
            raise _combine(failures)
        turns = [result for result in results if isinstance(result, NodeTurn)]
        key = self._config.output_key or ANSWER
        listed = results if config.on_error == "null" else turns
        outputs = [None if result is None else _item_output(result, key) for result in listed]
        recorded = None
        if session is not None:
            recorded = merge_messages(turn.recorded for turn in turns if turn.recorded is not None)
        return NodeTurn({key: outputs}, recorded)


class ItemsFailed(ExceptionGroup[Exception]):
    """Several items of a map failed. A resume retries all of them."""

    def __str__(self) -> str:
        first = self.exceptions[0]
        return f"{len(self.exceptions)} items failed; the first: {type(first).__name__}: {first}"


def _combine(failures: Sequence[BaseException]) -> BaseException:
    """The error that stopped the map, or the failures of its items."""
    stopped = next(
        (failure for failure in failures if not isinstance(failure, Exception) or isinstance(failure, OutOfTime)), None
    )
    if stopped is not None or len(failures) == 1:
        return stopped or failures[0]
    return ItemsFailed("items failed", [failure for failure in failures if isinstance(failure, Exception)])


def _item_output(turn: Any, key: str) -> Any:
    """The output of an item, or a mapping of several."""
    return turn.outputs[key] if list(turn.outputs) == [key] else turn.outputs
