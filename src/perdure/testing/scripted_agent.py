"""ScriptedAgent: an agent that says what the test wrote down, and calls tools as a model would."""

from __future__ import annotations

import asyncio
import json
import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any, TypeAlias

import msgspec

from perdure.agents.base import RecordingAgent
from perdure.agents.content import Content, add_usage
from perdure.agents.message import Message
from perdure.agents.recording import is_heard, recorded, tell
from perdure.agents.response import AgentResponse, AgentResponseUpdate
from perdure.agents.session import AgentSession
from perdure.agents.tools import Tool, as_tool, result_of
from perdure.testing.scripted import ScriptOver


class Call(msgspec.Struct, frozen=True):
    """A reply that calls a tool: `Call("search", {"query": "tides"})`. Several at once: a list of them."""

    name: str
    arguments: dict[str, Any] | str = {}  # msgspec copies it
    call_id: str | None = None


Reply: TypeAlias = str | Call | Sequence[Call] | Message | BaseException | Mapping[str, Any]
Script: TypeAlias = Sequence[Reply] | Callable[[list[Message]], Reply]
Log: TypeAlias = str | os.PathLike[str] | Callable[[dict[str, Any]], object]


class _Said(msgspec.Struct, frozen=True):
    """What one request to the model came to."""

    message: Message
    value: Any = None


class ScriptedAgent(RecordingAgent):
    """Answers each request to its model with the next reply: `ScriptedAgent("writer", ["A draft.", "A better one."])`.

    A text or a Message ends the turn; a dict does too, as its structured output. `Call` calls a tool, and the next
    reply is what the model says of the result. An exception is raised. A function in place of the list is given all
    messages, and gives the reply. How far it is follows from its session, so a resumed run goes on there; without one
    every turn begins anew. Raises ScriptOver after the last reply.

    `log` names a file that gets a line for each request and each tool call as it begins, synced to disk: what is there
    twice was done twice, whatever was killed. It may also be a function that is called with each of them. Texts are
    streamed word by word.
    """

    def __init__(
        self,
        name: str,
        replies: Script,
        *,
        tools: Iterable[Any] = (),
        description: str | None = None,
        usage: Mapping[str, int] | None = None,
        log: Log | None = None,
    ) -> None:
        super().__init__(name, description=description)
        self._replies = replies if callable(replies) else list(replies)
        self.tools: dict[str, Tool] = {one.name: one for one in map(as_tool, tools)}
        self._usage = dict(usage) if usage is not None else {"input_token_count": 1, "output_token_count": 1}
        self._log = log if log is None or callable(log) else Path(log)

    async def turn(
        self, messages: list[Message], session: AgentSession | None, *, tools: Iterable[Any] = (), **kwargs: Any
    ) -> AgentResponse:
        known = {**self.tools, **{one.name: one for one in map(as_tool, tools)}}
        heard = [*(session.messages if session is not None else ()), *messages]
        place = sum(one.author_name == self.name and one.role == "assistant" for one in heard)
        said: list[Message] = []
        usage: dict[str, int] = {}
        while True:
            is_made = False

            async def ask_model(number: int) -> _Said:
                nonlocal is_made
                is_made = True
                return await self._asked(number, [*heard, *said])

            answer: _Said = await recorded(ask_model, place, name=f"{self.name}.model", key=str(place))
            usage = add_usage(usage, self._usage)
            said.append(answer.message)
            self._tell(answer.message, replayed=not is_made)
            calls, ends = answer.message.of_type("function_call"), True
            if calls:
                made: set[str | None] = set()
                results = await asyncio.gather(*(self._called(one, known, made) for one in calls))
                said.append(Message("tool", results))
                self._tell(said[-1], replayed=not made and not is_made)
                place += 1
                done = zip(calls, results, strict=True)
                ends = any(known[str(one.name)].ends_turn for one, result in done if result.exception is None)
            if ends:
                ended: dict[str, Any] = {"agent_id": self.id, "value": answer.value, "finish_reason": "stop"}
                last = AgentResponseUpdate(contents=(Content.from_usage(usage),), **ended)
                tell(last, replayed=not is_made)
                return AgentResponse(messages=tuple(said), usage_details=usage, **ended)

    async def _asked(self, place: int, messages: list[Message]) -> _Said:
        self._write(kind="model", place=place)
        reply = self._reply(place, messages)
        if isinstance(reply, BaseException):
            raise reply
        if isinstance(reply, Message):
            return _Said(msgspec.structs.replace(reply, author_name=reply.author_name or self.name))
        if isinstance(reply, str):
            return _Said(Message("assistant", reply, self.name))
        if isinstance(reply, Mapping):
            return _Said(Message("assistant", json.dumps(reply), self.name), dict(reply))
        calls = [reply] if isinstance(reply, Call) else list(reply)
        contents = [
            Content.from_function_call(
                one.call_id or f"{self.name}-{place}-{number}", one.name, arguments=one.arguments
            )
            for number, one in enumerate(calls, 1)
        ]
        return _Said(Message("assistant", contents, self.name))

    def _reply(self, place: int, messages: list[Message]) -> Reply:
        if callable(self._replies):
            return self._replies(messages)
        if place >= len(self._replies):
            raise ScriptOver(
                f"Agent {self.name!r} was asked {place + 1} times; its script has {len(self._replies)} replies."
            )
        return self._replies[place]

    async def _called(self, call: Content, known: Mapping[str, Tool], made: set[str | None]) -> Content:
        def begin() -> None:
            made.add(call.call_id)
            self._write(kind="tool", name=call.name, call_id=call.call_id)

        return await result_of(known.get(str(call.name)), call, self.name, begin)

    def _tell(self, message: Message, *, replayed: bool) -> None:
        if not is_heard():
            return
        said: dict[str, Any] = {
            "role": message.role,
            "author_name": message.author_name,
            "message_id": message.message_id,
            "agent_id": self.id,
            "additional_properties": message.additional_properties,
        }
        updates = list(_pieces(message.contents)) or [()]
        for contents in updates:
            tell(AgentResponseUpdate(contents=contents, **said), replayed=replayed)

    def _write(self, **what: Any) -> None:
        if self._log is None:
            return
        if callable(self._log):
            self._log({"agent": self.name, **what})
            return
        line = json.dumps({"agent": self.name, **what}) + "\n"
        descriptor = os.open(self._log, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
        try:
            os.write(descriptor, line.encode())
            os.fsync(descriptor)
        finally:
            os.close(descriptor)


def _pieces(contents: Sequence[Content]) -> Iterator[tuple[Content, ...]]:
    """A text word by word, as a model streams it. Contents that must not become one come together."""
    if any(_is_joined(one, other) for one, other in pairwise(contents)):
        yield tuple(contents)
        return
    for content in contents:
        if content.type != "text" or not content.text or content.additional_properties:
            yield (content,)
        else:
            words = content.text.split(" ")
            yield from ((Content.from_text(f" {word}" if place else word),) for place, word in enumerate(words))


def _is_joined(one: Content, other: Content) -> bool:
    return one.type == other.type and one.type in ("text", "text_reasoning", "function_call")
