"""ScriptedExecutor and ScriptedAgent: replace agents and services, and reply from a script."""

from __future__ import annotations

import asyncio
import inspect
import json
import os
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any, TypeAlias, cast

import msgspec

from perdure.agents.base import RecordingAgent
from perdure.agents.conversation.content import Content, add_usage
from perdure.agents.conversation.message import AgentSession, Message
from perdure.agents.conversation.response import AgentResponse
from perdure.agents.conversation.update import AgentResponseUpdate, update_of
from perdure.agents.recording import emit_update, is_streaming, record_call
from perdure.agents.tools import Tool, as_tool, result_of
from perdure.engine.delivery.context import DeliveryContext
from perdure.engine.delivery.executor_state import HookContext
from perdure.graph.annotations import flatten_union
from perdure.graph.context import WorkflowContext
from perdure.graph.executor import Executor
from perdure.graph.handlers import Handler, HandlerTable, Returns


class ScriptOver(AssertionError):
    """A scripted executor got a message that its script has no reply for."""


@dataclass(frozen=True)
class Ask:
    """A reply that asks first: `Ask("may I?", bool)`. The answer is the reply; with `then`, the result
    of that function for the answer."""

    question: Any
    response_type: Any
    then: Callable[[Any], Any] | None = None


class ScriptedExecutor(Executor):
    """Answers each message with the next reply: `ScriptedExecutor("reviewer", replies=["good"], input=str)`.

    A reply that is a value is sent on; with `workflow_output=` it is yielded instead, with `output=` too it is both.
    An exception is raised, once in a thread: a second attempt gets the next reply. A function gets the message and
    returns the reply; in place of the list it answers all messages. `Ask` asks. None sends nothing.

    Each thread follows the script from its start, and so does each sub-workflow. The place is saved with the
    checkpoint, so a resumed run continues there. Raises ScriptOver when a message comes after the last reply.
    """

    def __init__(
        self,
        id: str,
        replies: Sequence[Any] | Callable[[Any], Any],
        *,
        input: Any = object,
        output: Any = None,
        workflow_output: Any = None,
        **policy: Any,
    ) -> None:
        super().__init__(id, defer_discovery=True, **policy)
        if isinstance(replies, str) or not (callable(replies) or isinstance(replies, Sequence)):
            raise TypeError(f"ScriptedExecutor {id!r}: replies= expects a list or a function, got {replies!r}.")
        self._script = replies
        self._sends = output is not None or workflow_output is None
        self._yields = workflow_output is not None
        sent = _infer_types(replies) if self._sends and output is None else _spread(output)
        self.table = HandlerTable(id, _handlers(replies, input, sent, _spread(workflow_output)))
        self._place = 0
        # All copies of the executor share these in this process, over all threads.
        self._received: list[tuple[str, Any]] = []
        """Thread and message."""
        self._raised: dict[tuple[str, str], set[int]] = defaultdict(set)
        """Thread and sub-workflow in it -> places of the script that have raised."""

    def fresh(self, *, shares: bool = False) -> Executor:
        made = cast(ScriptedExecutor, super().fresh(shares=shares))
        made._received, made._raised = self._received, self._raised
        return made

    # ------------------------------------------------------------ what a test looks at

    @property
    def received(self) -> list[Any]:
        """Every message that it was handed in this process, attempts that failed included; in all threads."""
        return [message for _, message in self._received]

    def received_in(self, thread_id: str) -> list[Any]:
        """The same, of one thread."""
        return [message for thread, message in self._received if thread == thread_id]

    # ------------------------------------------------------------ what the engine calls

    async def on_checkpoint_save(self, ctx: HookContext) -> dict[str, Any]:
        own = {child: places for (thread_id, child), places in self._raised.items() if thread_id == ctx.thread_id}
        return {"place": self._place, "raised": {child: sorted(places) for child, places in own.items() if places}}

    async def on_checkpoint_restore(self, state: dict[str, Any], ctx: HookContext) -> None:
        self._place = state["place"]
        for child, places in state["raised"].items():  # kept: an error that was undone was raised all the same
            self._raised[ctx.thread_id, child].update(places)

    async def reply(self, message: Any, ctx: WorkflowContext[Any, Any]) -> None:
        self._received.append((ctx.thread_id, message))
        raised = self._raised[ctx.thread_id, _child_of(ctx)]
        place, scripted = self._next(message, raised)
        try:
            await self._send_reply(await _resolve(scripted, message), ctx)
        except Exception:
            raised.add(place)
            raise

    def _next(self, message: Any, raised: set[int]) -> tuple[int, Any]:
        # The engine puts an executor back when its delivery fails: to the reply that failed it, which is past.
        while self._place in raised:
            self._place += 1
        place = self._place
        self._place += 1
        if callable(self._script):
            return place, self._script
        if place >= len(self._script):
            raise ScriptOver(
                f"ScriptedExecutor {self.id!r} has {len(self._script)} replies, and got one message more: {message!r}. "
                "Add a reply, or pass a function as replies= to answer all messages."
            )
        return place, self._script[place]

    async def _send_reply(self, reply: Any, ctx: WorkflowContext[Any, Any]) -> None:
        if _is_error(reply):
            raise reply
        if isinstance(reply, Ask):
            await ctx.request_info(reply.question, reply.response_type)
            return
        if reply is None:
            return
        if self._sends:
            await ctx.send_message(reply)
        if self._yields:
            await ctx.yield_output(reply)

    async def go_on(self, question: Any, answer: Any, ctx: WorkflowContext[Any, Any]) -> None:
        asked = [] if callable(self._script) else [reply for reply in self._script if isinstance(reply, Ask)]
        then = next((ask.then for ask in asked if ask.question == question and ask.then is not None), None)
        await self._send_reply(answer if then is None else await _resolve(then, answer), ctx)


