"""Helpers for the tests of teams: agents that record their input, and teams that stop after each write."""

from __future__ import annotations

import contextlib
import itertools
import json
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

from perdure import InMemoryCheckpointStorage
from perdure.agents.conversation.message import AgentSession, Message
from perdure.agents.executor import AgentExecutorResponse
from perdure.testing import Faults, ProcessGone
from perdure.testing.crash import MOMENTS, POINTS, Answers, take_to_the_end
from perdure.testing.scripted import ScriptedAgent
from perdure.workflows.workflow import Workflow

MakeTeam = Callable[[Any, Path], Workflow]
"""With a storage, and the file where its agents write down each request to a model."""


class Recorder:
    """Records the messages of each agent, turn by turn."""

    def __init__(self) -> None:
        self.received: dict[str, list[list[str]]] = {}

    def agent(self, name: str, replies: Sequence[Any], **options: Any) -> ScriptedAgent:
        """Return an agent with these replies that records its messages."""
        received = self.received.setdefault(name, [])

        class RecordedAgent(ScriptedAgent):
            async def turn(self, messages: list[Message], *arguments: Any, **more: Any) -> Any:
                received.append([message.text for message in messages])
                return await super().turn(messages, *arguments, **more)

        return RecordedAgent(name, replies, **options)


def texts(messages: Sequence[Message]) -> list[str]:
    return [message.text for message in messages]


async def kept_by(storage: Any, executor_id: str, thread_id: str = "t") -> dict[str, Any]:
    """What an executor keeps in a thread."""
    head = await storage.get_latest(thread_id=thread_id)
    assert head is not None
    kept: dict[str, Any] = head.executors[executor_id].private
    return kept


async def session_texts(storage: Any, agent: str, thread_id: str = "t") -> list[str]:
    """Return the texts of all messages in the session of an agent."""
    session: AgentSession = (await kept_by(storage, agent, thread_id))["session"]
    return texts(session.messages)


def text_of(response: AgentExecutorResponse) -> str:
    return response.agent_response.text


# ---------------------------------------------------------------- stopped, and resumed by a new object


def calls(log: Path) -> Counter[str]:
    """How often each request to a model was made."""
    return Counter(log.read_text().splitlines()) if log.exists() else Counter()


async def assert_no_request_is_repeated(
    make: MakeTeam, message: Any, folder: Path, answers: Answers | None = None, *, at_once: int = 1
) -> None:
    """Stop a team before and after each write, and resume it. It ends in the same state, and no recorded request to a
    model is repeated. `at_once`: how many requests run side by side, of which one is recorded first."""
    logs = _logs(folder)
    faults, log = Faults(), next(logs)
    calm = await take_to_the_end(make(None, log), faults.wrap(InMemoryCheckpointStorage()), message, answers)
    asked = calls(log)
    assert asked and set(asked.values()) == {1}
    for point in POINTS:
        for nth, when in itertools.product(range(1, faults.counts[point] + 1), MOMENTS):
            dying, storage, log = Faults(), InMemoryCheckpointStorage(), next(logs)
            dying.crash(point, nth=nth, when=when)
            with contextlib.suppress(ProcessGone):
                await take_to_the_end(make(None, log), dying.wrap(storage), message, answers)
            assert dying.is_crashed
            ended = await take_to_the_end(make(None, log), storage, message, answers, takeover=True)
            assert (ended.rests[-1], ended.parts) == (calm.rests[-1], calm.parts), f"{when} {point} {nth}"
            unrecorded = at_once if (point, when) == ("journal", "before") else at_once - 1
            again = calls(log) - asked
            assert set(calls(log)) == set(asked), f"{when} {point} {nth}"
            assert again.total() <= unrecorded, f"{when} {point} {nth}: {again}"


def _logs(folder: Path) -> Iterator[Path]:
    number = 0
    while True:
        number += 1
        yield folder / f"{number}.log"


def lines(log: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in log.read_text().splitlines()]
