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

from perdure.agent_workflow.conversations.policy import ConversationMessages, Conversations, said_by_all, said_in
from perdure.agent_workflow.definition.config import ANSWER, NodeConfig, RetryConfig
from perdure.agent_workflow.execution.approvals import Predicate
from perdure.agent_workflow.execution.values import Values, handoff_tools, input_of, messages_for, outputs_of
from perdure.agent_workflow.state import NodeTask, OutOfTime, clock, delivery, is_over, seconds_left
from perdure.agents.conversation.message import AgentSession
from perdure.agents.executor import run_arguments
from perdure.agents.recording import waiting_until
from perdure.agents.tools import Tool
from perdure.agents.turn import take_live_turn
from perdure.engine.steps.attempts import TimeLimitReached, run_with_timeout
from perdure.errors import AnswerNotUsable, StorageFailed
from perdure.graph.context import WorkflowContext
from perdure.graph.policy import RetryPolicy, in_seconds

_BUSY = frozenset({408, 409, 425, 429, 500, 502, 503, 504, 529})
"""Answers of a service that may be another when it is asked again."""


def policy_of(config: RetryConfig | None) -> RetryPolicy | None:
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
    """Each delay is longer by the first one."""

    def delay_after(self, attempts: int) -> float:
        longest = in_seconds("max_delay", self.max_delay or 0.0)
        return min(in_seconds("initial_delay", self.initial_delay) * attempts, longest)


@dataclass(frozen=True)
class JitteredRetry(RetryPolicy):
    """Anything from half of what the exponential delay is to all of it, so that many do not come back at once."""

    def delay_after(self, attempts: int) -> float:
        return super().delay_after(attempts) * random.uniform(0.5, 1)  # noqa: S311  # spreads load, protects nothing


@dataclass(frozen=True, kw_only=True)
class BoundedRetry(RetryPolicy):
    """Another policy, as long as there is time: the last attempt is due when that is up."""

    policy: RetryPolicy
    seconds_left: Callable[[], float]
    over: type[Exception]
    """What says that time is up, and is not tried again."""

    def retries(self, error: BaseException, attempts: int) -> bool:
        return not isinstance(error, self.over) and self.policy.retries(error, attempts)

    def delay_after(self, attempts: int) -> float:
        return min(self.policy.delay_after(attempts), self.seconds_left())


def is_transient(error: BaseException | None) -> bool:
    """Whether the same may go well a moment later: told by the error, or by what caused it."""
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
"""Of the usual clients, which are not imported for that."""
_semaphores: WeakKeyDictionary[asyncio.AbstractEventLoop, dict[str, asyncio.Semaphore]] = WeakKeyDictionary()
"""By event loop and turnstile."""


class Turnstile:
    """A semaphore for whichever event loop it is used in; without a number everybody passes. Copies of it are the same:
    executors are copied for each thread, and this counts what all of them do."""

    def __init__(self, most: int | None) -> None:
        self._most = most
        self._name = uuid4().hex

    def _semaphore(self) -> asyncio.Semaphore | None:
        if self._most is None:
            return None
        known = _semaphores.setdefault(asyncio.get_running_loop(), {})
        return known.setdefault(self._name, asyncio.Semaphore(self._most))

    async def __aenter__(self) -> None:
        semaphore = self._semaphore()
        if semaphore is not None:
            await semaphore.acquire()

    async def __aexit__(self, *_: object) -> None:
        semaphore = self._semaphore()
        if semaphore is not None:
            semaphore.release()


class NodeTurn(msgspec.Struct, frozen=True, omit_defaults=True):
    """What is recorded of a turn."""

    outputs: dict[str, Any]
    said: ConversationMessages | None = None
    """What it adds to its conversation, where it is part of one."""


@dataclass(frozen=True)
class NodeParts:
    """What a node is made of, beside its config: all that only Python has."""

    agent: Any = None
    types: Sequence[type] = ()
    tools: Sequence[Tool] = ()
    needs_approval: Predicate | None = None
    workflow: str | None = None
    """The executor that runs the workflow of the node, if it is one."""
    conversations: Conversations | None = None
    givers: Mapping[str, Collection[str] | None] = field(default_factory=dict)
    """What each node of the workflow may give."""
    retry: RetryPolicy | None = None
    """In place of the config's."""
    turnstile: Turnstile = field(default_factory=lambda: Turnstile(None))