def _child_of(ctx: WorkflowContext[Any, Any]) -> str:
    """Which sub-workflow it serves, the same if that is started again. Only the engine's own context knows."""
    child_id = cast(DeliveryContext, ctx).delivery.lane.level.child_id
    return "" if child_id is None else str(child_id)


async def _resolve(scripted: Any, message: Any) -> Any:
    """The reply itself, or the result of its function."""
    if not callable(scripted) or _is_error(scripted):
        return scripted
    reply = scripted(message)
    return await reply if inspect.isawaitable(reply) else reply


def _is_error(reply: Any) -> bool:
    return isinstance(reply, BaseException) or (isinstance(reply, type) and issubclass(reply, BaseException))


def _spread(annotation: Any) -> tuple[Any, ...]:
    return () if annotation is None else tuple(flatten_union(annotation))


def _infer_types(replies: Any) -> tuple[Any, ...]:
    """The types of what is sent, where all replies have one: edges are checked by them, and values of them stored."""
    if callable(replies):
        return ()
    values = [reply for reply in replies if reply is not None and not _is_error(reply)]
    unclear = (Ask, list, tuple, dict, set, frozenset)
    if any(callable(reply) or isinstance(reply, unclear) for reply in values):
        return ()
    return tuple(dict.fromkeys(map(type, values)))


def _handlers(replies: Any, input: Any, sent: tuple[Any, ...], yielded: tuple[Any, ...]) -> list[Handler]:
    def handler(name: str, function: Any, message_type: Any, request_type: Any = None) -> Handler:
        return Handler(name, function, message_type, request_type, sent, yielded, True, Returns.NOTHING)

    scripted = [] if callable(replies) else replies
    pairs = {(type(reply.question), reply.response_type): None for reply in scripted if isinstance(reply, Ask)}
    if callable(replies) or any(callable(reply) for reply in scripted):
        pairs[object, object] = None  # a function may ask anything
    return [
        handler("reply", ScriptedExecutor.reply, input),
        *(handler("go_on", ScriptedExecutor.go_on, response, request) for request, response in pairs),
    ]


class Call(msgspec.Struct, frozen=True):
    """A reply that calls a tool: `Call("search", {"query": "tides"})`. Several at once: a list of them."""

    name: str
    arguments: dict[str, Any] | str = {}  # msgspec copies it
    call_id: str | None = None


Reply: TypeAlias = str | Call | Sequence[Call] | Message | BaseException | Mapping[str, Any]
Script: TypeAlias = Sequence[Reply] | Callable[[list[Message]], Reply]
Log: TypeAlias = str | os.PathLike[str] | Callable[[dict[str, Any]], object]


class ScriptedReply(msgspec.Struct, frozen=True):
    """The result of one request to the model."""

    message: Message
    value: Any = None


