"""Helpers for the tests of AgentWorkflow: builders in one line, agents that record their input, events by kind."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, TypeVar

from perdure.agent_workflow import events as event_types
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
    """Return a builder whose executions are stored."""
    return drafted(name, clock).with_checkpointing().with_in_memory_workflow_store()


def stub(*replies: Any, name: str = "agent", **options: Any) -> ScriptedAgent:
    """Return an agent that gives these replies in each turn."""
    return ScriptedAgent(name, list(replies), **options)


def echo(messages: list[Message]) -> str:
    return f"<{messages[-1].text}>"


def boom(messages: list[Message] | None = None) -> Exception:
    """Return a new error each time, as a reply that fails. An error that is raised again keeps its old traceback."""
    return ValueError("boom")


class RecordingAgent(ScriptedAgent):
    """Gives one of these replies in each turn, and repeats the last one. Records the messages that it receives."""

    def __init__(self, *replies: Any, name: str = "agent", **options: Any) -> None:
        self.received: list[list[Message]] = []
        super().__init__(name, self._next, **options)
        self._in_turn: Sequence[Any] = replies or (echo,)

    def _next(self, messages: list[Message]) -> Any:
        self.received.append(list(messages))
        reply = self._in_turn[min(len(self.received), len(self._in_turn)) - 1]
        made: Any = reply(messages) if isinstance(reply, Callable) else reply  # type: ignore[arg-type]
        return made

    @property
    def inputs(self) -> list[str]:
        """The last message that it received in each turn."""
        return [messages[-1].text for messages in self.received]

    @property
    def turns(self) -> int:
        return len(self.received)


async def watched(stream: Any) -> tuple[list[Any], WorkflowResult]:
    """Return all events of the stream, and its result."""
    events = [event async for event in stream]
    return events, await stream


def of_kind(events: Sequence[Any], kind: type[EventT]) -> list[EventT]:
    return [event for event in events if isinstance(event, kind)]


def own(events: Sequence[Any]) -> list[event_types.AgentWorkflowEvent]:
    """Return the events without the streamed texts of agents."""
    return of_kind(events, event_types.AgentWorkflowEvent)