class Turns:
    """Of the agent of one node."""

    def __init__(self, node: str, name: str, config: NodeConfig, parts: NodeParts) -> None:
        self._node = node
        self._name = name
        self._config = config
        self._parts = parts
        self._retry = parts.retry or policy_of(config.retry)
        self._tools = [*parts.tools, *handoff_tools(config)]
        self._turnstile = parts.turnstile

    def told(self, task: NodeTask) -> str:
        return input_of(self._node, self._config, Values(task, self._parts.givers))

    def retry(self, task: NodeTask) -> RetryPolicy | None:
        """The node's own, as long as the execution has time."""
        if self._retry is None or task.deadline is None:
            return self._retry
        return BoundedRetry(policy=self._retry, seconds_left=lambda: seconds_left(task) or 0.0, over=OutOfTime)

    async def taken(self, task: NodeTask, session: AgentSession | None, ctx: WorkflowContext[Any]) -> NodeTurn:
        """Raises whatever the agent raises, once no attempt is left."""
        if self._config.map is None:
            return await self._turn(self.told(task), task, session, ctx, "turn")
        return await self._mapped(task, session, ctx)

    async def _turn(
        self, text: str, task: NodeTask, session: AgentSession | None, ctx: WorkflowContext[Any], key: str
    ) -> NodeTurn:
        """Recorded: once it is, the agent is not asked again for this task. An answer that is not what the node is to
        give is a failed attempt like any other."""
        options = dict(run_arguments(ctx))
        if self._tools:
            options["tools"] = self._tools
        if self._parts.types:
            options |= {"response_format": self._wanted(), "output_mode": self._config.structured_mode}
        messages = messages_for(self._config, text)

        async def turn() -> NodeTurn:
            own = None if session is None else session.copy()  # of this attempt, and of this item of a map
            response = await take_live_turn(self._parts.agent, messages, own, **options)
            try:
                outputs = outputs_of(self._node, self._config, response, self._parts.types)
            except ValueError as error:
                raise AnswerNotUsable(self._name, str(error)) from error
            said = None if own is None or session is None else said_in(own, session.version)
            return NodeTurn(outputs, said)

        async def timely_turn() -> NodeTurn:
            if is_over(task):
                raise OutOfTime
            with waiting_until(task.deadline):
                try:
                    found: NodeTurn = await run_with_timeout(seconds_left(task), turn(), clock())
                except TimeLimitReached as late:
                    raise OutOfTime from late.__cause__
                return found

        async with self._turnstile:
            taken: NodeTurn = await ctx.step(
                turn if task.deadline is None else timely_turn,
                name=self._name,
                key=key,
                retry=self.retry(task),
                timeout=self._config.timeout,
            )
        return taken

    def _wanted(self) -> Any:
        """One type, or any of several."""
        types = self._parts.types
        wanted: Any = types[0]
        for one in types[1:]:
            wanted = wanted | one
        return wanted

    async def _mapped(self, task: NodeTask, session: AgentSession | None, ctx: WorkflowContext[Any]) -> NodeTurn:
        """The agent, once for each item: what is done of a map that was interrupted is not done again. Each item knows
        the conversation as it was; what they say is added in the order of the items."""
        config = self._config.map
        assert config is not None  # noqa: S101  # asked only of a map
        values = Values(task, self._parts.givers)
        items = values.find(config.over, f"agents.{self._node}.map.over")
        if not isinstance(items, list | tuple):
            place, kind = f"agents.{self._node}.map.over", type(items).__name__
            raise TypeError(f"{place}: expected a list, {config.over!r} is {kind}: {items!r:.200}")
        limit = asyncio.Semaphore(config.max_parallel)

        failures: list[BaseException] = []

        async def one(index: int, item: Any) -> NodeTurn | None:
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
                    if not is_own or config.on_error == "fail" or delivery().delivery.broken is not None:
                        failures.append(error)
                    return None

        done = await asyncio.gather(*(one(*pair) for pair in enumerate(items)))
        if failures:  # only now: what ended beside a failure is recorded
            raise _together(failures)
        turns = [one for one in done if isinstance(one, NodeTurn)]
        key = self._config.output_key or ANSWER
        kept = [None if one is None else _own(one, key) for one in (done if config.on_error == "null" else turns)]
        said = None if session is None else said_by_all(one.said for one in turns if one.said is not None)
        return NodeTurn({key: kept}, said)


class ItemsFailed(ExceptionGroup[Exception]):
    """Several items of a map came to nothing: a resume tries all of them again."""

    def __str__(self) -> str:
        first = self.exceptions[0]
        return f"{len(self.exceptions)} items failed; the first: {type(first).__name__}: {first}"


def _together(failures: Sequence[BaseException]) -> BaseException:
    """What stopped the map, or what its items failed with."""
    stopped = next((one for one in failures if not isinstance(one, Exception) or isinstance(one, OutOfTime)), None)
    if stopped is not None or len(failures) == 1:
        return stopped or failures[0]
    return ItemsFailed("items failed", [one for one in failures if isinstance(one, Exception)])


def _own(turn: Any, key: str) -> Any:
    """What an item came to: its one output, or all of them."""
    return turn.outputs[key] if list(turn.outputs) == [key] else turn.outputs
