"""For the tests of AgentWorkflow: builders in a line, agents that are overheard, events by kind."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, TypeVar

from perdure.agent_workflow import events as told
from perdure.agent_workflow.builder.workflow import AgentWorkflow
from perdure.agent_workflow.execution.execution import WorkflowResult
from perdure.agents.conversation.message import Message
from perdure.testing import FakeClock, ScriptedAgent

EventT = TypeVar("EventT")


def drafted(name: str = "w", clock: FakeClock | None = None) -> AgentWorkflow:
    """A builder whose executions are forgotten when they end."""
    builder = AgentWorkflow.create().with_name(name)
    return builder if clock is None else builder.with_clock(clock)


def kept(name: str = "w", clock: FakeClock | None = None) -> AgentWorkflow:
    """One whose executions are kept."""
    return drafted(name, clock).with_checkpointing().with_in_memory_workflow_store()


def says(*replies: Any, name: str = "agent", **options: Any) -> ScriptedAgent:
    """An agent that gives these replies in each turn."""
    return ScriptedAgent(name, list(replies), **options)


def echo(messages: list[Message]) -> str:
    return f"<{messages[-1].text}>"


def boom(messages: list[Message] | None = None) -> Exception:
    """A reply that fails. Another error each time: one that is raised again drags along all it went through before."""
    return ValueError("boom")


class Overheard(ScriptedAgent):
    """Gives one of these replies in each turn, the last one ever after; keeps what it was told."""

    def __init__(self, *replies: Any, name: str = "agent", **options: Any) -> None:
        self.heard: list[list[Message]] = []
        super().__init__(name, self._next, **options)
        self._in_turn: Sequence[Any] = replies or (echo,)

    def _next(self, messages: list[Message]) -> Any:
        self.heard.append(list(messages))
        reply = self._in_turn[min(len(self.heard), len(self._in_turn)) - 1]
        made: Any = reply(messages) if isinstance(reply, Callable) else reply  # type: ignore[arg-type]
        return made

    @property
    def inputs(self) -> list[str]:
        """The last thing that it was told, turn by turn."""
        return [messages[-1].text for messages in self.heard]

    @property
    def turns(self) -> int:
        return len(self.heard)


async def watched(stream: Any) -> tuple[list[Any], WorkflowResult]:
    """All its events, and the result."""
    events = [event async for event in stream]
    return events, await stream


def of_kind(events: Sequence[Any], kind: type[EventT]) -> list[EventT]:
    return [event for event in events if isinstance(event, kind)]


def own(events: Sequence[Any]) -> list[told.AgentWorkflowEvent]:
    """Without what agents said word by word."""
    return of_kind(events, told.AgentWorkflowEvent)