class ScriptedAgent(RecordingAgent):
    """Answers each request to its model with the next reply: `ScriptedAgent("writer", ["A draft.", "A better one."])`.

    A text or a Message ends the turn; a dict does too, as its structured output. `Call` calls a tool, and the next
    reply is the model's comment on the result. An exception is raised. A function in place of the list is given all
    messages, and gives the reply. How far it is follows from its session, so a resumed run continues there; without one
    every turn starts at the first reply. Raises ScriptOver after the last reply.

    `log` names a file that gets a line for each request and each tool call as it begins, synced to disk: a line that
    is there twice was done twice, also across kills. It may also be a function, called with each of them. Texts are
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
        self.tools: dict[str, Tool] = {tool.name: tool for tool in map(as_tool, tools)}
        self._usage = dict(usage) if usage is not None else {"input_token_count": 1, "output_token_count": 1}
        self._log = log if log is None or callable(log) else Path(log)

    async def turn(
        self, messages: list[Message], session: AgentSession | None, *, tools: Iterable[Any] = (), **kwargs: Any
    ) -> AgentResponse:
        known = {**self.tools, **{tool.name: tool for tool in map(as_tool, tools)}}
        history = [*(session.messages if session is not None else ()), *messages]
        place = sum(message.author_name == self.name and message.role == "assistant" for message in history)
        replies_so_far: list[Message] = []
        usage: dict[str, int] = {}
        while True:
            is_made = False

            async def ask_model(number: int) -> ScriptedReply:
                nonlocal is_made
                is_made = True
                return await self._ask_model(number, [*history, *replies_so_far])

            answer: ScriptedReply = await record_call(ask_model, place, name=f"{self.name}.model", key=str(place))
            usage = add_usage(usage, self._usage)
            replies_so_far.append(answer.message)
            self._emit(answer.message, replayed=not is_made)
            calls, ends = answer.message.of_type("function_call"), True
            if calls:
                made: set[str | None] = set()
                results = await asyncio.gather(*(self._call_tool(call, known, made) for call in calls))
                replies_so_far.append(Message("tool", results))
                self._emit(replies_so_far[-1], replayed=not made and not is_made)
                place += 1
                done = zip(calls, results, strict=True)
                ends = any(known[str(call.name)].ends_turn for call, result in done if result.exception is None)
            if ends:
                ended: dict[str, Any] = {"agent_id": self.id, "value": answer.value, "finish_reason": "stop"}
                emit_update(AgentResponseUpdate(contents=(Content.from_usage(usage),), **ended), replayed=not is_made)
                return AgentResponse(messages=tuple(replies_so_far), usage_details=usage, **ended)

    async def _ask_model(self, place: int, messages: list[Message]) -> ScriptedReply:
        self._write(kind="model", place=place)
        reply = self._reply(place, messages)
        if isinstance(reply, BaseException):
            raise reply
        if isinstance(reply, Message):
            return ScriptedReply(msgspec.structs.replace(reply, author_name=reply.author_name or self.name))
        if isinstance(reply, str):
            return ScriptedReply(Message("assistant", reply, self.name))
        if isinstance(reply, Mapping):
            return ScriptedReply(Message("assistant", json.dumps(reply), self.name), dict(reply))
        calls = [reply] if isinstance(reply, Call) else list(reply)
        contents = [
            Content.from_function_call(
                call.call_id or f"{self.name}-{place}-{number}", call.name, arguments=call.arguments
            )
            for number, call in enumerate(calls, 1)
        ]
        return ScriptedReply(Message("assistant", contents, self.name))

    def _reply(self, place: int, messages: list[Message]) -> Reply:
        if callable(self._replies):
            return self._replies(messages)
        if place >= len(self._replies):
            raise ScriptOver(
                f"Agent {self.name!r} was asked {place + 1} times; its script has {len(self._replies)} replies."
            )
        return self._replies[place]

    async def _call_tool(self, call: Content, known: Mapping[str, Tool], made: set[str | None]) -> Content:
        def begin() -> None:
            made.add(call.call_id)
            self._write(kind="tool", name=call.name, call_id=call.call_id)

        return await result_of(known.get(str(call.name)), call, self.name, begin)

    def _emit(self, message: Message, *, replayed: bool) -> None:
        if not is_streaming():
            return
        for contents in list(_pieces(message.contents)) or [()]:
            emit_update(update_of(message, contents=contents, agent_id=self.id), replayed=replayed)

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
    if any(_is_joined(first, second) for first, second in pairwise(contents)):
        yield tuple(contents)
        return
    for content in contents:
        if content.type != "text" or not content.text or content.additional_properties:
            yield (content,)
        else:
            words = content.text.split(" ")
            yield from ((Content.from_text(f" {word}" if place else word),) for place, word in enumerate(words))


def _is_joined(first: Content, second: Content) -> bool:
    return first.type == second.type and first.type in ("text", "text_reasoning", "function_call")
